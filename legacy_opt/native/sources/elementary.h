/* Elementary functions for kernels.

   They use only the operations + - * / and sqrt of IEEE 754, and integers, so that they return the
   same bits with every compiler (without -ffast-math, with -ffp-contract=off), instruction set and
   libm. They have no branches, so that the compiler can vectorize loops over them.

   A function of float computes in double and rounds once. A function of double has an error of at
   most 3 units in the last place (pow: more, if |b * log(a)| is large). */
#ifndef LEGACY_OPT_ELEMENTARY_H
#define LEGACY_OPT_ELEMENTARY_H

#include <stdint.h>
#include <string.h>

#define LO_INLINE static inline __attribute__((always_inline, unused))
#define LO_NAN __builtin_nan("")
#define LO_INFINITY __builtin_inf()

LO_INLINE double lo_of_bits(int64_t bits) { double x; memcpy(&x, &bits, 8); return x; }
LO_INLINE int64_t lo_bits(double x) { int64_t bits; memcpy(&bits, &x, 8); return bits; }

/* 2**k for -1022 <= k <= 1023 */
LO_INLINE double lo_power_of_2(int64_t k) { return lo_of_bits((int64_t)((uint64_t)(k + 1023) << 52)); }

/* e**x - 1 = k, r and p with e**x = 2**k * (1 + p): the parts from which exp and expm1 are made. */
typedef struct { int64_t k; double p; } lo_exp_parts;

LO_INLINE lo_exp_parts lo_split_exp(double x) {
  const double shift = 6755399441055744.0; /* 1.5 * 2**52: adding it rounds to an integer */
  double t = x * 1.4426950408889634 + shift, k = t - shift;
  double r = (x - k * 6.93147180369123816490e-01) - k * 1.90821492927058770002e-10;
  double p = 1.6059043836821613e-10; /* 1/13! */
  p = p * r + 2.0876756987868099e-09;
  p = p * r + 2.5052108385441719e-08;
  p = p * r + 2.7557319223985888e-07;
  p = p * r + 2.7557319223985893e-06;
  p = p * r + 2.4801587301587302e-05;
  p = p * r + 1.9841269841269841e-04;
  p = p * r + 1.3888888888888889e-03;
  p = p * r + 8.3333333333333332e-03;
  p = p * r + 4.1666666666666664e-02;
  p = p * r + 1.6666666666666666e-01;
  p = p * r + 0.5;
  p = p * (r * r) + r;
  lo_exp_parts parts = {lo_bits(t) - 0x4338000000000000LL, p};
  return parts;
}

LO_INLINE double lo_exp(double x) {
  double d = x > 710.0 ? 710.0 : x;
  d = d < -760.0 ? -760.0 : d;
  lo_exp_parts parts = lo_split_exp(d);
  int64_t half = parts.k / 2; /* in two factors, because 2**k may overflow where e**x does not */
  return (1.0 + parts.p) * lo_power_of_2(half) * lo_power_of_2(parts.k - half);
}

LO_INLINE double lo_expm1(double x) {
  double d = x > 710.0 ? 710.0 : x;
  d = d < -100.0 ? -100.0 : d;
  lo_exp_parts parts = lo_split_exp(d);
  int64_t half = parts.k / 2;
  double a = lo_power_of_2(half), b = lo_power_of_2(parts.k - half);
  double large = (1.0 + parts.p) * a * b - 1.0;
  double small = parts.p * a * b + (a * b - 1.0);
  return parts.k > 60 ? large : small;
}

/* log(m * 2**e) of a positive x, as e * log(2) + log(m) with m between sqrt(1/2) and sqrt(2) */
LO_INLINE double lo_log_positive(double x) {
  double scaled = x < 2.2250738585072014e-308 ? x * 18014398509481984.0 : x; /* 2**54 */
  int64_t bits = lo_bits(scaled), e = ((bits >> 20) >> 32) - 1023;
  double m = lo_of_bits((bits & 0xFFFFFFFFFFFFFLL) | 0x3FF0000000000000LL);
  int large = m > 1.4142135623730951;
  m = large ? m * 0.5 : m;
  double k = (double)(int32_t)e + (large ? 1.0 : 0.0) - (x < 2.2250738585072014e-308 ? 54.0 : 0.0);
  double f = m - 1.0, s = f / (2.0 + f), z = s * s, h = 0.5 * f * f;
  double p = 1.0 / 21.0;
  p = p * z + 1.0 / 19.0;
  p = p * z + 1.0 / 17.0;
  p = p * z + 1.0 / 15.0;
  p = p * z + 1.0 / 13.0;
  p = p * z + 1.0 / 11.0;
  p = p * z + 1.0 / 9.0;
  p = p * z + 1.0 / 7.0;
  p = p * z + 1.0 / 5.0;
  p = p * z + 1.0 / 3.0;
  double q = 2.0 * z * p; /* log(1 + f) = f - h + s * (h + q) */
  return k * 6.93147180369123816490e-01 - ((h - (s * (h + q) + k * 1.90821492927058770002e-10)) - f);
}

LO_INLINE double lo_log(double x) {
  double y = lo_log_positive(x > 0.0 ? x : 1.0);
  y = x == 0.0 ? -LO_INFINITY : y;
  y = x < 0.0 ? LO_NAN : y;
  return x == LO_INFINITY || x != x ? x : y;
}

LO_INLINE double lo_log1p(double x) {
  double u = 1.0 + x, y = lo_log(u); /* log(u) * x / (u - 1) corrects the rounding of u */
  double corrected = y + (x - (u - 1.0)) / u;
  return u == 1.0 || x == LO_INFINITY ? x : (u <= 0.0 ? y : corrected);
}

LO_INLINE double lo_sigmoid(double x) { return 1.0 / (1.0 + lo_exp(-x)); }

LO_INLINE double lo_tanh(double x) {
  double a = x < 0.0 ? -x : x;
  double e = lo_expm1(-2.0 * (a > 350.0 ? 350.0 : a)), y = -e / (2.0 + e);
  y = x < 0.0 ? -y : y;
  return x != x || x == 0.0 ? x : y;
}

/* a**b by exp(b * log(a)): the error grows with |b * log(a)|. Corners are as in C99's pow. */
LO_INLINE double lo_pow(double a, double b) {
  int64_t n = b > -9.0e18 && b < 9.0e18 ? (int64_t)b : 0; /* beyond, all numbers are even */
  int whole = (double)n == b || b >= 9.0e15 || b <= -9.0e15;
  double size = __builtin_fabs(a), power = b * lo_log(size);
  double y = lo_exp(size == 1.0 ? 0.0 : power); /* b may be infinite */
  y = b == 1.0 ? size : y;
  double signed_y = n & 1 ? __builtin_copysign(y, a) : y;
  double other = a < 0.0 ? (size < LO_INFINITY ? LO_NAN : y) : y;
  y = whole ? signed_y : other;
  return b == 0.0 || a == 1.0 ? 1.0 : (a != a || b != b ? LO_NAN : y);
}

/* NaN becomes NaN in both arguments, as in TensorFlow's Maximum and Minimum. */
#define LO_MAXIMUM(a, b) ((a) != (a) ? (a) : (b) != (b) ? (b) : (a) < (b) ? (b) : (a))
#define LO_MINIMUM(a, b) ((a) != (a) ? (a) : (b) != (b) ? (b) : (b) < (a) ? (b) : (a))

/* (float)lo_exp(x), in two thirds of the operations: a polynomial of the smallest error instead of
   Taylor's, its even and odd powers apart, and an exponent that cannot overflow in a double. It was
   compared for all 2**32 numbers (tests/native/test_elementary.py). */
LO_INLINE float lo_expf(float x) {
  const double shift = 6755399441055744.0;
  float limited = x > 90.0f ? 90.0f : x; /* beyond, the results are infinity and 0 */
  double d = limited < -110.0f ? -110.0f : limited, t = d * 1.4426950408889634 + shift, k = t - shift;
  double r = (d - k * 6.93147180369123816490e-01) - k * 1.90821492927058770002e-10, s = r * r;
  double even = 2.7635605664348654e-07;
  even = even * s + 2.4801478121788738e-05;
  even = even * s + 0.0013888888957724087;
  even = even * s + 0.041666666666480404;
  even = even * s + 0.5000000000000016;
  double odd = 2.763530310839762e-06;
  odd = odd * s + 0.00019841184478840674;
  odd = odd * s + 0.008333333371438332;
  odd = odd * s + 0.16666666666610283;
  double p = (odd * r + even) * s + r;
  return (float)lo_of_bits(lo_bits(1.0 + p) + (int64_t)((uint64_t)lo_bits(t) << 52)); /* * 2**k */
}
LO_INLINE float lo_expm1f(float x) { return (float)lo_expm1((double)x); }
LO_INLINE float lo_logf(float x) { return (float)lo_log((double)x); }
LO_INLINE float lo_log1pf(float x) { return (float)lo_log1p((double)x); }
LO_INLINE float lo_sigmoidf(float x) { return (float)lo_sigmoid((double)x); }
LO_INLINE float lo_tanhf(float x) { return (float)lo_tanh((double)x); }
LO_INLINE float lo_powf(float a, float b) { return (float)lo_pow((double)a, (double)b); }

/* 16-bit floats are stored as uint16_t. Kernels compute in float, and round after each operation. */
LO_INLINE float lo_float_of_bits(uint32_t bits) { float x; memcpy(&x, &bits, 4); return x; }
LO_INLINE uint32_t lo_bits_of_float(float x) { uint32_t bits; memcpy(&bits, &x, 4); return bits; }

LO_INLINE float lo_of_bfloat16(uint16_t h) { return lo_float_of_bits((uint32_t)h << 16); }
LO_INLINE uint16_t lo_to_bfloat16(float x) {
  uint32_t bits = lo_bits_of_float(x), rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16;
  return (uint16_t)((bits & 0x7FFFFFFF) > 0x7F800000 ? (bits >> 31 << 15 | 0x7FC0) : rounded);
}

LO_INLINE float lo_of_float16(uint16_t h) {
  uint32_t sign = (uint32_t)(h & 0x8000) << 16, rest = h & 0x7FFF;
  float small = (float)(int32_t)rest * 5.9604644775390625e-08f; /* denormals: 2**-24 each */
  uint32_t bits = (rest << 13) + ((uint32_t)(rest >= 0x7C00 ? 255 - 31 : 127 - 15) << 23);
  bits = rest < 0x400 ? lo_bits_of_float(small) : bits;
  return lo_float_of_bits(sign | bits);
}
LO_INLINE uint16_t lo_to_float16(float x) {
  uint32_t bits = lo_bits_of_float(x), sign = bits >> 16 & 0x8000, rest = bits & 0x7FFFFFFF;
  /* Adding 0.5 leaves the result of a denormal number in the last bits of the sum. */
  uint32_t small = lo_bits_of_float(lo_float_of_bits(rest) + 0.5f) - 0x3F000000;
  uint32_t normal = (rest + 0xFFF + (rest >> 13 & 1) - ((127 - 15) << 23)) >> 13;
  uint32_t found = rest < 0x38800000 ? small : normal;
  found = rest >= 0x477FF000 ? 0x7C00 : found; /* overflow */
  found = rest > 0x7F800000 ? 0x7E00 : found;
  return (uint16_t)(sign | found);
}
LO_INLINE float lo_round_bfloat16(float x) { return lo_of_bfloat16(lo_to_bfloat16(x)); }
/* lo_of_float16(lo_to_float16(x)), in half as many instructions */
LO_INLINE float lo_round_float16(float x) {
  uint32_t bits = lo_bits_of_float(x), rest = bits & 0x7FFFFFFF;
  uint32_t small = lo_bits_of_float((lo_float_of_bits(rest) + 0.5f) - 0.5f);
  uint32_t normal = (rest + 0xFFF + (rest >> 13 & 1)) & ~0x1FFFu;
  uint32_t found = rest < 0x38800000 ? small : normal;
  found = rest >= 0x477FF000 ? 0x7F800000 : found;
  found = rest > 0x7F800000 ? 0x7FC00000 : found;
  return lo_float_of_bits((bits ^ rest) | found);
}

/* Casts to integers. C does not define casts of NaN and of numbers out of range, and instructions
   differ. Here they become the lowest integer, as in TensorFlow on x86-64. Fractions become 0 before
   the cast, because compilers replace a cast to an integer and back by a function that returns -0.
   `limit` and `lowest` are the bits of 2**31 or 2**63, and of its negative. (With comparisons of
   floats, gcc does not vectorize casts of float16.) */
LO_INLINE float lo_integral(float x, uint32_t limit, uint32_t lowest) {
  uint32_t bits = lo_bits_of_float(x), size = bits & 0x7FFFFFFF;
  bits = size < limit ? bits : lowest;
  return lo_float_of_bits(bits & -(uint32_t)(size >= 0x3F800000));
}
LO_INLINE int32_t lo_int32_of_float(float x) { return (int32_t)lo_integral(x, 0x4F000000, 0xCF000000); }
LO_INLINE int64_t lo_int64_of_float(float x) { return (int64_t)lo_integral(x, 0x5F000000, 0xDF000000); }
LO_INLINE int32_t lo_int32_of_double(double x) {
  double size = __builtin_fabs(x);
  return (int32_t)(size < 0x1p31 ? (size < 1.0 ? 0.0 : x) : -0x1p31);
}
LO_INLINE int64_t lo_int64_of_double(double x) {
  double size = __builtin_fabs(x), y = size < 0x1p63 ? x : -0x1p63;
  return (int64_t)lo_of_bits(lo_bits(y) & -(int64_t)!(size < 1.0));
}

#endif

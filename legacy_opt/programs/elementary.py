"""Elementary functions of float64 for the targets of recorded rules.

The formulas are those of native/sources/elementary.h, in the same order. They use only + - * / of
IEEE 754 and integers, so each target computes the same bits as native kernels. A function of
float32 computes in float64 and rounds once. (In kernels, exp of float32 has other formulas, and the
same bits.)

The first argument of each function is a library: an object with the functions of an array library
(`where`, `cast`, `bits`, `of_bits`).
"""

from __future__ import annotations

from typing import Any, Tuple

_INFINITY, _NAN = float("inf"), float("nan")
_SHIFT = 6755399441055744.0  # 1.5 * 2**52: adding it rounds to an integer
_LOG2_HIGH, _LOG2_LOW = 6.93147180369123816490e-01, 1.90821492927058770002e-10
_SMALLEST = 2.2250738585072014e-308  # the smallest normal number
# The coefficients of the polynomials in `_parts_of_exp` and `_log_of_positive`.
_OF_EXP = (
    1.6059043836821613e-10,  # 1/13!
    2.0876756987868099e-09,
    2.5052108385441719e-08,
    2.7557319223985888e-07,
    2.7557319223985893e-06,
    2.4801587301587302e-05,
    1.9841269841269841e-04,
    1.3888888888888889e-03,
    8.3333333333333332e-03,
    4.1666666666666664e-02,
    1.6666666666666666e-01,
    0.5,
)
_OF_LOG = tuple(1.0 / odd for odd in range(21, 1, -2))


def _polynomial(coefficients: Tuple[float, ...], x: Any) -> Any:
    total = coefficients[0]
    for each in coefficients[1:]:
        total = total * x + each
    return total


def _power_of_2(library: Any, k: Any) -> Any:
    return library.of_bits((k + 1023) << 52)


def _parts_of_exp(library: Any, x: Any, lowest: float) -> Tuple[Any, Any, Any, Any]:
    """Returns k, p, a and b with e**x = 2**k * (1 + p) and 2**k = a * b, for x in [lowest, 710]."""
    limited = library.where(x > 710.0, 710.0, x)
    limited = library.where(limited < lowest, lowest, limited)
    t = limited * 1.4426950408889634 + _SHIFT
    k = t - _SHIFT
    r = (limited - k * _LOG2_HIGH) - k * _LOG2_LOW
    p = _polynomial(_OF_EXP, r)
    k = library.bits(t) - 0x4338000000000000
    # Two factors, because 2**k may overflow where e**x does not.
    half = library.where(k < 0, -(-k // 2), k // 2)  # rounds to zero, as in C
    return k, p * (r * r) + r, _power_of_2(library, half), _power_of_2(library, k - half)


def exp(library: Any, x: Any) -> Any:
    """Returns e**x."""
    _, p, a, b = _parts_of_exp(library, x, -760.0)
    return (1.0 + p) * a * b


def expm1(library: Any, x: Any) -> Any:
    """Returns e**x - 1."""
    k, p, a, b = _parts_of_exp(library, x, -100.0)
    large = (1.0 + p) * a * b - 1.0
    small = p * a * b + (a * b - 1.0)
    return library.where(k > 60, large, small)


def _log_of_positive(library: Any, x: Any) -> Any:
    is_small = x < _SMALLEST
    bits = library.bits(library.where(is_small, x * 18014398509481984.0, x))  # 2**54
    e = ((bits >> 20) >> 32) - 1023
    m = library.of_bits((bits & 0xFFFFFFFFFFFFF) | 0x3FF0000000000000)
    is_large = m > 1.4142135623730951  # the square root of 2
    m = library.where(is_large, m * 0.5, m)
    k = library.cast(e, "float64") + library.where(is_large, 1.0, 0.0)
    k = k - library.where(is_small, 54.0, 0.0)
    f = m - 1.0
    s = f / (2.0 + f)
    z = s * s
    h = 0.5 * f * f
    q = 2.0 * z * _polynomial(_OF_LOG, z)
    return k * _LOG2_HIGH - ((h - (s * (h + q) + k * _LOG2_LOW)) - f)


def log(library: Any, x: Any) -> Any:
    """Returns the natural logarithm."""
    y = _log_of_positive(library, library.where(x > 0.0, x, 1.0))
    y = library.where(x == 0.0, -_INFINITY, y)
    y = library.where(x < 0.0, _NAN, y)
    return library.where((x == _INFINITY) | (x != x), x, y)


def log1p(library: Any, x: Any) -> Any:
    """Returns log(1 + x)."""
    u = 1.0 + x
    y = log(library, u)
    corrected = y + (x - (u - 1.0)) / u
    other = library.where(u <= 0.0, y, corrected)
    return library.where((u == 1.0) | (x == _INFINITY), x, other)


def sigmoid(library: Any, x: Any) -> Any:
    """Returns 1 / (1 + e**-x)."""
    return 1.0 / (1.0 + exp(library, -x))


def tanh(library: Any, x: Any) -> Any:
    """Returns the hyperbolic tangent."""
    a = library.where(x < 0.0, -x, x)
    e = expm1(library, -2.0 * library.where(a > 350.0, 350.0, a))
    y = -e / (2.0 + e)
    y = library.where(x < 0.0, -y, y)
    return library.where((x != x) | (x == 0.0), x, y)


def power(library: Any, a: Any, b: Any) -> Any:
    """Returns a**b."""
    n = library.cast(b, "int64")  # for a large b, the lowest integer, which is even like b
    is_whole = (library.cast(n, "float64") == b) | (b >= 9.0e15) | (b <= -9.0e15)
    size = abs(a)
    product = b * log(library, size)
    y = exp(library, library.where(size == 1.0, 0.0, product))
    y = library.where(b == 1.0, size, y)
    is_negative = library.bits(a) < 0  # also -0
    signed = library.where(((n & 1) == 1) & is_negative, -y, y)
    other = library.where(a < 0.0, library.where(size < _INFINITY, _NAN, y), y)
    y = library.where(is_whole, signed, other)
    y = library.where((a != a) | (b != b), _NAN, y)
    return library.where((b == 0.0) | (a == 1.0), 1.0, y)

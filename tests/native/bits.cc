// Runs kernels on drawn inputs, and prints a hash of the results of each. The inputs depend only on
// the kernel, so that hashes of two processors can be compared. See `make bits-arm`.
// Arguments: the number of threads; "small" or "large" shapes; the libraries of kernels.
#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <thread>

#include "checks.h"

extern "C" {
#include "elementary.h"
}

namespace {

using namespace legacy_opt;

enum Drawn { kWeights, kPositive, kScalars, kBits };

struct Array {
  std::unique_ptr<char[]> memory;
  int64_t count;
  int32_t dtype;
};

uint64_t state;  // of SplitMix64
int64_t threads;

uint64_t Next() {
  uint64_t z = state += 0x9E3779B97F4A7C15ull;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
  return z ^ (z >> 31);
}

// A number of 24 bits. It is an integer times a power of 2: so compilers cannot make it differ.
float Number(Drawn drawn) {
  const int64_t least[] = {-(1 << 23), 1 << 19, 1 << 19}, most[] = {1 << 23, 1 << 23, 1 << 22};
  const uint64_t range = most[drawn] - least[drawn];
  return static_cast<float>(least[drawn] + static_cast<int64_t>(Next() % range)) * 0x1p-22f;
}

// Bits of numbers of all sizes, and often 0, infinity, NaN, or the least and the greatest numbers.
uint64_t Bits(int32_t dtype) {
  const int size = static_cast<int>(SizeOf(dtype)) * 8;
  const int mantissa = size == 64 ? 52 : size == 32 ? 23 : dtype == 14 ? 7 : 10;
  const uint64_t one = 1, infinity = (one << (size - 1)) - (one << mantissa);
  const uint64_t corners[] = {0, 1, one << mantissa, infinity - 1, infinity, infinity + 1};
  const uint64_t bits = Next(), chosen = Next() % 24;
  return chosen < 6 ? corners[chosen] | bits << (size - 1) : bits;
}

void Fill(Array* array, Drawn drawn) {
  const int64_t size = SizeOf(array->dtype);
  for (int64_t i = 0; i < array->count; ++i) {
    uint64_t bits = 0;
    const float number = Number(drawn == kBits ? kPositive : drawn);
    const double wide = number;
    switch (array->dtype) {
      case 1: std::memcpy(&bits, &number, 4); break;
      case 2: std::memcpy(&bits, &wide, 8); break;
      case 14: bits = lo_to_bfloat16(number); break;
      case 19: bits = lo_to_float16(number); break;
      case 10: bits = Next() % 2; break;
      default: bits = 1 + Next() % 5;  // integers: steps
    }
    const bool is_float = array->dtype == 1 || array->dtype == 2 || size == 2;
    if (drawn == kBits && is_float) bits = Bits(array->dtype);
    std::memcpy(array->memory.get() + i * size, &bits, size);  // little endian
  }
}

// All arrays of a case, and their hash.
class Arrays {
 public:
  char* New(int64_t count, int32_t dtype, Drawn drawn) {
    all_.push_back({std::unique_ptr<char[]>(new char[count * SizeOf(dtype)]), count, dtype});
    Fill(&all_.back(), drawn);
    return all_.back().memory.get();
  }
  uint64_t Hash() const {
    uint64_t hash = 0xCBF29CE484222325ull;
    for (const Array& each : all_) {
      const int64_t size = SizeOf(each.dtype);
      for (int64_t i = 0; i < each.count; ++i) {
        uint64_t bits = 0;
        std::memcpy(&bits, each.memory.get() + i * size, size);
        if (IsNan(bits, each.dtype)) bits = 0x7FF;  // IEEE 754 leaves the other bits of NaN open
        hash = (hash ^ bits) * 0x100000001B3ull;
        hash ^= hash >> 29;
      }
    }
    return hash;
  }

 private:
  static bool IsNan(uint64_t bits, int32_t dtype) {
    switch (dtype) {
      case 1: return (bits & 0x7FFFFFFF) > 0x7F800000;
      case 2: return (bits & 0x7FFFFFFFFFFFFFFF) > 0x7FF0000000000000;
      case 14: return (bits & 0x7FFF) > 0x7F80;
      case 19: return (bits & 0x7FFF) > 0x7C00;
      default: return false;
    }
  }
  std::vector<Array> all_;
};

void InThreads(int64_t total, int64_t block, const Work& work) {
  auto some = [&](int64_t first) {
    for (; first < total; first += threads * block) work(first, std::min(total, first + block));
  };
  std::vector<std::thread> others;
  for (int64_t i = 1; i < threads && i * block < total; ++i) others.emplace_back(some, i * block);
  some(0);
  for (std::thread& each : others) each.join();
}

struct Shape {
  int64_t matrices, rows, columns;
};

// A variable with its slots. The gradient has `gradient_rows` rows.
Variable Make(const legacy_opt_kernel* kernel, const Shape& shape, int64_t gradient_rows, bool bits,
              Arrays* arrays) {
  const Drawn numbers = bits ? kBits : kWeights, slots = bits ? kBits : kPositive;
  const int64_t rows = shape.matrices * shape.rows;
  Variable variable;
  variable.size = rows * shape.columns;
  variable.rows = shape.rows;
  variable.columns = shape.columns;
  variable.value = arrays->New(variable.size, kernel->dtype, numbers);
  variable.gradient = arrays->New(gradient_rows * shape.columns, kernel->dtype, numbers);
  const int counts[] = {kernel->slots, kernel->row_slots, kernel->column_slots,
                        kernel->scalar_slots};
  const int64_t sizes[] = {variable.size, rows, shape.matrices * shape.columns, 1};
  for (int kind = 0, i = 0; kind < 4; ++kind) {
    for (int k = 0; k < counts[kind]; ++k, ++i) {
      const Drawn drawn = kind == 3 ? kPositive : slots;
      variable.slots[i] = arrays->New(sizes[kind], kernel->slot_dtypes[i], drawn);
    }
  }
  return variable;
}

void Print(const char* name, const char* what, bool bits, bool large, const Arrays& arrays) {
  std::printf("%.32s %s %s %s %016llx\n", name, what, bits ? "bits" : "numbers",
              large ? "large" : "small", static_cast<unsigned long long>(arrays.Hash()));
}

void Run(const legacy_opt_kernel* kernel, const char* name, bool bits, bool large) {
  constexpr int kSteps = 3;
  state = bits;
  Arrays of_scalars;
  std::vector<const void*> scalars;
  for (int i = 0; i < kernel->scalars; ++i) {
    scalars.push_back(of_scalars.New(1, kernel->scalar_dtypes[i], kScalars));
  }
  scalars.push_back(nullptr);
  std::vector<Shape> shapes{{1, 67, 173}, {1, 1, 1}, {2, 19, 33}, {1, 37, 1}};
  if (large) shapes = {{1, 601, 257}};
  if (CheckWhole(kernel).empty()) {
    Arrays arrays;
    std::vector<Variable> variables;
    for (const Shape& each : shapes) {
      variables.push_back(Make(kernel, each, each.matrices * each.rows, bits, &arrays));
    }
    for (int step = 0; step < kSteps; ++step) {
      UpdateWhole(kernel, variables, scalars.data(), InThreads);
    }
    Print(name, "whole", bits, large, arrays);
  }
  for (bool all_rows : {false, true}) {
    if (!CheckByRows(kernel, all_rows).empty()) continue;
    const int64_t rows = large ? 3000 : 101, count = large ? 1000 : 64;
    Arrays arrays;
    const Variable variable = Make(kernel, {1, rows, 24}, count, bits, &arrays);
    for (int step = 0; step < kSteps; ++step) {
      std::vector<int32_t> ids(count);
      for (int32_t& each : ids) each = static_cast<int32_t>(Next() % (rows / 2));
      UpdateRows<int32_t>(kernel, variable, ids.data(), count, rows, scalars.data(), all_rows,
                          InThreads);
    }
    Print(name, all_rows ? "all-rows" : "rows", bits, large, arrays);
  }
  if (CheckSums(kernel).empty()) {
    Arrays arrays;
    std::vector<Variable> gradients;
    for (const Shape& each : shapes) {
      gradients.push_back(Make(kernel, each, each.matrices * each.rows, bits, &arrays));
    }
    const std::vector<double> sums = SumGradients(kernel, gradients, InThreads);
    char* const found = arrays.New(sums.size(), 2, kWeights);
    std::memcpy(found, sums.data(), sums.size() * sizeof(double));
    Print(name, "sums", bits, large, arrays);
  }
}

}  // namespace

int main(int count, char** arguments) {
  threads = std::atoi(arguments[1]);
  for (int i = 3; i < count; ++i) {
    void* library = dlopen(arguments[i], RTLD_NOW | RTLD_LOCAL);
    if (!library) {
      std::fprintf(stderr, "%s\n", dlerror());
      return 1;
    }
    const auto* kernel = static_cast<const legacy_opt_kernel*>(dlsym(library, "legacy_opt_table"));
    if (!CheckTable(kernel).empty()) {
      std::fprintf(stderr, "%s contains no kernel\n", arguments[i]);
      return 1;
    }
    const char* const slash = std::strrchr(arguments[i], '/');
    for (bool bits : {false, true}) {
      Run(kernel, slash ? slash + 1 : arguments[i], bits, arguments[2] == std::string("large"));
    }
  }
  return 0;
}

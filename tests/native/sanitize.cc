// Runs kernels with drawn shapes and row numbers, on memory whose bounds the sanitizers know.
// Arguments: a seed, then the libraries of kernels. See `make sanitize`.
#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>
#include <limits>
#include <memory>
#include <random>
#include <thread>

#include "update.h"

namespace {

using namespace legacy_opt;

std::mt19937 generator;

int64_t Draw(int64_t first, int64_t last) {
  return std::uniform_int_distribution<int64_t>(first, last)(generator);
}

// Memory of exactly so many bytes, with drawn bits: also NaN, infinity and denormal numbers.
std::vector<char*> Allocate(int64_t count, int64_t bytes, std::vector<std::unique_ptr<char[]>>* owner) {
  std::vector<char*> found;
  for (int64_t i = 0; i < count; ++i) {
    owner->emplace_back(new char[bytes]);
    for (int64_t k = 0; k < bytes; ++k) owner->back()[k] = static_cast<char>(generator());
    found.push_back(owner->back().get());
  }
  return found;
}

void TwoThreads(int64_t total, int64_t block, const Work& work) {
  auto every_second = [&](int64_t first) {
    for (; first < total; first += 2 * block) work(first, std::min(total, first + block));
  };
  std::thread other(every_second, block);
  every_second(0);
  other.join();
}

struct Owned {
  Variable variable;
  std::vector<std::unique_ptr<char[]>> memory;
};

// Makes a variable of rows * columns elements, with slots; the gradient has `gradients` elements.
void Make(const legacy_opt_kernel* kernel, int64_t rows, int64_t columns, int64_t gradients,
          Owned* owned) {
  Variable& variable = owned->variable;
  variable.size = rows * columns;
  const int64_t size = SizeOf(kernel->dtype);
  variable.value = Allocate(1, variable.size * size, &owned->memory)[0];
  variable.gradient = Allocate(1, gradients * size, &owned->memory)[0];
  void** const places[] = {variable.slots, variable.row_slots, variable.column_slots,
                           variable.scalar_slots};
  const int counts[] = {kernel->slots, kernel->row_slots, kernel->column_slots,
                        kernel->scalar_slots};
  const int64_t matrices = kernel->update_row && rows % 3 == 0 ? 3 : 1;  // [3, rows / 3, columns]
  variable.rows = rows / matrices;
  variable.columns = columns;
  const int64_t sizes[] = {variable.size, rows, matrices * columns, 1};
  for (int kind = 0, i = 0; kind < 4; ++kind) {
    for (int k = 0; k < counts[kind]; ++k, ++i) {
      const int64_t bytes = sizes[kind] * SizeOf(kernel->slot_dtypes[i]);
      places[kind][k] = Allocate(1, bytes, &owned->memory)[0];
    }
  }
}

template <typename Id>
void UpdateSomeRows(const legacy_opt_kernel* kernel, const void* const* scalars, bool all_rows) {
  Owned owned;
  const int64_t rows = Draw(1, 300), columns = Draw(1, 40), count = Draw(0, 200);
  Make(kernel, rows, columns, count * columns, &owned);
  std::unique_ptr<Id[]> ids(new Id[count]);
  for (int64_t i = 0; i < count; ++i) ids[i] = static_cast<Id>(Draw(0, rows - 1));
  const bool is_wrong = count && Draw(0, 4) == 0;
  if (is_wrong) {
    const Id wrong[] = {-1, static_cast<Id>(rows), std::numeric_limits<Id>::max(),
                        std::numeric_limits<Id>::min()};
    ids[Draw(0, count - 1)] = wrong[Draw(0, 3)];
  }
  const std::string error = UpdateRows<Id>(kernel, owned.variable, ids.get(), count, rows, scalars,
                                           all_rows, TwoThreads);
  if (error.empty() == (is_wrong || kernel->sums || kernel->update_row)) {
    std::fprintf(stderr, "unexpected: '%s'\n", error.c_str());
    std::exit(1);
  }
}

void Run(const legacy_opt_kernel* kernel) {
  std::vector<std::unique_ptr<char[]>> memory;
  std::vector<const void*> scalars;
  for (int i = 0; i < kernel->scalars; ++i) {
    scalars.push_back(Allocate(1, SizeOf(kernel->scalar_dtypes[i]), &memory)[0]);
  }
  scalars.push_back(nullptr);
  if (!kernel->row_slots || kernel->update_row) {
    std::vector<Owned> owned(Draw(1, 4));
    std::vector<Variable> variables;
    for (Owned& each : owned) {
      const int64_t rows = Draw(0, 700), columns = Draw(1, 300);
      Make(kernel, rows, columns, rows * columns, &each);
      variables.push_back(each.variable);
    }
    UpdateWhole(kernel, variables, scalars.data(), TwoThreads);
    UpdateSomeRows<int32_t>(kernel, scalars.data(), true);
  }
  UpdateSomeRows<int32_t>(kernel, scalars.data(), false);
  UpdateSomeRows<int64_t>(kernel, scalars.data(), false);
}

}  // namespace

int main(int count, char** arguments) {
  generator.seed(static_cast<unsigned>(std::atoi(arguments[1])));
  for (int i = 2; i < count; ++i) {
    void* library = dlopen(arguments[i], RTLD_NOW | RTLD_LOCAL);
    if (!library) {
      std::fprintf(stderr, "%s\n", dlerror());
      return 1;
    }
    const auto* kernel =
        static_cast<const legacy_opt_kernel*>(dlsym(library, "legacy_opt_table"));
    for (int round = 0; round < 20; ++round) Run(kernel);
  }
  std::printf("%d kernels: no errors\n", count - 2);
  return 0;
}

// Runs kernels on arrays, without TensorFlow, for legacy_opt.recorded.native.
#include <atomic>
#include <thread>

#include "update.h"

namespace {

using legacy_opt::Parallel;
using legacy_opt::Variable;
using legacy_opt::Work;

// Runs blocks in threads, which take the next block when they are free.
Parallel InThreads(int32_t most) {
  return [most](int64_t total, int64_t block, const Work& work) {
    std::atomic<int64_t> next(0);
    auto run = [&] {
      for (;;) {
        const int64_t first = next.fetch_add(block);
        if (first >= total) return;
        work(first, std::min(total, first + block));
      }
    };
    const int64_t blocks = (total + block - 1) / block;
    std::vector<std::thread> threads;
    for (int64_t i = 1; i < std::min<int64_t>(most, blocks); ++i) threads.emplace_back(run);
    run();
    for (std::thread& each : threads) each.join();
  };
}

// `slots` are in the order of the kernel's kinds of slots.
Variable VariableOf(const legacy_opt_kernel* kernel, void* value, void* const* slots,
                    const void* gradient, int64_t size) {
  Variable variable;
  variable.value = static_cast<char*>(value);
  variable.gradient = static_cast<const char*>(gradient);
  variable.size = size;
  for (int i = 0; i < kernel->slots; ++i) variable.slots[i] = *slots++;
  for (int i = 0; i < kernel->row_slots; ++i) variable.row_slots[i] = *slots++;
  for (int i = 0; i < kernel->column_slots; ++i) variable.column_slots[i] = *slots++;
  for (int i = 0; i < kernel->scalar_slots; ++i) variable.scalar_slots[i] = *slots++;
  return variable;
}

}  // namespace

#define EXPORTED extern "C" __attribute__((visibility("default")))

// Updates a whole variable, whose matrices have `rows` rows and `columns` columns.
EXPORTED void legacy_opt_update_array(const legacy_opt_kernel* kernel, void* value,
                                      void* const* slots, const void* gradient, int64_t size,
                                      int64_t rows, int64_t columns, const void* const* scalars,
                                      int32_t threads) {
  std::vector<Variable> variables{VariableOf(kernel, value, slots, gradient, size)};
  variables[0].rows = rows;
  variables[0].columns = columns;
  legacy_opt::UpdateWhole(kernel, variables, scalars, InThreads(threads));
}

// Updates rows of a variable; see UpdateRows. All ids must be numbers of rows.
EXPORTED void legacy_opt_update_rows(const legacy_opt_kernel* kernel, void* value,
                                     void* const* slots, const void* gradient, int64_t size,
                                     const int64_t* ids, int64_t count, int64_t rows,
                                     int32_t all_rows, const void* const* scalars,
                                     int32_t threads) {
  const Variable variable = VariableOf(kernel, value, slots, gradient, size);
  legacy_opt::UpdateRows(kernel, variable, ids, count, rows, scalars, all_rows != 0,
                         InThreads(threads));
}

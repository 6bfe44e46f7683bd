// Runs kernels on arrays, without TensorFlow, for legacy_opt.recorded.native.
#include <atomic>
#include <thread>

#include "update.h"

namespace {

using legacy_opt::Parallel;
using legacy_opt::Variable;
using legacy_opt::Work;

// One update of a whole variable, or of its rows. Each field has 8 bytes, so that Python can write a
// table of updates as integers.
struct Update {
  const legacy_opt_kernel* kernel;
  const void* const* scalars;
  void* value;
  const void* gradient;
  int64_t size;
  int64_t rows, columns;  // of each matrix; with `ids`, `rows` is the number of all rows
  const int64_t* ids;     // the rows to update, or null; see UpdateRows
  int64_t ids_count;
  int64_t all_rows;
  void* slots[LEGACY_OPT_MOST_SLOTS];  // in the order of the kernel's kinds of slots
};

// Calls a function once in each thread of a team: GOMP_parallel of the OpenMP of the host.
using Team = void (*)(void (*function)(void*), void* argument, unsigned threads, unsigned flags);

// Blocks of a loop. Threads take the next block when they are free.
struct Blocks {
  static void RunSome(void* blocks) { static_cast<Blocks*>(blocks)->Run(); }
  void Run() {
    for (;;) {
      const int64_t first = next.fetch_add(block);
      if (first >= total) return;
      work(first, std::min(total, first + block));
    }
  }
  std::atomic<int64_t> next;
  const int64_t total, block;
  const Work& work;
};

// Runs blocks in threads of the team or, without a team, in new threads. The idle threads of an
// OpenMP wait actively for the next work of their host, and would leave no processor to new threads.
Parallel InThreads(int32_t most, Team team) {
  return [=](int64_t total, int64_t block, const Work& work) {
    Blocks blocks{{0}, total, block, work};
    const int64_t count = std::min<int64_t>(most, (total + block - 1) / block);
    if (team && count > 1) {
      team(Blocks::RunSome, &blocks, static_cast<unsigned>(count), 0);
      return;
    }
    std::vector<std::thread> threads;
    for (int64_t i = 1; i < count; ++i) threads.emplace_back(Blocks::RunSome, &blocks);
    blocks.Run();
    for (std::thread& each : threads) each.join();
  };
}

Variable VariableOf(const Update& update) {
  const legacy_opt_kernel* const kernel = update.kernel;
  void* const* slots = update.slots;
  Variable variable;
  variable.value = static_cast<char*>(update.value);
  variable.gradient = static_cast<const char*>(update.gradient);
  variable.size = update.size;
  variable.rows = update.rows;
  variable.columns = update.columns;
  for (int i = 0; i < kernel->slots; ++i) variable.slots[i] = *slots++;
  for (int i = 0; i < kernel->row_slots; ++i) variable.row_slots[i] = *slots++;
  for (int i = 0; i < kernel->column_slots; ++i) variable.column_slots[i] = *slots++;
  for (int i = 0; i < kernel->scalar_slots; ++i) variable.scalar_slots[i] = *slots++;
  return variable;
}

// Whether a large variable: a kernel of matrices then runs in several threads.
bool IsAlone(const Update& update) {
  return !update.kernel->update && update.size > legacy_opt::kBlock;
}

// Whether two successive updates may be computed together.
bool AreAlike(const Update& one, const Update& other) {
  return one.kernel == other.kernel && one.scalars == other.scalars && !one.ids && !other.ids &&
         !IsAlone(one) && !IsAlone(other);
}

// Runs updates in their order. Ids that are not numbers of rows are ignored.
void Run(const Update* updates, int64_t count, const Parallel& parallel) {
  for (int64_t i = 0; i < count; ++i) {
    const Update& first = updates[i];
    std::vector<Variable> variables{VariableOf(first)};
    if (first.ids) {
      legacy_opt::UpdateRows(first.kernel, variables[0], first.ids, first.ids_count, first.rows,
                             first.scalars, first.all_rows != 0, parallel, true);
      continue;
    }
    while (i + 1 < count && AreAlike(first, updates[i + 1])) {
      variables.push_back(VariableOf(updates[++i]));
    }
    legacy_opt::UpdateWhole(first.kernel, variables, first.scalars, parallel);
  }
}

}  // namespace

#define EXPORTED extern "C" __attribute__((visibility("default")))

EXPORTED void legacy_opt_update(const Update* updates, int64_t count, int32_t threads, Team team) {
  Run(updates, count, InThreads(threads, team));
}

// Returns the sum over the gradients of all updates, which have the same kernel without scalars.
EXPORTED double legacy_opt_sum(const Update* updates, int64_t count, int32_t threads, Team team) {
  std::vector<Variable> gradients;
  for (int64_t i = 0; i < count; ++i) gradients.push_back(VariableOf(updates[i]));
  return legacy_opt::SumGradients(updates->kernel, gradients, InThreads(threads, team))[0];
}

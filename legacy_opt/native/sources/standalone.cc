// Runs kernels on arrays, without TensorFlow, for legacy_opt.recorded.native.
#include <thread>

#include "update.h"

namespace {

using namespace legacy_opt;

// One update of a whole variable, or of its rows: a row of a table that Python writes.
struct Update {
  const legacy_opt_kernel* kernel;
  const void* const* scalars;
  const int64_t* ids;  // the rows to update, or null; see UpdateRows
  int64_t ids_count, all_rows;
  Variable variable;  // with `ids`, its `rows` is the number of all rows
};

// Calls a function once in each thread of a team: GOMP_parallel of the OpenMP of the host.
using Team = void (*)(void (*function)(void*), void* argument, unsigned threads, unsigned flags);

// Runs blocks in threads of the team or, without a team, in new threads. The idle threads of an
// OpenMP wait actively for the next work of their host, and would leave no processor to new threads.
Parallel InThreads(int32_t most, Team team) {
  return [=](int64_t total, int64_t block, const Work& work) {
    Blocks blocks{{0}, {total}, total, block, work};
    const int64_t count = std::min<int64_t>(most, (total + block - 1) / block);
    if (team && count > 1) {
      const auto run = [](void* shared) { static_cast<Blocks*>(shared)->Run(); };
      team(run, &blocks, static_cast<unsigned>(count), 0);
      return;
    }
    std::vector<std::thread> threads;
    for (int64_t i = 1; i < count; ++i) threads.emplace_back(&Blocks::Run, &blocks);
    blocks.Run();
    for (std::thread& each : threads) each.join();
  };
}

// Whether a large variable: a kernel of matrices then runs in several threads.
bool IsAlone(const Update& update) {
  return !update.kernel->update && update.variable.size > kBlock;
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
    if (first.ids) {
      UpdateRows(first.kernel, first.variable, first.ids, first.ids_count, first.variable.rows,
                 first.scalars, first.all_rows, parallel, true);
      continue;
    }
    std::vector<Variable> variables{first.variable};
    while (i + 1 < count && AreAlike(first, updates[i + 1])) {
      variables.push_back(updates[++i].variable);
    }
    UpdateWhole(first.kernel, variables, first.scalars, parallel);
  }
}

// Returns the sum over the gradients of all updates, which have the same kernel without scalars.
double Sum(const Update* updates, int64_t count, const Parallel& parallel) {
  std::vector<Variable> gradients;
  for (int64_t i = 0; i < count; ++i) gradients.push_back(updates[i].variable);
  return SumGradients(updates->kernel, gradients, parallel)[0];
}

}  // namespace

#define EXPORTED extern "C" __attribute__((visibility("default")))

EXPORTED void legacy_opt_update(const Update* updates, int64_t count, int32_t threads, Team team) {
  Run(updates, count, InThreads(threads, team));
}

EXPORTED double legacy_opt_sum(const Update* updates, int64_t count, int32_t threads, Team team) {
  return Sum(updates, count, InThreads(threads, team));
}

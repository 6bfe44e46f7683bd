// Runs kernels in computations of XLA, for legacy_opt.recorded.jax: handlers of XLA's foreign function
// interface (FFI). Compiles with the header of each version of the interface since 0.1.
#include <deque>
#include <memory>
#include <mutex>
#include <unordered_map>

#include "standalone.cc"
#include "xla/ffi/api/c_api.h"

namespace {

// Computations contain the keys of kernels: JAX may store computations, but addresses change.
constexpr size_t kKey = 32;  // digits of a key
std::mutex kernels_mutex;
std::unordered_map<std::string, const legacy_opt_kernel*> kernels_by_key;

// Blocks of a loop that XLA's threads share. A thread that comes when no block is left may find
// `run` deleted, but does not call it.
struct PoolBlocks {
  PoolBlocks(int64_t total, int64_t block, const Work& run)
      : left(total),
        work([this, &run](int64_t first, int64_t last) {
          run(first, last);
          left -= last - first;
        }),
        blocks{{0}, total, block, work} {}

  // A task of XLA's pool, which gets a `std::shared_ptr<PoolBlocks>*`.
  static void Help(void* shared) {
    const std::unique_ptr<std::shared_ptr<PoolBlocks>> held(
        static_cast<std::shared_ptr<PoolBlocks>*>(shared));
    (*held)->blocks.Run();
  }

  std::atomic<int64_t> left;  // what has not been computed
  const Work work;
  Blocks blocks;
};

// Runs blocks in this thread and in XLA's pool. This thread never waits for tasks that have not
// begun, because all threads of the pool may run such handlers.
Parallel InPool(const XLA_FFI_CallFrame* frame) {
  return [=](int64_t total, int64_t block, const Work& work) {
    const auto shared = std::make_shared<PoolBlocks>(total, block, work);
    const int64_t threads = std::thread::hardware_concurrency();
    for (int64_t i = 1; i < std::min(threads, (total + block - 1) / block); ++i) {
      XLA_FFI_ThreadPool_Schedule_Args args{XLA_FFI_ThreadPool_Schedule_Args_STRUCT_SIZE, nullptr,
                                            frame->ctx, PoolBlocks::Help,
                                            new std::shared_ptr<PoolBlocks>(shared)};
      frame->api->XLA_FFI_ThreadPool_Schedule(&args);  // processors always have a pool
    }
    shared->blocks.Run();
    // Not a condition variable: that of new compilers needs a newer libstdc++ than TensorFlow does.
    while (shared->left) std::this_thread::yield();
  };
}

const XLA_FFI_Buffer& Argument(const XLA_FFI_CallFrame* frame, int64_t i) {
  return *static_cast<const XLA_FFI_Buffer*>(frame->args.args[i]);
}

using Kernels = std::vector<const legacy_opt_kernel*>;

// Runs the table in the attribute `updates`. Its kernels are positions in `kernels`, its addresses
// are positions of arguments plus 1. Results are in the memory of arguments.
void RunUpdates(const XLA_FFI_CallFrame* frame, const Kernels& kernels, const Parallel& parallel) {
  // Attributes are sorted by their names: keys, scalars, updates.
  const auto numbers = [frame](int i) { return static_cast<XLA_FFI_Array*>(frame->attrs.attrs[i]); };
  const auto at = [frame](const void* place) {
    const intptr_t i = reinterpret_cast<intptr_t>(place);
    return i ? Argument(frame, i - 1).data : nullptr;
  };
  const int64_t* scalar = static_cast<const int64_t*>(numbers(1)->data);
  std::vector<std::vector<const void*>> scalars(kernels.size());
  for (size_t i = 0; i < kernels.size(); ++i) {
    for (int k = 0; k < kernels[i]->scalars; ++k) {
      scalars[i].push_back(Argument(frame, *scalar++).data);
    }
  }
  std::vector<Update> updates(numbers(2)->size * sizeof(int64_t) / sizeof(Update));
  std::memcpy(updates.data(), numbers(2)->data, updates.size() * sizeof(Update));
  std::deque<std::vector<int64_t>> all_ids;
  for (Update& each : updates) {
    const size_t which = reinterpret_cast<size_t>(each.kernel);
    each.kernel = kernels[which];
    each.scalars = scalars[which].data();
    each.value = at(each.value);
    each.gradient = at(each.gradient);
    for (void*& slot : each.slots) slot = at(slot);
    if (each.ids) {
      const int32_t* const ids = static_cast<const int32_t*>(at(each.ids));
      all_ids.emplace_back(ids, ids + each.ids_count);
      all_ids.back().reserve(1);  // so that there is an address
      each.ids = all_ids.back().data();
    }
  }
  Run(updates.data(), static_cast<int64_t>(updates.size()), parallel);
}

// Writes the sum over all elements of all arguments but the first, which is the result.
void RunSum(const XLA_FFI_CallFrame* frame, const Kernels& kernels, const Parallel& parallel) {
  std::vector<Variable> gradients(frame->args.size - 1);
  for (size_t i = 0; i < gradients.size(); ++i) {
    const XLA_FFI_Buffer& buffer = Argument(frame, i + 1);
    gradients[i].value = static_cast<char*>(buffer.data);  // not used
    gradients[i].gradient = gradients[i].value;
    gradients[i].size = std::accumulate(buffer.dims, buffer.dims + buffer.rank, int64_t{1},
                                        std::multiplies<int64_t>());
  }
  *static_cast<double*>(Argument(frame, 0).data) =
      legacy_opt::SumGradients(kernels[0], gradients, parallel)[0];
}

template <typename Function>
XLA_FFI_Error* Handle(const XLA_FFI_CallFrame* frame, Function run) {
  const auto* const extension = frame->extension_start;
  if (extension && extension->type == XLA_FFI_Extension_Metadata) {  // XLA asks for the version
    auto* const metadata = reinterpret_cast<const XLA_FFI_Metadata_Extension*>(extension)->metadata;
    metadata->api_version.major_version = XLA_FFI_API_MAJOR;
    metadata->api_version.minor_version = XLA_FFI_API_MINOR;
    return nullptr;
  }
  const auto& keys = *static_cast<const XLA_FFI_ByteSpan*>(frame->attrs.attrs[0]);
  Kernels kernels;
  for (size_t i = 0; i < keys.len; i += kKey) {
    const std::string key(keys.ptr + i, kKey);
    const std::lock_guard<std::mutex> lock(kernels_mutex);
    kernels.push_back(kernels_by_key[key]);
    if (kernels.back()) continue;
    const std::string message = "legacy-opt: this process has not loaded the native kernel " + key +
                                ": trace JaxOptimizer.step in this process, too";
    XLA_FFI_Error_Create_Args args{XLA_FFI_Error_Create_Args_STRUCT_SIZE, nullptr, message.c_str(),
                                   XLA_FFI_Error_Code_FAILED_PRECONDITION};
    return frame->api->XLA_FFI_Error_Create(&args);
  }
  run(frame, kernels, InPool(frame));
  return nullptr;
}

}  // namespace

EXPORTED XLA_FFI_Error* legacy_opt_xla_update(XLA_FFI_CallFrame* frame) {
  return Handle(frame, RunUpdates);
}

EXPORTED XLA_FFI_Error* legacy_opt_xla_sum(XLA_FFI_CallFrame* frame) {
  return Handle(frame, RunSum);
}

EXPORTED void legacy_opt_register(const char* key, const legacy_opt_kernel* kernel) {
  const std::lock_guard<std::mutex> lock(kernels_mutex);
  kernels_by_key[key] = kernel;
}

// Runs kernels in computations of XLA, for legacy_opt.recorded.jax: a handler of XLA's foreign function
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

using SharedBlocks = std::shared_ptr<Blocks>;

// A task of XLA's pool. If it begins when no block is left, the work may be deleted, but is not called.
void Help(void* shared) {
  const std::unique_ptr<SharedBlocks> blocks(static_cast<SharedBlocks*>(shared));
  (*blocks)->Run();
}

// Runs blocks in this thread and in XLA's pool. This thread never waits for tasks that have not
// begun, because all threads of the pool may run such handlers.
Parallel InPool(const XLA_FFI_CallFrame* frame) {
  return [=](int64_t total, int64_t block, const Work& work) {
    const SharedBlocks shared(new Blocks{{0}, {total}, total, block, work});
    const int64_t threads = std::thread::hardware_concurrency();
    for (int64_t i = 1; i < std::min(threads, (total + block - 1) / block); ++i) {
      XLA_FFI_ThreadPool_Schedule_Args args{XLA_FFI_ThreadPool_Schedule_Args_STRUCT_SIZE, nullptr,
                                            frame->ctx, Help, new SharedBlocks(shared)};
      frame->api->XLA_FFI_ThreadPool_Schedule(&args);  // processors always have a pool
    }
    shared->Run();
    // Not a condition variable: that of new compilers needs a newer libstdc++ than TensorFlow does.
    while (shared->left) std::this_thread::yield();
  };
}

const XLA_FFI_Buffer& Argument(const XLA_FFI_CallFrame* frame, int64_t i) {
  return *static_cast<const XLA_FFI_Buffer*>(frame->args.args[i]);
}

// Replaces the position of an argument plus 1 by the address of the argument.
template <typename T>
void Resolve(const XLA_FFI_CallFrame* frame, T** place) {
  const intptr_t i = reinterpret_cast<intptr_t>(*place);
  if (i) *place = static_cast<T*>(Argument(frame, i - 1).data);
}

// Runs a table of updates. Its kernels are positions in `kernels`, its addresses are positions of
// arguments plus 1. The first arguments are the memory of the results. They are followed by the
// scalars of all kernels. If there are no values to update, the result is a sum.
void RunTable(const XLA_FFI_CallFrame* frame, const std::vector<const legacy_opt_kernel*>& kernels) {
  int64_t scalar = frame->rets.size;
  std::vector<std::vector<const void*>> scalars;
  for (const legacy_opt_kernel* each : kernels) {
    scalars.emplace_back();
    for (int i = 0; i < each->scalars; ++i) scalars.back().push_back(Argument(frame, scalar++).data);
  }
  const auto& table = *static_cast<const XLA_FFI_Array*>(frame->attrs.attrs[1]);
  std::vector<Update> updates(table.size * sizeof(int64_t) / sizeof(Update));
  std::memcpy(updates.data(), table.data, updates.size() * sizeof(Update));
  std::deque<std::vector<int64_t>> all_ids;
  for (Update& each : updates) {
    const size_t which = reinterpret_cast<size_t>(each.kernel);
    each.kernel = kernels[which];
    each.scalars = scalars[which].data();
    Resolve(frame, &each.variable.value);
    Resolve(frame, &each.variable.gradient);
    for (void*& slot : each.variable.slots) Resolve(frame, &slot);
    if (each.ids) {
      const int32_t* ids = reinterpret_cast<const int32_t*>(each.ids);
      Resolve(frame, &ids);
      all_ids.emplace_back(ids, ids + each.ids_count);
      all_ids.back().reserve(1);  // so that there is an address
      each.ids = all_ids.back().data();
    }
  }
  const int64_t count = static_cast<int64_t>(updates.size());
  if (updates[0].variable.value) {
    Run(updates.data(), count, InPool(frame));
  } else {
    *static_cast<double*>(Argument(frame, 0).data) = Sum(updates.data(), count, InPool(frame));
  }
}

}  // namespace

EXPORTED XLA_FFI_Error* legacy_opt_xla(XLA_FFI_CallFrame* frame) {
  const auto* const extension = frame->extension_start;
  if (extension && extension->type == XLA_FFI_Extension_Metadata) {  // XLA asks for the version
    auto* const metadata = reinterpret_cast<const XLA_FFI_Metadata_Extension*>(extension)->metadata;
    metadata->api_version.major_version = XLA_FFI_API_MAJOR;
    metadata->api_version.minor_version = XLA_FFI_API_MINOR;
    return nullptr;
  }
  // Attributes are sorted by their names: keys, updates.
  const auto& keys = *static_cast<const XLA_FFI_ByteSpan*>(frame->attrs.attrs[0]);
  std::vector<const legacy_opt_kernel*> kernels;
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
  RunTable(frame, kernels);
  return nullptr;
}

EXPORTED void legacy_opt_register(const char* key, const legacy_opt_kernel* kernel) {
  const std::lock_guard<std::mutex> lock(kernels_mutex);
  kernels_by_key[key] = kernel;
}

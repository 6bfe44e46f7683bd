// TensorFlow operations that run compiled rules on variables. One source for TensorFlow 1.15 to 2.x.
#include <dlfcn.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <mutex>
#include <type_traits>
#include <unordered_map>

#include "update.h"

#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/resource_mgr.h"
#include "tensorflow/core/framework/resource_var.h"
#include "tensorflow/core/framework/shape_inference.h"
#include "tensorflow/core/util/work_sharder.h"

namespace legacy_opt {

// tensorflow::Status in old versions, absl::Status in new ones.
using Status =
    std::decay<decltype(std::declval<tensorflow::OpKernelContext&>().status())>::type;
struct OwnTag {};

inline char* Data(const tensorflow::Tensor& tensor) {
  return const_cast<char*>(tensor.tensor_data().data());
}

}  // namespace legacy_opt

namespace tensorflow {

// Copies a variable's tensor if others refer to it, too. Only specializations of this function
// template may ask a Tensor for its number of references in TensorFlow 1.15.
template <typename Device, typename T>
legacy_opt::Status PrepareToUpdateVariable(OpKernelContext* context, Tensor* tensor,
                                           bool copy_on_read_mode) {
  if (copy_on_read_mode || tensor->RefCountIsOne()) return legacy_opt::Status();
  AllocatorAttributes attributes;
  attributes.set_gpu_compatible(true);
  attributes.set_nic_compatible(true);
  Tensor copy;
  auto status = context->allocate_temp(tensor->dtype(), tensor->shape(), &copy, attributes);
  if (!status.ok()) return status;
  std::memcpy(legacy_opt::Data(copy), legacy_opt::Data(*tensor), tensor->tensor_data().size());
  *tensor = copy;
  return legacy_opt::Status();
}

}  // namespace tensorflow

namespace legacy_opt {

using namespace tensorflow;

// The kernels that this process has registered or loaded, by hash.
struct Registry {
  std::mutex mutex;
  std::unordered_map<std::string, const legacy_opt_kernel*> kernels;
  std::string folder;    // the user's folder of compiled kernels
  std::string prebuilt;  // the folder of the package legacy-opt-native; "" if not installed
};

Registry& registry() {
  static Registry* const found = new Registry;  // never deleted: operations may run at exit
  return *found;
}

std::string CheckTable(const legacy_opt_kernel* kernel) {
  if (!kernel || kernel->abi != LEGACY_OPT_ABI) return "has another version";
  const int32_t slots =
      kernel->slots + kernel->row_slots + kernel->column_slots + kernel->scalar_slots;
  const bool fits = kernel->slots >= 0 && kernel->row_slots >= 0 && kernel->column_slots >= 0 &&
                    kernel->scalar_slots >= 0 && (!kernel->update) != (!kernel->update_row) &&
                    slots <= LEGACY_OPT_MOST_SLOTS && kernel->scalars >= 0 &&
                    kernel->scalars <= LEGACY_OPT_MOST_SCALARS && kernel->sums >= 0 &&
                    kernel->sums <= LEGACY_OPT_MOST_SUMS && kernel->hoisted_bytes >= 0 &&
                    kernel->hoisted_bytes <= 1 << 20 && SizeOf(kernel->dtype) > 0;
  return fits ? "" : "has an invalid table";
}

std::string Load(const std::string& path, const legacy_opt_kernel** found) {
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!library) return std::string("cannot be loaded: ") + dlerror();
  const auto* kernel =
      static_cast<const legacy_opt_kernel*>(dlsym(library, "legacy_opt_table"));
  const std::string error = CheckTable(kernel);
  if (error.empty()) *found = kernel;
  return error;
}

// Loads <folder>/<key>.so if folder and file belong to this user, and nobody else may write to them.
std::string LoadOwn(const std::string& folder, const std::string& name,
                    const legacy_opt_kernel** found) {
  if (folder.empty()) {
    return "is not registered in this process, and LEGACY_OPT_KERNELS names no folder of kernels";
  }
  const std::string path = folder + name;
  struct stat state;
  if (lstat(folder.c_str(), &state) || !S_ISDIR(state.st_mode) || state.st_uid != geteuid() ||
      (state.st_mode & 022)) {
    return "is not loaded: the folder " + folder + " does not exist, or others may write to it";
  }
  if (lstat(path.c_str(), &state)) return "is not in " + folder;
  if (!S_ISREG(state.st_mode) || state.st_uid != geteuid() || (state.st_mode & 022)) {
    return "is not loaded: others may write to " + path;
  }
  return Load(path, found);
}

// Returns an error message, or an empty string.
std::string Find(const std::string& key, const legacy_opt_kernel** found) {
  Registry& all = registry();
  std::lock_guard<std::mutex> lock(all.mutex);
  auto known = all.kernels.find(key);
  if (known != all.kernels.end()) {
    *found = known->second;
    return "";
  }
  const bool is_hash = key.size() == 32 && key.find_first_not_of("0123456789abcdef") == key.npos;
  if (!is_hash) return "legacy_opt: the kernel " + key + " is not named by a hash";
  const std::string name = "/" + key + ".so", path = all.prebuilt + name;
  std::string folder = all.folder;
  const char* given = std::getenv("LEGACY_OPT_KERNELS");
  if (folder.empty() && given) folder = given;
  const bool is_prebuilt = !all.prebuilt.empty() && !access(path.c_str(), R_OK);
  std::string error;
  if (!is_prebuilt || !Load(path, found).empty()) error = LoadOwn(folder, name, found);
  if (!error.empty()) return "legacy_opt: the kernel " + key + " " + error;
  all.kernels[key] = *found;
  return "";
}

#define LEGACY_OPT_EXPORT extern "C" __attribute__((visibility("default")))

// Makes a kernel known to this process. Returns whether its table is valid.
LEGACY_OPT_EXPORT int legacy_opt_register(const char* key, const legacy_opt_kernel* kernel) {
  if (!CheckTable(kernel).empty()) return 0;
  std::lock_guard<std::mutex> lock(registry().mutex);
  registry().kernels[key] = kernel;
  return 1;
}

// Sets the folders of the registry. An empty string is no folder.
LEGACY_OPT_EXPORT void legacy_opt_set_folders(const char* folder, const char* prebuilt) {
  std::lock_guard<std::mutex> lock(registry().mutex);
  registry().folder = folder;
  registry().prebuilt = prebuilt;
}

// The variables of one operation: locked, and referenced as long as this object lives.
class OpenVariables {
 public:
  ~OpenVariables() {
    exclusive_.clear();
    shared_.clear();
    for (Var* each : resources_) each->Unref();
  }

  // Opens the resources with the given names, or the first `count` inputs if there are no names.
  // Rows of variables are updated under shared locks, unless `use_locking`, like TensorFlow's own
  // sparse updates.
  Status Open(OpKernelContext* context, int count, const std::vector<std::string>& names,
              bool use_locking, bool by_rows) {
    std::vector<mutex*> mutexes;
    const bool are_resources = !names.empty() || context->input_dtype(0) == DT_RESOURCE;
    for (int i = 0; i < count; ++i) {
      if (are_resources) {
        Var* variable = nullptr;
        auto* const manager = context->resource_manager();
        auto status =
            names.empty() ? LookupResource(context, HandleFromInput(context, i), &variable)
                          : manager->Lookup(manager->default_container(), names[i], &variable);
        if (!status.ok()) return status;
        resources_.push_back(variable);
        mutexes.push_back(variable->mu());
      } else if (use_locking) {
        mutexes.push_back(context->input_ref_mutex(i));
      }
    }
    if (by_rows) {
      for (Var* each : resources_) {
        auto status = CopyOnRead(context, each);
        if (!status.ok()) return status;
      }
    }
    std::sort(mutexes.begin(), mutexes.end());  // all operations lock in the same order
    mutexes.erase(std::unique(mutexes.begin(), mutexes.end()), mutexes.end());
    exclusive_.reserve(mutexes.size());
    shared_.reserve(mutexes.size());
    for (mutex* each : mutexes) {
      if (by_rows && !use_locking) {
        shared_.emplace_back(*each);
      } else {
        exclusive_.emplace_back(*each);
      }
    }
    refs_.reserve(count);
    for (int i = 0; i < count; ++i) {
      if (are_resources) {
        tensors_.push_back(resources_[i]->tensor());
        if (!by_rows) {
          auto status = PrepareToUpdateVariable<OwnTag, OwnTag>(
              context, tensors_.back(), resources_[i]->copy_on_read_mode.load());
          if (!status.ok()) return status;
        }
      } else {
        refs_.push_back(context->mutable_input(i, use_locking));
        tensors_.push_back(&refs_.back());
      }
      if (!tensors_.back()->IsInitialized()) {
        return errors::FailedPrecondition("legacy_opt: the variable of input ", i,
                                          " is not initialized");
      }
    }
    return Status();
  }

  Tensor& operator[](int i) { return *tensors_[i]; }

 private:
  // Makes reads of a variable copy it, so that single rows can be written.
  static Status CopyOnRead(OpKernelContext* context, Var* variable) {
    if (variable->copy_on_read_mode.load()) return Status();
    mutex_lock lock(*variable->mu());
    if (variable->copy_on_read_mode.load()) return Status();
    auto status =
        PrepareToUpdateVariable<OwnTag, OwnTag>(context, variable->tensor(), false);
    if (status.ok()) variable->copy_on_read_mode.store(true);
    return status;
  }

  std::vector<Var*> resources_;
  std::vector<Tensor> refs_;
  std::vector<Tensor*> tensors_;
  std::vector<mutex_lock> exclusive_;
  std::vector<tf_shared_lock> shared_;
};

// What all operations that run a kernel have in common.
class KernelOp : public OpKernel {
 public:
  explicit KernelOp(OpKernelConstruction* context) : OpKernel(context) {
    std::string key;
    OP_REQUIRES_OK(context, context->GetAttr("kernel", &key));
    const std::string error = Find(key, &kernel_);
    OP_REQUIRES(context, error.empty(), errors::FailedPrecondition(error));
  }

 protected:
  int TensorsOfVariable() const {
    return 1 + kernel_->slots + kernel_->row_slots + kernel_->column_slots +
           kernel_->scalar_slots;
  }

  // Runs blocks in TensorFlow's threads, which take the next block when they are free.
  static Parallel Threads(OpKernelContext* context) {
    auto* const workers = context->device()->tensorflow_cpu_worker_threads();
    return [workers](int64_t total, int64_t block, const Work& work) {
      if (total <= block) {
        if (total > 0) work(0, total);
        return;
      }
      std::atomic<int64_t> next(0);
      const int threads = workers->num_threads;
      Shard(threads, workers->workers, threads, 1000000000, [&](int64_t, int64_t) {
        for (;;) {
          const int64_t first = next.fetch_add(block);
          if (first >= total) return;
          work(first, std::min(total, first + block));
        }
      });
    };
  }

  const legacy_opt_kernel* kernel_ = nullptr;
};

// What the operations that update variables have in common.
class UpdateOp : public KernelOp {
 public:
  explicit UpdateOp(OpKernelConstruction* context) : KernelOp(context) {
    OP_REQUIRES_OK(context, context->GetAttr("use_locking", &use_locking_));
  }

 protected:

  // Reads the scalars, which begin at input `first`.
  Status Scalars(OpKernelContext* context, int first, int count,
                 std::vector<const void*>* found) const {
    bool fit = count == kernel_->scalars;
    for (int i = 0; fit && i < count; ++i) {
      const Tensor& given = context->input(first + i);
      fit = given.NumElements() == 1 && given.dtype() == kernel_->scalar_dtypes[i];
      found->push_back(Data(given));
    }
    found->push_back(nullptr);
    return fit ? Status() : errors::InvalidArgument("legacy_opt: scalars do not fit the kernel");
  }

  // Checks the tensors of a variable, which begin at `first`, and fills in their addresses.
  Status Fill(OpenVariables* tensors, int first, int64_t rows, Variable* variable) const {
    const Tensor& value = (*tensors)[first];
    variable->value = Data(value);
    variable->size = value.NumElements();
    bool fit = value.dtype() == kernel_->dtype;
    int64_t columns = 0;
    if (kernel_->update_row) {
      const int axes = value.dims();
      if (axes < 2) return errors::InvalidArgument("legacy_opt: the kernel needs matrices");
      variable->rows = value.dim_size(axes - 2);
      variable->columns = value.dim_size(axes - 1);
      rows = variable->size ? variable->size / variable->columns : 0;
      columns = variable->size ? variable->size / variable->rows : 0;
    }
    void** const places[] = {variable->slots, variable->row_slots, variable->column_slots,
                             variable->scalar_slots};
    const int counts[] = {kernel_->slots, kernel_->row_slots, kernel_->column_slots,
                          kernel_->scalar_slots};
    const int64_t sizes[] = {variable->size, rows, columns, 1};
    for (int kind = 0, i = 0; kind < 4; ++kind) {
      for (int k = 0; k < counts[kind]; ++k, ++i) {
        const Tensor& slot = (*tensors)[first + 1 + i];
        // Of row slots and scalar slots, the first elements are used.
        const bool is_large = kind ? slot.NumElements() >= sizes[kind]
                                   : slot.NumElements() == sizes[kind];
        fit = fit && is_large && slot.dtype() == kernel_->slot_dtypes[i];
        places[kind][k] = Data(slot);
      }
    }
    return fit ? Status() : errors::InvalidArgument("legacy_opt: slots do not fit the kernel");
  }

  // Sets the gradient; copies it if it overlaps a variable or slot that is written.
  Status Gradient(OpKernelContext* context, OpenVariables* tensors, int first,
                  const Tensor& gradient, Variable* variable, std::vector<Tensor>* copies) const {
    variable->gradient = Data(gradient);
    const char* const begin = Data(gradient);
    const char* const end = begin + gradient.tensor_data().size();
    bool overlaps = false;
    for (int i = 0; i < TensorsOfVariable(); ++i) {
      const char* const other = Data((*tensors)[first + i]);
      overlaps |= begin < other + (*tensors)[first + i].tensor_data().size() && other < end;
    }
    if (!overlaps) return Status();
    Tensor copy;
    auto status = context->allocate_temp(gradient.dtype(), gradient.shape(), &copy);
    if (!status.ok()) return status;
    std::memcpy(Data(copy), begin, end - begin);
    variable->gradient = Data(copy);
    copies->push_back(copy);
    return Status();
  }

  bool use_locking_ = false;
};

class WholeOp : public UpdateOp {
 public:
  explicit WholeOp(OpKernelConstruction* context) : UpdateOp(context) {
    OP_REQUIRES_OK(context, context->GetAttr("N", &count_));
    if (context->HasAttr("names")) {
      OP_REQUIRES_OK(context, context->GetAttr("names", &names_));
      if (!context->status().ok()) return;
      OP_REQUIRES(context, names_.size() == size_t(count_) * TensorsOfVariable(),
                  errors::InvalidArgument("legacy_opt: names do not fit the kernel"));
    }
  }

  void Compute(OpKernelContext* context) override {
    const int each = TensorsOfVariable(), opened = count_ * each;
    const int scalar = names_.empty() ? opened : 0;  // the first input that is a scalar
    const int gradients = context->num_inputs() - count_;
    OpenVariables tensors;
    std::vector<const void*> scalars;
    std::vector<Tensor> copies;
    std::vector<Variable> variables(count_);
    OP_REQUIRES_OK(context, tensors.Open(context, opened, names_, use_locking_, false));
    OP_REQUIRES_OK(context, Scalars(context, scalar, gradients - scalar, &scalars));
    for (int i = 0; i < count_; ++i) {
      const Tensor& gradient = context->input(gradients + i);
      OP_REQUIRES_OK(context, Fill(&tensors, i * each, 0, &variables[i]));
      OP_REQUIRES(context,
                  gradient.shape() == tensors[i * each].shape() &&
                      gradient.dtype() == kernel_->dtype,
                  errors::InvalidArgument("legacy_opt: the gradient does not fit the variable"));
      OP_REQUIRES_OK(context,
                     Gradient(context, &tensors, i * each, gradient, &variables[i], &copies));
    }
    UpdateWhole(kernel_, variables, scalars.data(), Threads(context));
  }

 private:
  int count_ = 0;
  std::vector<std::string> names_;  // of the variables; empty if these are inputs
};

template <typename Id>
class RowsOp : public UpdateOp {
 public:
  explicit RowsOp(OpKernelConstruction* context) : UpdateOp(context) {
    OP_REQUIRES_OK(context, context->GetAttr("all_rows", &all_rows_));
  }

  void Compute(OpKernelContext* context) override {
    const int opened = TensorsOfVariable(), last = context->num_inputs() - 1;
    OpenVariables tensors;
    std::vector<const void*> scalars;
    std::vector<Tensor> copies;
    Variable variable;
    const bool writes_all = all_rows_ || kernel_->fade;
    OP_REQUIRES_OK(context, tensors.Open(context, opened, {}, use_locking_, !writes_all));
    OP_REQUIRES_OK(context, Scalars(context, opened, last - 1 - opened, &scalars));
    const Tensor& gradient = context->input(last - 1);
    const Tensor& ids = context->input(last);
    const Tensor& value = tensors[0];
    const int64_t count = ids.NumElements(), rows = value.dims() ? value.dim_size(0) : 0;
    bool fits = value.dims() > 0 && gradient.dims() == value.dims() &&
                gradient.dim_size(0) == count && gradient.dtype() == kernel_->dtype;
    for (int axis = 1; fits && axis < value.dims(); ++axis) {
      fits = gradient.dim_size(axis) == value.dim_size(axis);
    }
    OP_REQUIRES(context, fits,
                errors::InvalidArgument("legacy_opt: the gradient does not fit the variable"));
    OP_REQUIRES_OK(context, Fill(&tensors, 0, rows, &variable));
    OP_REQUIRES_OK(context, Gradient(context, &tensors, 0, gradient, &variable, &copies));
    const std::string error =
        UpdateRows(kernel_, variable, reinterpret_cast<const Id*>(Data(ids)), count, rows,
                   scalars.data(), all_rows_, Threads(context));
    OP_REQUIRES(context, error.empty(), errors::InvalidArgument(error));
  }

 private:
  bool all_rows_ = false;
};

// Returns the sums that a kernel computes, over all elements of all gradients.
class SumsOp : public KernelOp {
 public:
  explicit SumsOp(OpKernelConstruction* context) : KernelOp(context) {
    if (!context->status().ok()) return;
    OP_REQUIRES(context,
                kernel_->update && kernel_->sums && !kernel_->scalars && TensorsOfVariable() == 1,
                errors::InvalidArgument("legacy_opt: the kernel has no sums over gradients"));
  }

  void Compute(OpKernelContext* context) override {
    std::vector<Variable> gradients(context->num_inputs());
    for (int i = 0; i < context->num_inputs(); ++i) {
      const Tensor& gradient = context->input(i);
      OP_REQUIRES(context, gradient.dtype() == kernel_->dtype,
                  errors::InvalidArgument("legacy_opt: the gradient does not fit the kernel"));
      gradients[i].value = Data(gradient);  // not read by the sums
      gradients[i].gradient = Data(gradient);
      gradients[i].size = gradient.NumElements();
    }
    const std::vector<double> sums = SumGradients(kernel_, gradients, Threads(context));
    Tensor* found = nullptr;
    const int64_t count = sums.size();
    OP_REQUIRES_OK(context, context->allocate_output(0, TensorShape({count}), &found));
    std::memcpy(Data(*found), sums.data(), count * sizeof(double));
  }
};

// Asks the process in which it runs whether it has a kernel, or can load it.
class HasKernelOp : public OpKernel {
 public:
  explicit HasKernelOp(OpKernelConstruction* context) : OpKernel(context) {
    OP_REQUIRES_OK(context, context->GetAttr("kernel", &key_));
  }

  void Compute(OpKernelContext* context) override {
    Tensor* found = nullptr;
    OP_REQUIRES_OK(context, context->allocate_output(0, TensorShape({}), &found));
    const legacy_opt_kernel* kernel = nullptr;
    found->scalar<bool>()() = Find(key_, &kernel).empty();
  }

 private:
  std::string key_;
};

#define LEGACY_OPT_ATTRIBUTES                                              \
  Attr("T: {half, bfloat16, float, double}")                               \
      .Attr("S: list(type) >= 0")                                          \
      .Attr("kernel: string")                                              \
      .Attr("use_locking: bool = false")                                   \
      .SetIsStateful()                                                     \
      .SetShapeFn([](shape_inference::InferenceContext*) { return Status(); })

REGISTER_OP("LegacyOptUpdate")
    .Input("variables: M * resource")
    .Input("scalars: S")
    .Input("gradients: N * T")
    .Attr("M: int >= 1")
    .Attr("N: int >= 1")
    .LEGACY_OPT_ATTRIBUTES;
// Without an input per variable, TensorFlow does not run a VarHandleOp per variable in each step.
REGISTER_OP("LegacyOptUpdateNamed")
    .Input("scalars: S")
    .Input("gradients: N * T")
    .Attr("names: list(string) >= 1")
    .Attr("N: int >= 1")
    .LEGACY_OPT_ATTRIBUTES;
REGISTER_KERNEL_BUILDER(Name("LegacyOptUpdateNamed").Device(DEVICE_CPU), WholeOp);
REGISTER_OP("LegacyOptUpdateRef")
    .Input("variables: Ref(V)")
    .Input("scalars: S")
    .Input("gradients: N * T")
    .Attr("V: list(type) >= 1")
    .Attr("N: int >= 1")
    .LEGACY_OPT_ATTRIBUTES;
REGISTER_OP("LegacyOptUpdateRows")
    .Input("variables: M * resource")
    .Input("scalars: S")
    .Input("gradient: T")
    .Input("ids: I")
    .Attr("M: int >= 1")
    .Attr("I: {int32, int64}")
    .Attr("all_rows: bool = false")
    .LEGACY_OPT_ATTRIBUTES;
REGISTER_OP("LegacyOptUpdateRowsRef")
    .Input("variables: Ref(V)")
    .Input("scalars: S")
    .Input("gradient: T")
    .Input("ids: I")
    .Attr("V: list(type) >= 1")
    .Attr("I: {int32, int64}")
    .Attr("all_rows: bool = false")
    .LEGACY_OPT_ATTRIBUTES;

REGISTER_OP("LegacyOptSums")
    .Input("gradients: N * T")
    .Output("sums: double")
    .Attr("N: int >= 1")
    .Attr("T: {half, bfloat16, float, double}")
    .Attr("kernel: string")
    .SetShapeFn([](shape_inference::InferenceContext*) { return Status(); });
REGISTER_KERNEL_BUILDER(Name("LegacyOptSums").Device(DEVICE_CPU), SumsOp);

REGISTER_OP("LegacyOptHasKernel")
    .Output("found: bool")
    .Attr("kernel: string")
    .SetIsStateful()
    .SetShapeFn([](shape_inference::InferenceContext*) { return Status(); });
REGISTER_KERNEL_BUILDER(Name("LegacyOptHasKernel").Device(DEVICE_CPU), HasKernelOp);

// TensorFlow's name for 64 bits is long long in old versions, and int64_t in new ones.
using Int64 = EnumToDataType<DT_INT64>::Type;

#define LEGACY_OPT_KERNELS(suffix)                                                              \
  REGISTER_KERNEL_BUILDER(Name("LegacyOptUpdate" suffix).Device(DEVICE_CPU), WholeOp);          \
  REGISTER_KERNEL_BUILDER(                                                                      \
      Name("LegacyOptUpdateRows" suffix).Device(DEVICE_CPU).TypeConstraint<int32>("I"),         \
      RowsOp<int32>);                                                                           \
  REGISTER_KERNEL_BUILDER(                                                                      \
      Name("LegacyOptUpdateRows" suffix).Device(DEVICE_CPU).TypeConstraint<Int64>("I"),         \
      RowsOp<Int64>)
LEGACY_OPT_KERNELS("");
LEGACY_OPT_KERNELS("Ref");

}  // namespace legacy_opt

// TensorFlow operations that run compiled rules on variables. One source for TensorFlow 1.15 to 2.x.
#include <dlfcn.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <cstdlib>
#include <mutex>
#include <type_traits>
#include <unordered_map>

#include "checks.h"

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

std::string Load(const std::string& path, const legacy_opt_kernel** found) {
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!library) return std::string("cannot be loaded: ") + dlerror();
  const auto* kernel =
      static_cast<const legacy_opt_kernel*>(dlsym(library, "legacy_opt_table"));
  const std::string error = CheckTable(kernel);
  if (error.empty()) *found = kernel;
  return error;
}

// Loads a file of a folder if folder and file belong to this user, and nobody else may write to them.
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
  struct utsname machine;
  uname(&machine);
  const std::string name = "/" + key + "-" + machine.machine + ".so", path = all.prebuilt + name;
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

// Returns a Status with the message of a check; OK for an empty message.
Status AsStatus(const std::string& message) {
  return message.empty() ? Status() : Status(errors::InvalidArgument("legacy_opt: ", message));
}

// The variables of one operation: locked, and referenced as long as this object lives.
class OpenVariables {
 public:
  ~OpenVariables() {
    Unlock();
    for (Var* each : resources_) each->Unref();
  }

  // Opens the resources with the given names, or the first `count` inputs if there are no names.
  // Rows of variables are updated under shared locks, unless `use_locking`, like TensorFlow's own
  // sparse updates. `check` gets the locked variables, before any of them is copied for writing.
  template <typename Check>
  Status Open(OpKernelContext* context, int count, const std::vector<std::string>& names,
              bool use_locking, bool by_rows, const Check& check) {
    are_resources_ = !names.empty() || context->input_dtype(0) == DT_RESOURCE;
    auto status = are_resources_ ? Find(context, count, names) : Status();
    if (!status.ok()) return status;
    mutexes_.reserve(count);
    for (Var* each : resources_) mutexes_.push_back(each->mu());
    for (int i = 0; !are_resources_ && use_locking && i < count; ++i) {
      mutexes_.push_back(context->input_ref_mutex(i));
    }
    status = AsStatus(SortDistinct(&mutexes_));  // all operations lock in the same order
    if (!status.ok()) return status;
    if (by_rows && !CopyOnRead()) {
      status = LockAndCheck(context, count, true, use_locking, check);
      if (status.ok()) status = Unshare(context);
      if (!status.ok()) return status;
      for (Var* each : resources_) each->copy_on_read_mode.store(true);
      Unlock();
    }
    status = LockAndCheck(context, count, !by_rows || use_locking, use_locking, check);
    return status.ok() && !by_rows ? Unshare(context) : status;
  }

  Tensor* const* tensors(int first) const { return &tensors_[first]; }

  // Copies a tensor if it may be memory of a variable that is written. The value of a resource
  // variable is not shared with a tensor while it is written.
  Status CopyIfShared(OpKernelContext* context, Tensor* tensor) {
    if (are_resources_) return Status();
    if (!memory_.Overlaps(*tensor)) return Status();
    Tensor copy;
    auto status = context->allocate_temp(tensor->dtype(), tensor->shape(), &copy);
    if (!status.ok()) return status;
    std::memcpy(Data(copy), Data(*tensor), tensor->tensor_data().size());
    *tensor = copy;
    return Status();
  }

 private:
  Status Find(OpKernelContext* context, int count, const std::vector<std::string>& names) {
    auto* const manager = context->resource_manager();
    resources_.reserve(count);
    for (int i = 0; i < count; ++i) {
      Var* variable = nullptr;
      if (names.empty() && context->input(i).NumElements() != 1) {
        return errors::InvalidArgument("legacy_opt: input ", i, " is not a handle of one variable");
      }
      auto status =
          names.empty() ? LookupResource(context, HandleFromInput(context, i), &variable)
                        : manager->Lookup(manager->default_container(), names[i], &variable);
      if (!status.ok()) return status;
      resources_.push_back(variable);
    }
    return Status();
  }

  template <typename Check>
  Status LockAndCheck(OpKernelContext* context, int count, bool exclusive, bool use_locking,
                      const Check& check) {
    (exclusive ? exclusive_.reserve(mutexes_.size()) : shared_.reserve(mutexes_.size()));
    for (mutex* each : mutexes_) {
      if (exclusive) {
        exclusive_.emplace_back(*each);
      } else {
        shared_.emplace_back(*each);
      }
    }
    tensors_.clear();
    tensors_.reserve(count);
    if (!are_resources_) refs_.reserve(count);
    for (int i = 0; i < count; ++i) {
      if (are_resources_) {
        tensors_.push_back(resources_[i]->tensor());
      } else {
        refs_.push_back(context->mutable_input(i, use_locking));
        tensors_.push_back(&refs_.back());
      }
      if (!tensors_.back()->IsInitialized()) {
        return errors::FailedPrecondition("legacy_opt: the variable of input ", i,
                                          " is not initialized");
      }
    }
    std::string error = check(tensors_);
    if (error.empty() && !are_resources_) error = memory_.Set(tensors_);
    return AsStatus(error);
  }

  // Copies the values that others refer to, too.
  Status Unshare(OpKernelContext* context) {
    for (Var* each : resources_) {
      auto status = PrepareToUpdateVariable<OwnTag, OwnTag>(context, each->tensor(),
                                                            each->copy_on_read_mode.load());
      if (!status.ok()) return status;
    }
    return Status();
  }

  // Whether reads of the variables copy them, so that single rows can be written.
  bool CopyOnRead() const {
    bool all = true;
    for (Var* each : resources_) all = all && each->copy_on_read_mode.load();
    return all;
  }

  void Unlock() {
    exclusive_.clear();
    shared_.clear();
  }

  bool are_resources_ = false;
  std::vector<Var*> resources_;
  std::vector<Tensor> refs_;
  std::vector<Tensor*> tensors_;
  std::vector<mutex*> mutexes_;
  std::vector<mutex_lock> exclusive_;
  std::vector<tf_shared_lock> shared_;
  Memory memory_;  // of ref variables
};

// What all operations that run a kernel have in common.
class KernelOp : public OpKernel {
 public:
  explicit KernelOp(OpKernelConstruction* context) : OpKernel(context) {
    std::string key;
    OP_REQUIRES_OK(context, context->GetAttr("kernel", &key));
    const std::string error = legacy_opt::Find(key, &kernel_);
    OP_REQUIRES(context, error.empty(), errors::FailedPrecondition(error));
  }

 protected:
  // Checks the first `count` inputs. The arguments of variables are as in `Inputs`.
  Status CheckInputs(OpKernelConstruction* context, int count, int variables, int gradients) const {
    std::vector<int32_t> dtypes;
    for (int i = 0; i < count; ++i) dtypes.push_back(BaseType(context->input_type(i)));
    const bool are_resources = dtypes[0] == DT_RESOURCE;
    return AsStatus(legacy_opt::CheckInputs(kernel_, {variables, are_resources, gradients}, dtypes));
  }

  // Runs blocks in TensorFlow's threads.
  static Parallel Threads(OpKernelContext* context) {
    auto* const workers = context->device()->tensorflow_cpu_worker_threads();
    return [workers](int64_t total, int64_t block, const Work& work) {
      if (total <= block) {
        if (total > 0) work(0, total);
        return;
      }
      Blocks blocks{{0}, {total}, total, block, work};
      const int threads = workers->num_threads;
      Shard(threads, workers->workers, threads, 1000000000,
            [&](int64_t, int64_t) { blocks.Run(); });
    };
  }

  const legacy_opt_kernel* kernel_ = nullptr;
};

// What the operations that update variables have in common.
class UpdateOp : public KernelOp {
 public:
  explicit UpdateOp(OpKernelConstruction* context) : KernelOp(context) {
    if (!context->status().ok()) return;
    OP_REQUIRES_OK(context, context->GetAttr("use_locking", &use_locking_));
  }

 protected:
  // Reads the scalars, which begin at input `first`.
  Status Scalars(OpKernelContext* context, int first, std::vector<const void*>* found) const {
    std::string error;
    for (int i = 0; i < kernel_->scalars && error.empty(); ++i) {
      const Tensor& given = context->input(first + i);
      error = CheckScalar(given);
      found->push_back(Data(given));
    }
    found->push_back(nullptr);
    return AsStatus(error);
  }

  bool use_locking_ = false;
};

class WholeOp : public UpdateOp {
 public:
  explicit WholeOp(OpKernelConstruction* context) : UpdateOp(context) {
    if (!context->status().ok()) return;
    OP_REQUIRES_OK(context, context->GetAttr("N", &count_));
    OP_REQUIRES_OK(context, AsStatus(CheckWhole(kernel_)));
    const size_t opened = static_cast<size_t>(count_) * TensorsOfVariable(kernel_);
    if (context->HasAttr("names")) {
      OP_REQUIRES_OK(context, context->GetAttr("names", &names_));
      OP_REQUIRES(context, names_.size() == opened,
                  errors::InvalidArgument("legacy_opt: there are ", names_.size(),
                                          " names, but the kernel needs ", opened));
    }
    const int variables = names_.empty() ? count_ : 0;
    OP_REQUIRES_OK(context, CheckInputs(context, context->num_inputs(), variables, count_));
  }

  void Compute(OpKernelContext* context) override {
    const int each = TensorsOfVariable(kernel_), opened = count_ * each;
    const int gradients = context->num_inputs() - count_;  // the first input that is a gradient
    OpenVariables found;
    std::vector<const void*> scalars;
    OP_REQUIRES_OK(context, Scalars(context, names_.empty() ? opened : 0, &scalars));
    auto check = [&](const std::vector<Tensor*>& tensors) {
      std::string error;
      for (int i = 0; i < count_ && error.empty(); ++i) {
        error = CheckVariable(kernel_, &tensors[i * each]);
        const Tensor& gradient = context->input(gradients + i);
        if (error.empty()) error = CheckGradient(*tensors[i * each], gradient);
      }
      return error;
    };
    OP_REQUIRES_OK(context, found.Open(context, opened, names_, use_locking_, false, check));
    std::vector<Tensor> values;  // of the gradients
    std::vector<Variable> variables;
    values.reserve(count_);
    variables.reserve(count_);
    for (int i = 0; i < count_; ++i) {
      values.push_back(context->input(gradients + i));
      OP_REQUIRES_OK(context, found.CopyIfShared(context, &values.back()));
      variables.push_back(VariableOf(kernel_, found.tensors(i * each)));
      variables.back().gradient = Data(values.back());
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
    if (!context->status().ok()) return;
    OP_REQUIRES_OK(context, context->GetAttr("all_rows", &all_rows_));
    OP_REQUIRES_OK(context, AsStatus(CheckByRows(kernel_, all_rows_)));
    OP_REQUIRES_OK(context, CheckInputs(context, context->num_inputs() - 1, 1, 1));
  }

  void Compute(OpKernelContext* context) override {
    const int opened = TensorsOfVariable(kernel_), last = context->num_inputs() - 1;
    const bool writes_all = all_rows_ || kernel_->fade;
    Tensor gradient = context->input(last - 1);
    const Tensor& ids = context->input(last);
    OpenVariables found;
    std::vector<const void*> scalars;
    OP_REQUIRES_OK(context, Scalars(context, opened, &scalars));
    auto check = [&](const std::vector<Tensor*>& tensors) {
      const std::string error = CheckSparseGradient(*tensors[0], gradient, ids);
      return error.empty() ? CheckVariable(kernel_, tensors.data()) : error;
    };
    OP_REQUIRES_OK(context, found.Open(context, opened, {}, use_locking_, !writes_all, check));
    OP_REQUIRES_OK(context, found.CopyIfShared(context, &gradient));
    Variable variable = VariableOf(kernel_, found.tensors(0));
    variable.gradient = Data(gradient);
    const std::string error = UpdateRows(
        kernel_, variable, reinterpret_cast<const Id*>(Data(ids)), ids.NumElements(),
        (*found.tensors(0))->dim_size(0), scalars.data(), all_rows_, Threads(context));
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
    OP_REQUIRES_OK(context, AsStatus(CheckSums(kernel_)));
    const int count = context->num_inputs();
    OP_REQUIRES_OK(context, CheckInputs(context, count, 0, count));
  }

  void Compute(OpKernelContext* context) override {
    std::vector<Variable> gradients(context->num_inputs());
    for (int i = 0; i < context->num_inputs(); ++i) {
      const Tensor& gradient = context->input(i);
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

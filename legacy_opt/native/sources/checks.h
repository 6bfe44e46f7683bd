// Checks kernels, and the inputs of operations before anything is opened or written. Free of
// TensorFlow, so that it can be tested alone. `Tensor` is tensorflow::Tensor, or a class with the
// same methods. The checks return an error message, or an empty string.
#ifndef LEGACY_OPT_CHECKS_H_
#define LEGACY_OPT_CHECKS_H_

#include <array>
#include <utility>

#include "update.h"

namespace legacy_opt {

constexpr int32_t kResource = 20;  // tensorflow::DT_RESOURCE

// Returns how many tensors belong to a variable: itself and its slots.
inline int TensorsOfVariable(const legacy_opt_kernel* kernel) {
  return 1 + kernel->slots + kernel->row_slots + kernel->column_slots + kernel->scalar_slots;
}

namespace internal {

inline bool IsBetween(int32_t number, int32_t least, int32_t most) {
  return least <= number && number <= most;
}

inline bool CountsFit(const legacy_opt_kernel* kernel) {
  int32_t slots = 0;
  for (int32_t each : {kernel->slots, kernel->row_slots, kernel->column_slots, kernel->scalar_slots}) {
    if (!IsBetween(each, 0, LEGACY_OPT_MOST_SLOTS - slots)) return false;
    slots += each;
  }
  bool fit = IsBetween(kernel->scalars, 0, LEGACY_OPT_MOST_SCALARS) && SizeOf(kernel->dtype);
  for (int32_t each : {kernel->sums, kernel->row_sums, kernel->column_sums}) {
    fit = fit && IsBetween(each, 0, LEGACY_OPT_MOST_SUMS);
  }
  for (int32_t each : {kernel->hoisted_bytes, kernel->row_bytes, kernel->column_values}) {
    fit = fit && IsBetween(each, 0, 1 << 20);
  }
  for (int i = 0; fit && i < slots; ++i) fit = SizeOf(kernel->slot_dtypes[i]) > 0;
  for (int i = 0; fit && i < kernel->scalars; ++i) fit = SizeOf(kernel->scalar_dtypes[i]) > 0;
  return fit;
}

inline bool FunctionsFit(const legacy_opt_kernel* kernel) {
  if (!kernel->prepare || !kernel->add || (kernel->scalar_slots && !kernel->finish)) return false;
  if (kernel->sums && !kernel->after_sums) return false;
  if (kernel->update) {
    return !kernel->update_row && !kernel->column_slots && !kernel->row_sums &&
           !kernel->column_sums && (!kernel->row_slots || kernel->prepare_row) &&
           (!kernel->sums || kernel->reduce);
  }
  return kernel->update_row && kernel->after_rows && kernel->after_columns &&
         (!(kernel->row_sums || kernel->column_sums) || kernel->reduce_lines) &&
         (!kernel->sums || kernel->reduce_row);
}

template <typename Tensor>
std::string ShapeOf(const Tensor& tensor) {
  std::string text;
  for (int i = 0; i < tensor.dims(); ++i) text += (i ? "," : "") + std::to_string(tensor.dim_size(i));
  return "[" + text + "]";
}

// Whether the axes from `first` on have the same sizes.
template <typename Tensor>
bool SameShape(const Tensor& a, const Tensor& b, int first = 0) {
  bool same = a.dims() == b.dims();
  for (int axis = first; same && axis < a.dims(); ++axis) same = a.dim_size(axis) == b.dim_size(axis);
  return same;
}

// Returns the number of elements of a slot of each kind that is used.
template <typename Tensor>
std::array<int64_t, 4> SizesOfSlots(const legacy_opt_kernel* kernel, const Tensor& value) {
  const int64_t size = value.NumElements(), axes = value.dims();
  if (!size || !axes) return {{size, 0, 0, 1}};
  if (!kernel->update_row) return {{size, value.dim_size(0), 0, 1}};
  return {{size, size / value.dim_size(axes - 1), size / value.dim_size(axes - 2), 1}};
}

}  // namespace internal

inline std::string CheckTable(const legacy_opt_kernel* kernel) {
  if (!kernel || kernel->abi != LEGACY_OPT_ABI) return "has another version";
  const bool fits = internal::CountsFit(kernel) && internal::FunctionsFit(kernel);
  return fits ? "" : "has an invalid table";
}

// Checks that a kernel can update whole variables.
inline std::string CheckWhole(const legacy_opt_kernel* kernel) {
  return kernel->update && kernel->row_slots ? "the kernel needs a sparse gradient" : "";
}

// Checks that a kernel can update variables by sparse gradients.
inline std::string CheckByRows(const legacy_opt_kernel* kernel, bool all_rows) {
  if (!kernel->update || kernel->sums) return "the kernel needs a dense gradient";
  const bool is_sparse = kernel->row_slots || kernel->fade;
  return all_rows && is_sparse ? "the kernel updates only the rows of a sparse gradient" : "";
}

// Checks that a kernel can compute sums over gradients alone.
inline std::string CheckSums(const legacy_opt_kernel* kernel) {
  const bool can = kernel->update && kernel->sums && !kernel->scalars && TensorsOfVariable(kernel) == 1;
  return can ? "" : "the kernel has no sums over gradients";
}

// What the inputs of an operation are. First come the variables, each followed by its slots.
struct Inputs {
  int variables;  // how many there are, without slots; 0 if they are not inputs
  bool are_resources;
  int gradients;
};

// Checks the number and the dtypes of the inputs, but for the ids of rows.
inline std::string CheckInputs(const legacy_opt_kernel* kernel, const Inputs& inputs,
                               const std::vector<int32_t>& given) {
  std::vector<int32_t> expected;
  for (int i = 0; i < inputs.variables; ++i) {
    expected.push_back(kernel->dtype);
    const int32_t* slots = kernel->slot_dtypes;
    expected.insert(expected.end(), slots, slots + TensorsOfVariable(kernel) - 1);
  }
  if (inputs.are_resources) std::fill(expected.begin(), expected.end(), kResource);
  expected.insert(expected.end(), kernel->scalar_dtypes, kernel->scalar_dtypes + kernel->scalars);
  expected.insert(expected.end(), inputs.gradients, kernel->dtype);
  if (given.size() != expected.size()) {
    return "there are " + std::to_string(given.size()) + " inputs without ids, but the kernel needs " +
           std::to_string(expected.size());
  }
  for (size_t i = 0; i < given.size(); ++i) {
    if (given[i] != expected[i]) {
      return "input " + std::to_string(i) + " has the dtype " + std::to_string(given[i]) +
             ", but the kernel needs " + std::to_string(expected[i]);
    }
  }
  return "";
}

constexpr const char* kUsedTwice = "a variable is used twice, perhaps as its own slot";

// Sorts pointers that identify variables, and checks that no variable is used twice.
template <typename Identity>
std::string SortDistinct(std::vector<Identity*>* identities) {
  std::sort(identities->begin(), identities->end());
  const auto twice = std::adjacent_find(identities->begin(), identities->end());
  return twice == identities->end() ? "" : kUsedTwice;
}

template <typename Tensor>
std::string CheckScalar(const Tensor& scalar) {
  return scalar.NumElements() == 1 ? "" : "a scalar has the shape " + internal::ShapeOf(scalar);
}

// Checks a variable and its slots, which follow it.
template <typename Tensor>
std::string CheckVariable(const legacy_opt_kernel* kernel, Tensor* const* tensors) {
  const Tensor& value = *tensors[0];
  for (int i = 0; i < TensorsOfVariable(kernel); ++i) {
    const int32_t expected = i ? kernel->slot_dtypes[i - 1] : kernel->dtype;
    if (tensors[i]->dtype() != expected) {
      return "a variable or slot has the dtype " + std::to_string(tensors[i]->dtype()) +
             ", but the kernel needs " + std::to_string(expected);
    }
  }
  if (kernel->update_row && value.dims() < 2) {
    return "the kernel needs matrices, but the variable has the shape " + internal::ShapeOf(value);
  }
  const std::array<int64_t, 4> sizes = internal::SizesOfSlots(kernel, value);
  const int counts[] = {kernel->slots, kernel->row_slots, kernel->column_slots, kernel->scalar_slots};
  for (int kind = 0, i = 1; kind < 4; ++kind) {
    for (int k = 0; k < counts[kind]; ++k, ++i) {
      const Tensor& slot = *tensors[i];
      // Of slots with fewer elements than the variable, the first elements are used.
      if (kind ? slot.NumElements() < sizes[kind] : !internal::SameShape(value, slot)) {
        return "a slot of the shape " + internal::ShapeOf(slot) + " does not fit the variable of " +
               internal::ShapeOf(value);
      }
    }
  }
  return "";
}

template <typename Tensor>
std::string CheckGradient(const Tensor& value, const Tensor& gradient) {
  if (internal::SameShape(value, gradient)) return "";
  return "a gradient of the shape " + internal::ShapeOf(gradient) + " does not fit the variable of " +
         internal::ShapeOf(value);
}

// Checks the gradient of some rows, and the shape of their ids.
template <typename Tensor>
std::string CheckSparseGradient(const Tensor& value, const Tensor& gradient, const Tensor& ids) {
  if (value.dims() > 0 && ids.dims() == 1 && gradient.dims() > 0 &&
      gradient.dim_size(0) == ids.dim_size(0) && internal::SameShape(value, gradient, 1)) {
    return "";
  }
  return "a gradient of the shape " + internal::ShapeOf(gradient) + " and ids of the shape " +
         internal::ShapeOf(ids) + " do not fit the variable of " + internal::ShapeOf(value);
}

template <typename Tensor>
char* Data(const Tensor& tensor) {
  return const_cast<char*>(tensor.tensor_data().data());
}

// Returns the addresses and sizes of a variable that `CheckVariable` has checked.
template <typename Tensor>
Variable VariableOf(const legacy_opt_kernel* kernel, Tensor* const* tensors) {
  const Tensor& value = *tensors[0];
  Variable variable;
  variable.value = Data(value);
  variable.size = value.NumElements();
  if (kernel->update_row) {
    variable.rows = value.dim_size(value.dims() - 2);
    variable.columns = value.dim_size(value.dims() - 1);
  }
  for (int i = 1; i < TensorsOfVariable(kernel); ++i) variable.slots[i - 1] = Data(*tensors[i]);
  return variable;
}

// The memory of the variables and slots of an operation.
class Memory {
 public:
  // Checks that no variable is used twice.
  template <typename Tensor>
  std::string Set(const std::vector<Tensor*>& tensors) {
    parts_.clear();
    parts_.reserve(tensors.size());
    for (const Tensor* each : tensors) {
      const char *const begin = Data(*each), *const end = begin + each->tensor_data().size();
      if (begin < end) parts_.emplace_back(begin, end);
    }
    std::sort(parts_.begin(), parts_.end());
    bool disjoint = true;
    for (size_t i = 1; i < parts_.size(); ++i) disjoint &= parts_[i - 1].second <= parts_[i].first;
    return disjoint ? "" : kUsedTwice;
  }

  // Whether a tensor shares memory with the variables.
  template <typename Tensor>
  bool Overlaps(const Tensor& tensor) const {
    const char *const begin = Data(tensor), *const end = begin + tensor.tensor_data().size();
    auto after = std::lower_bound(parts_.begin(), parts_.end(), std::make_pair(end, end));
    // Of the parts that begin before `end`, the last ends last.
    return after != parts_.begin() && begin < std::prev(after)->second;
  }

 private:
  std::vector<std::pair<const char*, const char*>> parts_;
};

}  // namespace legacy_opt

#endif

// Runs kernels with drawn inputs, on memory whose bounds the sanitizers know. Some inputs do not fit
// the kernel: the checks of the operations library must refuse them, or the update must be valid nevertheless.
// Arguments: a seed, then the libraries of kernels. See `make sanitize`.
#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>
#include <limits>
#include <memory>
#include <random>
#include <thread>

#include "checks.h"

namespace {

using namespace legacy_opt;

std::mt19937 generator;

int64_t Draw(int64_t first, int64_t last) {
  return std::uniform_int_distribution<int64_t>(first, last)(generator);
}

void Require(bool condition, const char* what) {
  if (condition) return;
  std::fprintf(stderr, "wrong: %s\n", what);
  std::exit(1);
}

// Like tensorflow::Tensor. Has memory of exactly its size, with drawn bits: also NaN, infinity and
// denormal numbers, and among the floats many at which operations have corners.
class Array {
 public:
  Array(int32_t dtype, std::vector<int64_t> shape) : dtype_(dtype), shape_(std::move(shape)) {
    Allocate();
  }
  int32_t dtype() const { return dtype_; }
  int dims() const { return static_cast<int>(shape_.size()); }
  int64_t dim_size(int axis) const { return shape_.at(axis); }
  int64_t NumElements() const {
    int64_t count = 1;
    for (int64_t each : shape_) count *= each;
    return count;
  }
  struct Bytes {
    char* begin;
    int64_t count;
    char* data() const { return begin; }
    int64_t size() const { return count; }
  };
  Bytes tensor_data() const { return {memory_.get(), NumElements() * SizeOf(dtype_)}; }

  void ChangeDtype() {
    static const int32_t all[] = {1, 2, 3, 7, 9, 10, 14, 19, kResource};
    const int32_t before = dtype_;
    while (dtype_ == before) dtype_ = all[Draw(0, 8)];
    Allocate();
  }
  void ChangeShape() {
    const int64_t way = shape_.empty() ? 0 : Draw(0, 2);
    if (way == 0) shape_.insert(shape_.begin() + Draw(0, dims()), Draw(0, 3));
    if (way == 1) shape_.erase(shape_.begin() + Draw(0, dims() - 1));
    if (way == 2) {
      int64_t& size = shape_[Draw(0, dims() - 1)];
      size = Draw(0, 1) ? size + 1 : (size ? size - 1 : 2);
    }
    Allocate();
  }

 private:
  void Allocate() {
    const int64_t size = SizeOf(dtype_), bytes = NumElements() * size;
    memory_.reset(new char[bytes]);
    for (int64_t i = 0; i < bytes; ++i) memory_[i] = static_cast<char>(generator());
    for (int64_t i = 0; i < bytes / std::max<int64_t>(size, 1); i += Draw(1, 9)) {
      static const double corners[] = {0.,  -0.,  1.,   -1.,  0x1p31, -0x1p31, 0x1p63, -0x1p63,
                                       .5, -1.5, 2., 1e30, INFINITY, -INFINITY, NAN};
      const double corner = corners[Draw(0, 14)];
      const float narrow = static_cast<float>(corner);
      if (dtype_ == 1) std::memcpy(&memory_[i * 4], &narrow, 4);
      if (dtype_ == 2) std::memcpy(&memory_[i * 8], &corner, 8);
      if (dtype_ == 14) std::memcpy(&memory_[i * 2], reinterpret_cast<const char*>(&narrow) + 2, 2);
    }
  }

  int32_t dtype_;
  std::vector<int64_t> shape_;
  std::unique_ptr<char[]> memory_;
};

void TwoThreads(int64_t total, int64_t block, const Work& work) {
  auto every_second = [&](int64_t first) {
    for (; first < total; first += 2 * block) work(first, std::min(total, first + block));
  };
  std::thread other(every_second, block);
  every_second(0);
  other.join();
}

using Arrays = std::vector<std::unique_ptr<Array>>;

std::vector<int64_t> DrawShape(const legacy_opt_kernel* kernel, bool by_rows) {
  const int64_t rows = Draw(0, Draw(0, 9) ? 40 : 700), columns = Draw(0, 300);
  if (by_rows) return Draw(0, 3) ? std::vector<int64_t>{rows, columns} : std::vector<int64_t>{rows};
  if (kernel->update_row && Draw(0, 1)) return {3, rows, columns};
  if (kernel->update_row || Draw(0, 1)) return {rows, columns};
  return Draw(0, 3) ? std::vector<int64_t>{rows * columns} : std::vector<int64_t>{};
}

// Adds a variable with its slots.
void AddVariable(const legacy_opt_kernel* kernel, const std::vector<int64_t>& shape, Arrays* to) {
  to->emplace_back(new Array(kernel->dtype, shape));
  std::vector<int64_t> rows = shape, columns = shape;
  if (kernel->update_row) {
    rows.pop_back();
    columns.erase(columns.end() - 2);
  } else if (!shape.empty()) {
    rows.resize(1);
  }
  const std::vector<int64_t> shapes[] = {shape, rows, columns, {}};
  const int counts[] = {kernel->slots, kernel->row_slots, kernel->column_slots, kernel->scalar_slots};
  for (int kind = 0, i = 0; kind < 4; ++kind) {
    for (int k = 0; k < counts[kind]; ++k) {
      to->emplace_back(new Array(kernel->slot_dtypes[i++], shapes[kind]));
    }
  }
}

// The inputs of one operation, with perhaps one fault.
struct Call {
  Arrays tensors, scalars, gradients;
  std::unique_ptr<Array> ids;
  bool is_wrong = false;    // must be refused
  bool is_changed = false;  // need not be accepted

  // Changes the dtype or the shape of one array.
  void Change(const legacy_opt_kernel* kernel) {
    is_changed = true;
    Arrays* const all[] = {&tensors, &scalars, &gradients};
    Arrays* const chosen = all[Draw(0, 2)];
    if (ids && Draw(0, 3) == 0) {
      ids->ChangeShape();
      is_wrong = true;
    } else if (!chosen->empty()) {
      const int64_t i = Draw(0, chosen->size() - 1);
      if (Draw(0, 1)) {
        (*chosen)[i]->ChangeDtype();
        is_wrong = true;
      } else {
        (*chosen)[i]->ChangeShape();
        is_wrong = chosen == &gradients || (chosen == &tensors && i > 0 && i <= kernel->slots);
      }
    }
  }

  std::vector<Array*> Pointers() const {
    std::vector<Array*> found;
    for (const auto& each : tensors) found.push_back(each.get());
    return found;
  }

  // The checks that all operations have in common.
  std::string Check(const legacy_opt_kernel* kernel, int variables) {
    const Inputs inputs = {variables, Draw(0, 1) > 0, static_cast<int>(gradients.size())};
    std::vector<int32_t> dtypes;
    for (const auto& each : tensors) dtypes.push_back(inputs.are_resources ? kResource : each->dtype());
    for (const auto& each : scalars) dtypes.push_back(each->dtype());
    for (const auto& each : gradients) dtypes.push_back(each->dtype());
    std::string error = CheckInputs(kernel, inputs, dtypes);
    const std::vector<Array*> pointers = Pointers();
    for (int i = 0; i < variables; ++i) {
      if (error.empty()) error = CheckVariable(kernel, &pointers[i * TensorsOfVariable(kernel)]);
    }
    for (const auto& each : scalars) {
      if (error.empty()) error = CheckScalar(*each);
    }
    dtypes.pop_back();
    Require(!CheckInputs(kernel, inputs, dtypes).empty(), "an input too few is accepted");
    return error;
  }

  std::vector<const void*> ScalarValues() const {
    std::vector<const void*> found;
    for (const auto& each : scalars) found.push_back(Data(*each));
    found.push_back(nullptr);
    return found;
  }
};

void DrawScalars(const legacy_opt_kernel* kernel, Call* call) {
  for (int i = 0; i < kernel->scalars; ++i) {
    call->scalars.emplace_back(new Array(kernel->scalar_dtypes[i], {}));
  }
}

// Requires that right inputs are accepted, and wrong inputs refused. Returns whether to go on.
bool IsAccepted(const Call& call, const std::string& error) {
  Require(call.is_changed || error.empty(), error.c_str());
  Require(!call.is_wrong || !error.empty(), "a wrong input is accepted");
  return error.empty();
}

void UpdateSomeVariables(const legacy_opt_kernel* kernel) {
  Call call;
  const int count = static_cast<int>(Draw(1, 4)), each = TensorsOfVariable(kernel);
  for (int i = 0; i < count; ++i) {
    const std::vector<int64_t> shape = DrawShape(kernel, false);
    AddVariable(kernel, shape, &call.tensors);
    call.gradients.emplace_back(new Array(kernel->dtype, shape));
  }
  DrawScalars(kernel, &call);
  if (Draw(0, 1)) call.Change(kernel);
  std::string error = call.Check(kernel, count);
  for (int i = 0; i < count && error.empty(); ++i) {
    error = CheckGradient(*call.tensors[i * each], *call.gradients[i]);
  }
  if (!IsAccepted(call, error)) return;
  std::vector<Array*> tensors = call.Pointers();
  Memory memory;
  Require(memory.Set(tensors).empty(), "disjoint memory is refused");
  std::vector<Variable> variables;
  for (int i = 0; i < count; ++i) {
    Require(!memory.Overlaps(*call.gradients[i]), "a gradient is taken for a variable");
    Require(memory.Overlaps(*tensors[i]) == (tensors[i]->tensor_data().size() > 0), "no overlap");
    variables.push_back(VariableOf(kernel, &tensors[i * each]));
    variables.back().gradient = Data(*call.gradients[i]);
  }
  UpdateWhole(kernel, variables, call.ScalarValues().data(), TwoThreads);
  Require(SortDistinct(&tensors).empty(), "distinct variables are refused");
  Array* const twice = tensors[Draw(0, tensors.size() - 1)];
  tensors.push_back(twice);
  Require(!SortDistinct(&tensors).empty(), "a variable may be its own slot");
  if (twice->NumElements()) Require(!memory.Set(tensors).empty(), "memory may overlap");
}

template <typename Id>
void UpdateSomeRows(const legacy_opt_kernel* kernel, bool all_rows) {
  Call call;
  std::vector<int64_t> shape = DrawShape(kernel, true);
  const int64_t rows = shape[0], count = rows ? Draw(0, 60) : 0;
  AddVariable(kernel, shape, &call.tensors);
  shape[0] = count;
  call.gradients.emplace_back(new Array(kernel->dtype, shape));
  call.ids.reset(new Array(sizeof(Id) == 4 ? 3 : 9, {count}));
  DrawScalars(kernel, &call);
  if (Draw(0, 1)) call.Change(kernel);
  const int64_t given = call.ids->NumElements();
  Id* const ids = reinterpret_cast<Id*>(Data(*call.ids));
  for (int64_t i = 0; i < given; ++i) ids[i] = static_cast<Id>(Draw(0, std::max<int64_t>(rows, 1) - 1));
  std::string error = call.Check(kernel, 1);
  const std::string other = CheckSparseGradient(*call.tensors[0], *call.gradients[0], *call.ids);
  if (!IsAccepted(call, error.empty() ? other : error)) return;

  const bool has_wrong_id = count && Draw(0, 4) == 0;
  if (has_wrong_id) {
    const Id wrong[] = {-1, static_cast<Id>(call.tensors[0]->dim_size(0)),
                        std::numeric_limits<Id>::max(), std::numeric_limits<Id>::min()};
    ids[Draw(0, count - 1)] = wrong[Draw(0, 3)];
  }
  const std::vector<Array*> tensors = call.Pointers();
  Variable variable = VariableOf(kernel, tensors.data());
  variable.gradient = Data(*call.gradients[0]);
  error = UpdateRows<Id>(kernel, variable, ids, count, call.tensors[0]->dim_size(0),
                         call.ScalarValues().data(), all_rows, TwoThreads);
  if (!call.is_changed) Require(error.empty() != has_wrong_id, error.c_str());
}

// Requires that a table with a wrong number, or without a function, is refused.
void BreakTable(const legacy_opt_kernel* kernel) {
  legacy_opt_kernel broken = *kernel;
  int32_t* const numbers[] = {
      &broken.abi,        &broken.hoisted_bytes, &broken.dtype, &broken.scalars,
      &broken.slots,      &broken.row_slots,     &broken.sums,  &broken.column_slots,
      &broken.row_sums,   &broken.scalar_slots,  &broken.row_bytes,
      &broken.column_sums, &broken.column_values};
  const int32_t wrong[] = {-1, 1 << 30, std::numeric_limits<int32_t>::max(),
                           std::numeric_limits<int32_t>::min()};
  *numbers[Draw(0, 12)] = wrong[Draw(0, 3)];
  Require(!CheckTable(&broken).empty(), "a table with a wrong number is accepted");
  broken = *kernel;
  const int64_t way = Draw(0, 3);
  if (way == 0) broken.prepare = nullptr;
  if (way == 1) broken.add = nullptr;
  if (way == 2) broken.update = nullptr, broken.update_row = nullptr;
  if (way == 3) {
    (kernel->update ? broken.sums : broken.row_sums) = 1;
    broken.reduce = nullptr;
    broken.reduce_lines = nullptr;
  }
  Require(!CheckTable(&broken).empty(), "a table without a function is accepted");
}

void Run(const legacy_opt_kernel* kernel) {
  Require(CheckTable(kernel).empty(), "a valid table is refused");
  BreakTable(kernel);
  if (CheckWhole(kernel).empty()) UpdateSomeVariables(kernel);
  if (CheckByRows(kernel, true).empty()) UpdateSomeRows<int32_t>(kernel, true);
  if (CheckByRows(kernel, false).empty()) {
    UpdateSomeRows<int32_t>(kernel, false);
    UpdateSomeRows<int64_t>(kernel, false);
  }
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
    for (int round = 0; round < 30; ++round) Run(kernel);
  }
  std::printf("%d kernels: no errors\n", count - 2);
  return 0;
}

// Updates whole variables and rows with a kernel. Free of TensorFlow, so that it can be tested alone.
#ifndef LEGACY_OPT_UPDATE_H_
#define LEGACY_OPT_UPDATE_H_

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <functional>
#include <numeric>
#include <string>
#include <vector>

#if defined(__SSE__)
#include <xmmintrin.h>
#endif

extern "C" {
#include "kernel.h"
}

namespace legacy_opt {

// Number of bytes of a tensorflow::DataType that kernels use; 0 for others.
inline int64_t SizeOf(int32_t dtype) {
  switch (dtype) {
    case 1: case 3: return 4;    // float, int32
    case 2: case 9: return 8;    // double, int64
    case 10: return 1;           // bool
    case 14: case 19: return 2;  // bfloat16, half
    default: return 0;
  }
}

// Treats denormal numbers as zero in this scope, in the thread that enters it. TensorFlow does so in
// its threads, but not everywhere; kernels must return the same bits everywhere.
class FlushDenormals {
 public:
#if defined(__SSE__)
  FlushDenormals() : before_(_mm_getcsr()) { _mm_setcsr(before_ | 0x8040); }
  ~FlushDenormals() { _mm_setcsr(before_); }

 private:
  unsigned before_;
#elif defined(__aarch64__)
  FlushDenormals() {
    asm volatile("mrs %0, fpcr" : "=r"(before_));
    asm volatile("msr fpcr, %0" : : "r"(before_ | (1ull << 24)));
  }
  ~FlushDenormals() { asm volatile("msr fpcr, %0" : : "r"(before_)); }

 private:
  uint64_t before_;
#endif
};

// Calls work(first, last) for blocks that make up [0, total), perhaps in several threads.
using Work = std::function<void(int64_t, int64_t)>;
using Parallel = std::function<void(int64_t total, int64_t block, const Work& work)>;

// Blocks of a loop. Threads take the next block when they are free.
struct Blocks {
  void Run() {
    for (;;) {
      const int64_t first = next.fetch_add(block), last = std::min(total, first + block);
      if (first >= total) return;
      work(first, last);
      left -= last - first;
    }
  }
  std::atomic<int64_t> next, left;  // the first element of the next block; elements not done yet
  const int64_t total, block;
  const Work& work;
};

// One variable with its slots. Each field has 8 bytes, so that Python can write it as integers.
struct Variable {
  char* value = nullptr;
  const char* gradient = nullptr;
  int64_t size = 0;               // number of elements
  int64_t rows = 0, columns = 0;  // of each matrix, for kernels with matrices
  // In the order of the kernel's `slot_dtypes`. They have one value per element; per row, or per row
  // of each matrix; per column of each matrix; and one value.
  void* slots[LEGACY_OPT_MOST_SLOTS];
};

constexpr int64_t kBlock = 65536;  // elements that a thread updates at a time
constexpr int64_t kSum = 8192;     // elements of a partial sum, with any number of threads
constexpr int64_t kParts = 16;     // at most so many partial sums of a column, likewise

// Memory for the hoisted values of a kernel, with the alignment of all types.
class Hoisted {
 public:
  explicit Hoisted(const legacy_opt_kernel* kernel) : words_(kernel->hoisted_bytes / 8 + 1) {}
  void* get() { return words_.data(); }
  const void* get() const { return words_.data(); }

 private:
  std::vector<int64_t> words_;
};

namespace internal {

// Slots of one kind from a value on: by default, the slots with one value per element.
struct SlotsFrom {
  SlotsFrom(const legacy_opt_kernel* kernel, const Variable& variable, int64_t value)
      : SlotsFrom(kernel, variable, value, 0, kernel->slots) {}
  SlotsFrom(const legacy_opt_kernel* kernel, const Variable& variable, int64_t value, int first,
            int count) {
    for (int i = 0; i < count; ++i) {
      const int64_t size = SizeOf(kernel->slot_dtypes[first + i]);
      at[i] = static_cast<char*>(variable.slots[first + i]) + value * size;
    }
  }
  void* at[LEGACY_OPT_MOST_SLOTS];
};

inline void* const* ScalarSlots(const legacy_opt_kernel* kernel, const Variable& variable) {
  return variable.slots + kernel->slots + kernel->row_slots + kernel->column_slots;
}

// Returns the sums over all elements of each variable: variables.size() * kernel->sums numbers.
inline std::vector<double> Sums(const legacy_opt_kernel* kernel,
                                const std::vector<Variable>& variables,
                                const std::vector<Hoisted>& hoisted, const Parallel& parallel) {
  std::vector<int64_t> parts{0};  // the number of the first partial sum of each variable
  for (const Variable& each : variables) {
    parts.push_back(parts.back() + (each.size + kSum - 1) / kSum);
  }
  std::vector<double> sums(parts.back() * kernel->sums);
  const int64_t size = SizeOf(kernel->dtype);
  parallel(parts.back(), kBlock / kSum, [&](int64_t begin, int64_t end) {
    FlushDenormals flush;
    for (int64_t part = begin; part < end; ++part) {
      const int64_t i = std::upper_bound(parts.begin(), parts.end(), part) - parts.begin() - 1;
      const Variable& variable = variables[i];
      const int64_t first = (part - parts[i]) * kSum;
      SlotsFrom slots(kernel, variable, first);
      kernel->reduce(variable.value + first * size, slots.at, variable.gradient + first * size,
                     hoisted[i].get(), std::min(kSum, variable.size - first),
                     &sums[part * kernel->sums]);
    }
  });
  std::vector<double> totals(variables.size() * kernel->sums);
  for (size_t i = 0; i < variables.size(); ++i) {
    for (int64_t part = parts[i]; part < parts[i + 1]; ++part) {
      for (int k = 0; k < kernel->sums; ++k) {
        totals[i * kernel->sums + k] += sums[part * kernel->sums + k];
      }
    }
  }
  return totals;
}

// Updates a stack of matrices: a kernel with `update_row`.
inline void UpdateMatrices(const legacy_opt_kernel* kernel, const Variable& variable,
                           Hoisted* hoisted, const Parallel& parallel) {
  if (!variable.size) return;
  const int64_t rows = variable.rows, columns = variable.columns;
  const int64_t matrices = variable.size / rows / columns, all = matrices * rows;
  const int64_t size = SizeOf(kernel->dtype);
  const int64_t width = (columns * kernel->column_values + 1) * 8;  // bytes per matrix
  std::vector<char> row_buffers(all * kernel->row_bytes);
  std::vector<int64_t> column_buffers(matrices * width / 8);
  char* const buffers = reinterpret_cast<char*>(column_buffers.data());
  auto value = [&](int64_t row) { return variable.value + row * columns * size; };
  auto gradient = [&](int64_t row) { return variable.gradient + row * columns * size; };

  // The sums over columns are added up in parts, whose number depends on the shape only.
  const int64_t most = std::max<int64_t>(1, std::min(rows, kParts));
  const int64_t parts = std::max<int64_t>(1, std::min(most, rows * columns / kBlock));
  std::vector<double> row_sums(all * kernel->row_sums);
  std::vector<double> column_sums(matrices * parts * columns * kernel->column_sums);
  const int64_t sums_of_part = columns * kernel->column_sums;
  if (kernel->reduce_lines) {
    parallel(matrices * parts, 1, [&](int64_t begin, int64_t end) {
      FlushDenormals flush;
      for (int64_t i = begin; i < end; ++i) {
        const int64_t matrix = i / parts, part = i % parts;
        const int64_t last = matrix * rows + rows * (part + 1) / parts;
        for (int64_t row = matrix * rows + rows * part / parts; row < last; ++row) {
          SlotsFrom slots(kernel, variable, row * columns);
          kernel->reduce_lines(value(row), slots.at, gradient(row), hoisted->get(), columns,
                               row_sums.data() + row * kernel->row_sums,
                               column_sums.data() + i * sums_of_part);
        }
      }
    });
  }
  parallel(matrices, 1, [&](int64_t begin, int64_t end) {
    FlushDenormals flush;
    for (int64_t matrix = begin; matrix < end; ++matrix) {
      double* const first = column_sums.data() + matrix * parts * sums_of_part;
      for (int64_t part = 1; part < parts; ++part) {
        for (int64_t i = 0; i < sums_of_part; ++i) first[i] += first[part * sums_of_part + i];
      }
      const SlotsFrom of_rows(kernel, variable, matrix * rows, kernel->slots, kernel->row_slots);
      const SlotsFrom of_columns(kernel, variable, matrix * columns,
                                 kernel->slots + kernel->row_slots, kernel->column_slots);
      kernel->after_rows(of_rows.at, row_sums.data() + matrix * rows * kernel->row_sums, rows,
                         columns, hoisted->get(),
                         row_buffers.data() + matrix * rows * kernel->row_bytes);
      kernel->after_columns(of_columns.at, first, rows, columns, hoisted->get(),
                            buffers + matrix * width);
    }
  });

  const int64_t block = std::max<int64_t>(1, kBlock / columns);
  auto for_rows = [&](const std::function<void(int64_t, const void*, const void*)>& work) {
    parallel(all, block, [&](int64_t begin, int64_t end) {
      FlushDenormals flush;
      for (int64_t row = begin; row < end; ++row) {
        work(row, row_buffers.data() + row * kernel->row_bytes, buffers + row / rows * width);
      }
    });
  };
  if (kernel->sums) {
    std::vector<double> sums(all * kernel->sums);
    for_rows([&](int64_t row, const void* of_row, const void* of_columns) {
      SlotsFrom slots(kernel, variable, row * columns);
      kernel->reduce_row(value(row), slots.at, gradient(row), hoisted->get(), of_row, of_columns,
                         columns, sums.data() + row * kernel->sums);
    });
    double total[LEGACY_OPT_MOST_SUMS] = {0};
    for (int64_t i = 0; i < all * kernel->sums; ++i) total[i % kernel->sums] += sums[i];
    kernel->after_sums(total, variable.size, hoisted->get());
  }
  for_rows([&](int64_t row, const void* of_row, const void* of_columns) {
    SlotsFrom slots(kernel, variable, row * columns);
    kernel->update_row(value(row), slots.at, gradient(row), hoisted->get(), of_row, of_columns,
                       columns);
  });
}

// Updates arrays of elements.
inline void UpdateArrays(const legacy_opt_kernel* kernel, const std::vector<Variable>& variables,
                         std::vector<Hoisted>* hoisted, const Parallel& parallel) {
  const int64_t size = SizeOf(kernel->dtype);
  std::vector<int64_t> starts{0};  // the number of the first element of each variable
  for (const Variable& each : variables) starts.push_back(starts.back() + each.size);
  if (kernel->sums) {
    const std::vector<double> sums = Sums(kernel, variables, *hoisted, parallel);
    for (size_t i = 0; i < variables.size(); ++i) {
      kernel->after_sums(&sums[i * kernel->sums], variables[i].size, (*hoisted)[i].get());
    }
  }
  parallel(starts.back(), kBlock, [&](int64_t begin, int64_t end) {
    FlushDenormals flush;
    int64_t i = std::upper_bound(starts.begin(), starts.end(), begin) - starts.begin() - 1;
    while (begin < end) {
      while (starts[i + 1] <= begin) ++i;
      const int64_t first = begin - starts[i], count = std::min(end, starts[i + 1]) - begin;
      SlotsFrom slots(kernel, variables[i], first);
      kernel->update(variables[i].value + first * size, slots.at,
                     variables[i].gradient + first * size, (*hoisted)[i].get(), count);
      begin += count;
    }
  });
}

}  // namespace internal

// Updates whole variables.
inline void UpdateWhole(const legacy_opt_kernel* kernel, const std::vector<Variable>& variables,
                        const void* const* scalars, const Parallel& parallel) {
  FlushDenormals flush;
  std::vector<Hoisted> hoisted(variables.size(), Hoisted(kernel));
  for (size_t i = 0; i < variables.size(); ++i) {
    kernel->prepare(scalars, internal::ScalarSlots(kernel, variables[i]), hoisted[i].get());
  }
  if (kernel->update) {
    internal::UpdateArrays(kernel, variables, &hoisted, parallel);
  } else if (variables.size() == 1) {
    internal::UpdateMatrices(kernel, variables[0], &hoisted[0], parallel);
  } else {  // several small variables: each in one thread
    const Parallel in_this_thread = [](int64_t total, int64_t, const Work& work) { work(0, total); };
    int64_t size = 1;
    for (const Variable& each : variables) size += each.size;
    const int64_t count = static_cast<int64_t>(variables.size());
    parallel(count, std::max<int64_t>(1, count * kBlock / size), [&](int64_t begin, int64_t end) {
      FlushDenormals flush_here;
      for (int64_t i = begin; i < end; ++i) {
        internal::UpdateMatrices(kernel, variables[i], &hoisted[i], in_this_thread);
      }
    });
  }
  if (kernel->finish) {
    for (size_t i = 0; i < variables.size(); ++i) {
      kernel->finish(internal::ScalarSlots(kernel, variables[i]), hoisted[i].get());
    }
  }
}

// Returns the sums over all elements of all gradients. The kernel may have no slots and scalars.
inline std::vector<double> SumGradients(const legacy_opt_kernel* kernel,
                                        std::vector<Variable> gradients, const Parallel& parallel) {
  FlushDenormals flush;
  Hoisted hoisted(kernel);
  kernel->prepare(nullptr, nullptr, hoisted.get());
  for (Variable& each : gradients) each.value = const_cast<char*>(each.gradient);  // not read
  const std::vector<double> sums =
      internal::Sums(kernel, gradients, std::vector<Hoisted>(gradients.size(), hoisted), parallel);
  std::vector<double> totals(kernel->sums);
  for (size_t i = 0; i < sums.size(); ++i) totals[i % kernel->sums] += sums[i];
  return totals;
}

// The distinct ids of a sparse gradient, and the positions of each in the order of the input. Reads
// each id once, and keeps it: another operation may write to the memory of the ids meanwhile.
template <typename Id>
class Rows {
 public:
  // Returns an error message, or an empty string. With `ignores`, ids of no row are no error.
  std::string Find(const Id* ids, int64_t count, int64_t rows, bool ignores = false) {
    int bits = 4;
    while ((int64_t{1} << bits) < 2 * count) ++bits;
    const uint64_t mask = (uint64_t{1} << bits) - 1;
    std::vector<int64_t> table(mask + 1, -1);
    next_.assign(count, -1);
    std::vector<int64_t> last;
    for (int64_t i = 0; i < count; ++i) {
      const int64_t id = static_cast<int64_t>(static_cast<const volatile Id*>(ids)[i]);
      if (id < 0 || id >= rows) {
        if (ignores) continue;
        return "indices[" + std::to_string(i) + "] = " + std::to_string(id) + " is not in [0, " +
               std::to_string(rows) + ")";
      }
      uint64_t place = (static_cast<uint64_t>(id) * 0x9E3779B97F4A7C15ull) >> (64 - bits);
      for (;; place = (place + 1) & mask) {
        const int64_t known = table[place];
        if (known < 0) {
          table[place] = size();
          found_.push_back({id, i});
          last.push_back(i);
          break;
        }
        if (found_[known].row == id) {
          next_[last[known]] = i;
          last[known] = i;
          break;
        }
      }
    }
    return "";
  }
  int64_t size() const { return static_cast<int64_t>(found_.size()); }
  int64_t row(int64_t i) const { return found_[i].row; }
  int64_t first(int64_t i) const { return found_[i].first; }
  int64_t next(int64_t position) const { return next_[position]; }  // -1 after the last
  void SortByRow() {
    std::sort(found_.begin(), found_.end(), [](Row a, Row b) { return a.row < b.row; });
  }

 private:
  struct Row {
    int64_t row, first;  // `first` is the first position of the id
  };
  std::vector<Row> found_;
  std::vector<int64_t> next_;
};

// Updates rows of one variable. The rows of equal ids are added in the order of the ids.
// If `all_rows`, the kernel of a dense update gets a gradient of zero for all other rows. The kernel
// has passed `CheckByRows`. With `ignores`, ids of no row are ignored.
// Returns an error message, or an empty string. After an error nothing has been changed.
template <typename Id>
std::string UpdateRows(const legacy_opt_kernel* kernel, const Variable& variable, const Id* ids,
                       int64_t count, int64_t rows, const void* const* scalars, bool all_rows,
                       const Parallel& parallel, bool ignores = false) {
  Rows<Id> found;
  const std::string error = found.Find(ids, count, rows, ignores);
  if (!error.empty()) return error;
  FlushDenormals flush;
  const int64_t columns = rows ? variable.size / rows : 0, bytes = columns * SizeOf(kernel->dtype);
  Hoisted hoisted(kernel);
  kernel->prepare(scalars, internal::ScalarSlots(kernel, variable), hoisted.get());
  const bool others = all_rows || kernel->fade;
  if (others) found.SortByRow();

  // Updates the i-th distinct row; `sum` and `own` are memory of this thread.
  auto update = [&](int64_t i, std::vector<char>* sum, Hoisted* own) {
    const int64_t row = found.row(i);
    const char* gradient = variable.gradient + found.first(i) * bytes;
    int64_t more = found.next(found.first(i));
    if (more >= 0) {
      std::memcpy(sum->data(), gradient, bytes);
      for (; more >= 0; more = found.next(more)) {
        kernel->add(sum->data(), variable.gradient + more * bytes, columns);
      }
      gradient = sum->data();
    }
    if (kernel->prepare_row) {
      internal::SlotsFrom here(kernel, variable, row, kernel->slots, kernel->row_slots);
      kernel->prepare_row(here.at, own->get());
    }
    internal::SlotsFrom slots(kernel, variable, row * columns);
    kernel->update(variable.value + row * bytes, slots.at, gradient, own->get(), columns);
  };

  if (!variable.size) {
    // No elements, but perhaps many rows.
  } else if (!others) {
    const int64_t block = std::max<int64_t>(1, kBlock / 8 / std::max<int64_t>(1, columns));
    parallel(found.size(), block, [&](int64_t begin, int64_t end) {
      FlushDenormals flush_here;
      std::vector<char> sum(bytes);
      Hoisted own(hoisted);
      for (int64_t i = begin; i < end; ++i) {
        if (i + 4 < end) {  // the rows of a large table are rarely in the cache
          const int64_t ahead = found.row(i + 4);
          __builtin_prefetch(variable.value + ahead * bytes, 1);
          internal::SlotsFrom slots(kernel, variable, ahead * columns);
          for (int k = 0; k < kernel->slots; ++k) __builtin_prefetch(slots.at[k], 1);
        }
        update(i, &sum, &own);
      }
    });
  } else {
    const int64_t block = std::max<int64_t>(1, kBlock / std::max<int64_t>(1, columns));
    const int64_t few = std::max<int64_t>(1, 4096 / std::max<int64_t>(1, columns));
    parallel(rows, block, [&](int64_t begin, int64_t end) {
      FlushDenormals flush_here;
      std::vector<char> sum(bytes), zero(all_rows ? few * bytes : 0, 0);
      Hoisted own(hoisted);
      int64_t i = 0;  // the first distinct row that is not before `begin`
      for (int64_t step = found.size(); step > 0; step /= 2) {
        while (i + step <= found.size() && found.row(i + step - 1) < begin) i += step;
      }
      for (int64_t row = begin; row < end;) {
        const int64_t until = i < found.size() ? std::min(end, found.row(i)) : end;
        while (row < until) {
          const int64_t now = std::min(few, until - row);
          internal::SlotsFrom slots(kernel, variable, row * columns);
          if (all_rows) {
            kernel->update(variable.value + row * bytes, slots.at, zero.data(), own.get(),
                           now * columns);
          } else {
            kernel->fade(slots.at, own.get(), now * columns);
          }
          row += now;
        }
        if (row < end) {
          update(i++, &sum, &own);
          ++row;
        }
      }
    });
  }
  if (kernel->finish) kernel->finish(internal::ScalarSlots(kernel, variable), hoisted.get());
  return "";
}

}  // namespace legacy_opt

#endif

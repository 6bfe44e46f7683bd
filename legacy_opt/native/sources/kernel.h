/* The interface of compiled rules. Plain C: a kernel needs neither TensorFlow nor libm.

   A kernel is one constant table of numbers and functions. Its functions keep no state. They get a
   buffer for "hoisted" values, which are computed once per update or per row. */
#ifndef LEGACY_OPT_KERNEL_H
#define LEGACY_OPT_KERNEL_H

#include <stdint.h>

#define LEGACY_OPT_ABI 2
enum { LEGACY_OPT_MOST_SLOTS = 8, LEGACY_OPT_MOST_SCALARS = 32, LEGACY_OPT_MOST_SUMS = 8 };

typedef struct legacy_opt_kernel {
  int32_t abi;           /* LEGACY_OPT_ABI */
  int32_t hoisted_bytes; /* the size of the buffer `hoisted` */
  int32_t dtype;         /* of variable and gradient; all dtypes are numbers of tensorflow::DataType */
  int32_t scalars, slots, row_slots, column_slots, scalar_slots, sums; /* how many there are */
  int32_t scalar_dtypes[LEGACY_OPT_MOST_SCALARS];
  /* of slots, then row slots, column slots and scalar slots */
  int32_t slot_dtypes[LEGACY_OPT_MOST_SLOTS];

  /* Computes the hoisted scalars: once per update, before all others. */
  void (*prepare)(const void* const* scalars, const void* const* scalar_slots, void* hoisted);
  /* Computes the hoisted values of a row, and writes its row slots. NULL without row slots. */
  void (*prepare_row)(void* const* row_slots, void* hoisted);
  /* Writes the sums over n elements to `sums`. NULL without sums. */
  void (*reduce)(const void* value, const void* const* slots, const void* gradient,
                 const void* hoisted, int64_t n, double* sums);
  /* Computes the hoisted scalars that depend on the sums over all `count` elements. */
  void (*after_sums)(const double* sums, int64_t count, void* hoisted);
  /* Updates n elements of the variable and its slots. */
  void (*update)(void* value, void* const* slots, const void* gradient, const void* hoisted,
                 int64_t n);
  /* Changes n elements that a sparse gradient does not touch. NULL if they do not change. */
  void (*fade)(void* const* slots, const void* hoisted, int64_t n);
  /* Writes the scalar slots: once per update, after all others. NULL without scalar slots. */
  void (*finish)(void* const* scalar_slots, const void* hoisted);
  /* sum += gradient for n elements, to add the rows of equal ids. */
  void (*add)(void* sum, const void* gradient, int64_t n);

  /* Only for variables that are stacks of matrices, and then in place of prepare_row, reduce and
     update. A kernel has `update_row` or `update`. Each row has a buffer of `row_bytes`, and each
     matrix has one for its columns: `column_values` arrays of n values, 8 * n bytes each. */
  int32_t row_sums, column_sums; /* how many sums there are over the elements of a row or column */
  int32_t row_bytes, column_values;
  /* Writes the sums over a row of n elements, and adds the elements to the column_sums * n sums over
     columns. NULL without such sums. */
  void (*reduce_lines)(const void* value, const void* const* slots, const void* gradient,
                       const void* hoisted, int64_t n, double* row_sums, double* column_sums);
  /* Computes the values of all rows of a matrix from rows * row_sums sums over `count` elements, and
     writes the row slots. */
  void (*after_rows)(void* const* row_slots, const double* sums, int64_t rows, int64_t count,
                     const void* hoisted, void* row_buffers);
  /* Computes the values of all n columns of a matrix from column_sums * n sums over `count` elements,
     and writes the column slots. */
  void (*after_columns)(void* const* column_slots, const double* sums, int64_t count, int64_t n,
                        const void* hoisted, void* columns);
  /* As reduce and update, for a row of n elements. */
  void (*reduce_row)(const void* value, const void* const* slots, const void* gradient,
                     const void* hoisted, const void* row, const void* columns, int64_t n,
                     double* sums);
  void (*update_row)(void* value, void* const* slots, const void* gradient, const void* hoisted,
                     const void* row, const void* columns, int64_t n);
} legacy_opt_kernel;

#endif

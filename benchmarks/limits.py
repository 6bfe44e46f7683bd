"""Lower limits for an optimizer's step time: a loop in C, and TensorFlow's `unique`.

The loop reads the gradient, and reads and writes the variable and its slots. It uses all
processors. For each element of the variable and of each slot, it computes only one addition.
"""

import ctypes
import functools
import itertools
import tempfile
from pathlib import Path

import numpy as np
import tensorflow as tf

from benchmarks import workloads
from legacy_opt.core.variable_access import Rows

MOST_SLOTS = 3
_SOURCE = """
#include <stdint.h>
static void elements(float* restrict w, float* restrict a, float* restrict b, float* restrict c,
                     const float* restrict g, int slots, int64_t n) {
  if (slots == 1)
    for (int64_t i = 0; i < n; ++i) { a[i] += g[i]; w[i] -= a[i]; }
  else if (slots == 2)
    for (int64_t i = 0; i < n; ++i) { a[i] += g[i]; b[i] += a[i]; w[i] -= b[i]; }
  else
    for (int64_t i = 0; i < n; ++i) { a[i] += g[i]; b[i] += a[i]; c[i] += b[i]; w[i] -= c[i]; }
}
/* Row i of the gradient belongs to row ids[i]. Without ids there are blocks instead of rows. */
void run(float* w, float* const* s, const float* g, int slots, const int64_t* ids, int64_t rows,
         int64_t columns) {
#pragma omp parallel for schedule(static)
  for (int64_t i = 0; i < rows; ++i) {
    const int64_t at = (ids ? ids[i] : i) * columns;
    elements(w + at, s[0] + at, s[1] + at, s[2] + at, g + i * columns, slots, columns);
  }
}
"""


@functools.lru_cache(maxsize=None)
def _library():
    # Imported here, because against.py also runs this package with older versions of legacy_opt.
    from legacy_opt.native.runtime import cache

    flags = ["-O3", "-march=native", "-fopenmp", "-fPIC", "-shared"]
    command = [*cache.find_compiler("C", "CC", "cc"), *flags]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "limits.so")
        cache.compile_library(command, _SOURCE, ".c", path)
        return ctypes.CDLL(str(path))


class Loop:
    """A loop in C over the memory that an optimizer reads and writes.

    It can be measured instead of a `workloads.Contestant`. Its attribute `arrays` is a list of the
    variable and the slots.

    Args:
      workload: the `Workload`. Duplicate ids are removed before the measurement.
      slots: the number of slots, up to `MOST_SLOTS`.
    """

    def __init__(self, workload, slots):
        self.optimizer, self.state_bytes = "C loop", {}
        size = int(np.prod(workload.shape)) * workload.variables
        self.arrays = [np.zeros(size, np.float32) for _ in range(slots + 1)]
        columns = workload.shape[-1] if workload.ids else 10_000
        batches = [None]
        if workload.ids:
            batches = list(map(np.unique, workloads.zipf_ids(workload).astype(np.int64)))
        rows = max(map(len, batches)) if workload.ids else size // columns
        gradient = np.full(rows * columns, 0.1, np.float32)
        value, *states = [each.ctypes.data for each in self.arrays]
        states = (ctypes.c_void_p * MOST_SLOTS)(*(states + states[:1] * MOST_SLOTS)[:MOST_SLOTS])
        self._batches = itertools.cycle(batches)
        self._gradient = gradient
        run = _library().run

        def step():
            ids = next(self._batches)
            run(
                ctypes.c_void_p(value),
                states,
                ctypes.c_void_p(gradient.ctypes.data),
                slots,
                ctypes.c_void_p(None if ids is None else ids.ctypes.data),
                ctypes.c_int64(rows if ids is None else len(ids)),
                ctypes.c_int64(columns),
            )

        self.step = step

    def close(self):
        """Frees the arrays."""
        self.step = self.arrays = None


class OnlyUnique(tf.compat.v1.train.Optimizer):
    """Updates one row, after the base class has summed the rows of equal ids with `unique`."""

    def __init__(self, *_):
        super().__init__(False, "OnlyUnique")

    def _resource_apply_sparse(self, grad, handle, indices):
        return Rows(indices[:1]).subtract(handle, grad[:1])

    def _apply_sparse(self, grad, var):
        return self._resource_apply_sparse(grad.values, var, grad.indices)

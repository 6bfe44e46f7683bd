"""Builds and loads a library that runs kernels on NumPy arrays, without TensorFlow."""

from __future__ import annotations

import ctypes
import functools
import hashlib
import platform
from pathlib import Path
from typing import Any, List, Mapping, NamedTuple, Optional, Sequence, Tuple

import numpy as np

from legacy_opt.native.runtime import cache
from legacy_opt.native.runtime.compiled_kernels import Kernel

SOURCES = ("standalone.cc", "update.h", "kernel.h")
_FLAGS = ["-std=c++14", "-O2", "-fPIC", "-shared", "-pthread", "-fvisibility=hidden", "-w"]
_INT, _SIZE, _POINTER = ctypes.c_int32, ctypes.c_int64, ctypes.c_void_p

# An update is a row of a table of int64, the struct Update in sources/standalone.cc.
KERNEL, SCALARS, VALUE, GRADIENT, SIZE = range(5)
_WIDTH = 10 + 8  # with LEGACY_OPT_MOST_SLOTS of sources/kernel.h


def name(machine: Optional[str] = None) -> str:
    """Returns the file name of the library for a type of processor, by default this machine's."""
    return f"standalone-{hash_of(SOURCES)}-{machine or platform.machine()}.so"


def hash_of(sources: Sequence[str]) -> str:
    """Returns a hash of the sources of a library and of flags."""
    texts = [(cache.SOURCES / each).read_text() for each in sources]
    return hashlib.sha256("\0".join([*_FLAGS, *texts]).encode()).hexdigest()[:16]


@functools.lru_cache(maxsize=None)
def library() -> ctypes.CDLL:
    """Returns the library; see `build`."""
    found = cache.opened(build())
    found.legacy_opt_update.argtypes = [_POINTER, _SIZE, _INT, _POINTER]
    found.legacy_opt_update.restype = None
    found.legacy_opt_sum.argtypes = [_POINTER, _SIZE, _POINTER, _INT, _POINTER]
    found.legacy_opt_sum.restype = None
    return found


def build() -> Path:
    """Returns the library's path; compiles it if neither legacy-opt-native nor the cache has it.

    Raises:
      NoCompilerError: there is no C++ compiler, or it fails.
    """
    return cache.prebuilt(name()) or compiled_file(name())


def compiled_file(file_name: str, source: str = SOURCES[0], *flags: str) -> Path:
    """Returns the path of a library in the cache; compiles it if it is not there."""
    path = cache.folder() / file_name
    if not path.exists():
        compile_file([*cache.find_compiler("C++", "CXX", "c++"), *flags], path, source)
    cache.check_owner(path)
    return path


def compile_file(command: List[str], path: Path, source: str = SOURCES[0]) -> None:
    """Compiles a library with a C++ compiler; see `cache.compile_library`."""
    text = (cache.SOURCES / source).read_text()
    cache.compile_library([*command, *_FLAGS], text, ".cc", path)


class Update(NamedTuple):
    """An update of arrays by a kernel, which changes the arrays in place. Nothing is checked.

    Attributes:
      kernel: the kernel.
      value: the variable's value, contiguous. The last two axes are rows and columns of matrices.
      gradient: the gradient of the whole variable, or of the rows in the order of `ids`.
      slots: the values of all slots by name, contiguous. A scalar slot needs only one element.
      ids: the numbers of the rows to update; None for the whole variable.
      all_rows: whether the other rows get a gradient of zero.
    """

    kernel: Kernel
    value: Any
    gradient: Any
    slots: Mapping[str, Any]
    ids: Any = None
    all_rows: bool = False

    @property
    def row(self) -> List[int]:
        """The update as a row of a table, without the address of the scalars."""
        ids = 0 if self.ids is None else self.ids.ctypes.data
        slots = [self.slots[each.name].ctypes.data for each in self.kernel.inputs.all_slots]
        return self.row_at(self.value.ctypes.data, self.gradient.ctypes.data, ids, slots)

    def row_at(self, value: int, gradient: int, ids: int, slots: Sequence[int]) -> List[int]:
        """Returns the row with these addresses. The arrays may be those of any library."""
        shape, size = self.value.shape, self.value.size
        rows, columns = shape[-2:] if len(shape) > 1 else (1, size)
        count = 0
        if self.ids is not None:
            rows, count = shape[0], len(self.ids)
        found = [self.kernel.address, 0, value, gradient, size, rows, columns, ids, count]
        found += [int(self.all_rows), *slots]
        return found + [0] * (_WIDTH - len(found))


class Scalars:
    """The scalars of a kernel, in the memory that rows of a table name by `address`.

    Args:
      kernel: the kernel.
      values: a dict from names to scalars, arrays of the kernel's dtypes.
    """

    def __init__(self, kernel: Kernel, values: Mapping[str, Any]) -> None:
        self._values = [np.array(values[each.name]) for each in kernel.inputs.scalars]
        self._addresses = np.array([each.ctypes.data for each in self._values] + [0], np.int64)
        self.address = self._addresses.ctypes.data


def run(table: np.ndarray, threads: int = 1, team: Optional[int] = None) -> None:
    """Runs updates: the rows of an array of int64, in their order.

    Args:
      table: the updates. What they name must be in memory.
      threads: the number of threads, which does not change the results.
      team: the address of GOMP_parallel in the OpenMP whose threads are used; None for new threads.
    """
    library().legacy_opt_update(table.ctypes.data, len(table), threads, team)


def sum_of_gradients(
    kernel: Kernel, gradients: Sequence[Tuple[int, int]], threads: int, team: Optional[int] = None
) -> float:
    """Returns the sum over all gradients that a kernel with one sum and no scalars computes.

    `gradients` are pairs of the address and the number of elements. See `run` for other arguments.
    """
    table, total = np.zeros((len(gradients), _WIDTH), np.int64), np.zeros(1)
    table[:, KERNEL] = kernel.address
    table[:, [GRADIENT, SIZE]] = np.reshape(gradients, (-1, 2))
    table[:, VALUE] = table[:, GRADIENT]  # not used
    library().legacy_opt_sum(table.ctypes.data, len(table), total.ctypes.data, threads, team)
    return float(total[0])


def update(
    kernel: Kernel,
    value: np.ndarray,
    gradient: np.ndarray,
    slots: Mapping[str, np.ndarray],
    scalars: Mapping[str, Any],
    rows: Any = None,
) -> None:
    """Runs one `Update` in this thread.

    Raises:
      NoCompilerError: see `build`.
    """
    ids = None if rows is None else np.require(rows, np.int64, ["C_CONTIGUOUS", "ALIGNED"])
    table = np.array([Update(kernel, value, gradient, slots, ids).row])
    held = Scalars(kernel, scalars)
    table[:, SCALARS] = held.address
    run(table)

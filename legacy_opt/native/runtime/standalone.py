"""Builds and loads a library that runs kernels on NumPy arrays, without TensorFlow."""

from __future__ import annotations

import ctypes
import functools
import hashlib
import platform
from pathlib import Path
from typing import Any, List, Mapping, Optional, Sequence

import numpy as np

from legacy_opt.native.runtime import cache
from legacy_opt.native.runtime.compiled_kernels import Kernel

_SOURCES = ("standalone.cc", "update.h", "kernel.h")
_FLAGS = ["-std=c++14", "-O2", "-fPIC", "-shared", "-pthread", "-fvisibility=hidden", "-w"]
_INT, _SIZE, _POINTER = ctypes.c_int32, ctypes.c_int64, ctypes.c_void_p
# The first parameters of the C functions: kernel, value, slots, gradient, size.
_ARRAYS = [_POINTER, _POINTER, _POINTER, _POINTER, _SIZE]


def name(machine: Optional[str] = None) -> str:
    """Returns the file name of the library for a type of processor, by default this machine's."""
    texts = [(cache.SOURCES / each).read_text() for each in _SOURCES]
    key = hashlib.sha256("\0".join([*_FLAGS, *texts]).encode()).hexdigest()
    return f"standalone-{key[:16]}-{machine or platform.machine()}.so"


@functools.lru_cache(maxsize=None)
def library() -> ctypes.CDLL:
    """Returns the library; see `build`."""
    found = cache.opened(build())
    update_array, update_rows = found.legacy_opt_update_array, found.legacy_opt_update_rows
    update_array.argtypes = [*_ARRAYS, _SIZE, _SIZE, _POINTER, _INT]
    update_rows.argtypes = [*_ARRAYS, _POINTER, _SIZE, _SIZE, _INT, _POINTER, _INT]
    update_array.restype = None
    update_rows.restype = None
    return found


def build() -> Path:
    """Returns the library's path; compiles it if neither legacy-opt-native nor the cache has it.

    Raises:
      NoCompilerError: there is no C++ compiler, or it fails.
    """
    prebuilt = cache.prebuilt(name())
    if prebuilt:
        return prebuilt
    path = cache.folder() / name()
    if not path.exists():
        compile_file(cache.find_compiler("C++", "CXX", "c++"), path)
    cache.check_owner(path)
    return path


def compile_file(command: List[str], path: Path) -> None:
    """Compiles the library with a C++ compiler; see `cache.compile_library`."""
    source = (cache.SOURCES / _SOURCES[0]).read_text()
    cache.compile_library([*command, *_FLAGS], source, ".cc", path)


def update(
    kernel: Kernel,
    value: np.ndarray,
    gradient: np.ndarray,
    slots: Mapping[str, np.ndarray],
    scalars: Mapping[str, np.ndarray],
    rows: Any = None,
    all_rows: bool = False,
    threads: int = 1,
) -> None:
    """Updates arrays in place by a kernel. The arrays are not checked.

    Args:
      kernel: the kernel.
      value: the variable's value, contiguous. The last two axes are rows and columns of matrices.
      gradient: the gradient of the whole variable, or of the rows in the order of `rows`.
      slots: the values of all slots by name, contiguous. A scalar slot needs only one element.
      scalars: the values of the program's scalars by name, in the scalars' dtypes.
      rows: the numbers of the rows to update, without duplicates; None for the whole variable.
      all_rows: whether the slots of the other rows fade (see `FADE`).
      threads: the number of threads.

    Raises:
      NoCompilerError: see `build`.
    """
    inputs = kernel.inputs
    table = ctypes.addressof(kernel.table)
    in_slots = _addresses([slots[each.name] for each in inputs.all_slots])
    in_scalars = _addresses([np.asarray(scalars[each.name]) for each in inputs.scalars])
    arrays = table, value.ctypes.data, in_slots, gradient.ctypes.data, value.size
    if rows is None:
        matrix_shape = value.shape[-2:] if value.ndim > 1 else (1, value.size)
        library().legacy_opt_update_array(*arrays, *matrix_shape, in_scalars, threads)
    else:
        ids = np.require(rows, np.int64, ["C_CONTIGUOUS", "ALIGNED"])
        row_arguments = ids.ctypes.data, ids.size, len(value), all_rows
        library().legacy_opt_update_rows(*arrays, *row_arguments, in_scalars, threads)


def _addresses(arrays: Sequence[np.ndarray]) -> Any:
    """Returns the addresses of arrays, followed by NULL, as an object that keeps the arrays."""
    array_type = _POINTER * (len(arrays) + 1)
    found = array_type(*[each.ctypes.data for each in arrays], None)
    found.arrays = arrays
    return found

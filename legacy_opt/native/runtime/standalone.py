"""Builds and loads a library that runs kernels on NumPy arrays, without TensorFlow."""

from __future__ import annotations

import ctypes
import functools
import platform
from pathlib import Path
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple

import numpy as np

from legacy_opt.native.runtime import cache
from legacy_opt.native.runtime.compiled_kernels import Kernel

SOURCES = ("standalone.cc", "update.h", "kernel.h")
FLAGS = ["-std=c++14", "-O2", "-fPIC", "-shared", "-pthread", "-fvisibility=hidden", "-w"]

# An update is a row of a table of int64, the struct Update in sources/standalone.cc.
KERNEL, SCALARS, IDS, COUNT, ALL_ROWS, VALUE, GRADIENT, SIZE = range(8)
_WIDTH = 10 + 8  # with LEGACY_OPT_MOST_SLOTS of sources/kernel.h


def name(machine: Optional[str] = None) -> str:
    """Returns the file name of the library for a type of processor, by default this machine's."""
    return f"standalone-{cache.hash_of(SOURCES, FLAGS)}-{machine or platform.machine()}.so"


@functools.lru_cache(maxsize=None)
def library() -> ctypes.CDLL:
    """Returns the library; see `build`."""
    found = cache.opened(build())
    types = [ctypes.c_void_p, ctypes.c_int64, ctypes.c_int32, ctypes.c_void_p]
    found.legacy_opt_update.argtypes = found.legacy_opt_sum.argtypes = types
    found.legacy_opt_sum.restype = ctypes.c_double
    return found


def build(names: Sequence[str] = (), source: str = SOURCES[0], *flags: str) -> Path:
    """Returns a library's path; compiles it if neither legacy-opt-native nor the cache has it.

    `names` are its possible file names, the best first. Raises errors like `cache.compile_library`.
    """
    names = names or [name()]
    for prebuilt in filter(None, map(cache.prebuilt, names)):
        return prebuilt
    path = cache.folder() / names[0]
    if not path.exists():
        compile_file([*cache.find_compiler("C++", "CXX", "c++"), *flags], path, source)
    cache.check_owner(path)
    return path


def compile_file(command: List[str], path: Path, source: str = SOURCES[0]) -> None:
    """Compiles a library with a C++ compiler; see `cache.compile_library`."""
    text = (cache.SOURCES / source).read_text()
    cache.compile_library([*command, *FLAGS], text, ".cc", path)


class Update(NamedTuple):
    """An update of arrays by a kernel, which changes the arrays in place. Nothing is checked."""

    kernel: Kernel
    value: Any  # contiguous; its last two axes are rows and columns of matrices
    gradient: Any  # of the whole variable, or of the rows in the order of `ids`
    slots: Mapping[str, Any]  # all slots, contiguous; one element of a scalar slot is enough
    ids: Any = None  # the numbers of the rows to update; None for the whole variable
    all_rows: bool = False  # whether the other rows get a gradient of zero

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
        found = [self.kernel.address, 0, ids, count, int(self.all_rows)]
        found += [value, gradient, size, rows, columns, *slots]
        return found + [0] * (_WIDTH - len(found))


class Table:
    """Updates that are made in one call, perhaps again with other scalars.

    `updates` are tuples of a number, an `Update`, and the number of its scalars. They are made in
    the order of their first numbers: `order` has their positions. The rows `numbers` of int64
    contain addresses of arrays, which must be in memory in `run`.
    """

    def __init__(self, updates: Sequence[Tuple[int, Update, int]]) -> None:
        # Small variables of the same kernel are shared out among threads.
        keys = [(first, each.kernel.identity, which) for first, each, which in updates]
        self.order = sorted(range(len(keys)), key=keys.__getitem__)
        updates = [updates[i] for i in self.order]
        self.numbers = np.array([each.row for _, each, _ in updates], np.int64)
        self._alike: Dict[Tuple[Any, int], Tuple[Kernel, List[int]]] = {}
        for i, (_, each, which) in enumerate(updates):
            key = each.kernel.identity, which
            self._alike.setdefault(key, (each.kernel, []))[1].append(i)

    def run(
        self, scalars: Sequence[Mapping[str, Any]], threads: int = 1, team: Optional[int] = None
    ) -> None:
        """Makes the updates. The number of threads does not change the results.

        `team` is the address of GOMP_parallel in the OpenMP whose threads are used; without it,
        there are new threads.
        """
        held = []  # in memory until the call
        for (_, which), (kernel, places) in self._alike.items():
            inputs, given = kernel.inputs.scalars, scalars[which]
            values = [_scalar(given[each.name], each.dtype) for each in inputs]
            addresses = np.array([each.ctypes.data for each in values] + [0], np.int64)
            self.numbers[places, SCALARS] = addresses.ctypes.data
            held.append((values, addresses))
        library().legacy_opt_update(self.numbers.ctypes.data, len(self.numbers), threads, team)


def _scalar(value: Any, dtype: str) -> np.ndarray:
    array = np.array(value).reshape(())
    # Old versions of NumPy do not find bfloat16 by its name.
    return array if array.dtype.name == dtype else array.astype(dtype)


def sum_of_gradients(
    kernel: Kernel, gradients: Sequence[Tuple[int, int]], threads: int, team: Optional[int] = None
) -> float:
    """Returns the sum over all gradients that a kernel with one sum and no scalars computes.

    `gradients` are pairs of address and number of elements. See `Table.run` for other arguments.
    """
    table = np.zeros((len(gradients), _WIDTH), np.int64)
    table[:, KERNEL] = kernel.address
    table[:, [GRADIENT, SIZE]] = gradients
    return library().legacy_opt_sum(table.ctypes.data, len(table), threads, team)


def update(
    kernel: Kernel,
    value: np.ndarray,
    gradient: np.ndarray,
    slots: Mapping[str, np.ndarray],
    scalars: Mapping[str, Any],
    rows: Any = None,
) -> None:
    """Runs one `Update` in this thread; raises errors like `build`."""
    ids = None if rows is None else np.require(rows, np.int64, ["C_CONTIGUOUS", "ALIGNED"])
    Table([(0, Update(kernel, value, gradient, slots, ids), 0)]).run([scalars])

"""Compiles programs to kernels, and runs kernels on NumPy arrays."""

from __future__ import annotations

import ctypes
import functools
from typing import Any, Mapping, NamedTuple, Sequence, Tuple

import numpy as np

from legacy_opt.native.compiler.emit import emit
from legacy_opt.native.compiler.emitter import MOST_SCALARS, MOST_SLOTS
from legacy_opt.native.compiler.inputs import KernelInputs, inputs_of
from legacy_opt.native.runtime import cache
from legacy_opt.programs.program import Input, Program

ABI = 2  # LEGACY_OPT_ABI of sources/kernel.h
_INT = ctypes.c_int32
_SIZE = ctypes.c_int64
_POINTER = ctypes.c_void_p
_POINTERS = ctypes.POINTER(ctypes.c_void_p)
_ARRAYS = [_POINTER, _POINTERS, _POINTER]  # value, slots, gradient
_BUFFERS = [_POINTER, _POINTER, _POINTER]  # hoisted, row, columns
_function = functools.partial(ctypes.CFUNCTYPE, None)


class _KernelTable(ctypes.Structure):
    """The struct legacy_opt_kernel; sources/kernel.h explains its fields."""

    _fields_ = [
        ("abi", _INT),
        ("hoisted_bytes", _INT),
        ("dtype", _INT),
        ("scalars", _INT),
        ("slots", _INT),
        ("row_slots", _INT),
        ("column_slots", _INT),
        ("scalar_slots", _INT),
        ("sums", _INT),
        ("scalar_dtypes", _INT * MOST_SCALARS),
        ("slot_dtypes", _INT * MOST_SLOTS),
        ("prepare", _function(_POINTERS, _POINTERS, _POINTER)),
        ("prepare_row", _function(_POINTERS, _POINTER)),
        ("reduce", _function(*_ARRAYS, _POINTER, _SIZE, _POINTER)),
        ("after_sums", _function(_POINTER, _SIZE, _POINTER)),
        ("update", _function(*_ARRAYS, _POINTER, _SIZE)),
        ("fade", _function(_POINTERS, _POINTER, _SIZE)),
        ("finish", _function(_POINTERS, _POINTER)),
        ("add", _function(_POINTER, _POINTER, _SIZE)),
        ("row_sums", _INT),
        ("column_sums", _INT),
        ("row_bytes", _INT),
        ("column_values", _INT),
        ("reduce_lines", _function(*_ARRAYS, _POINTER, _SIZE, _POINTER, _POINTER)),
        ("after_rows", _function(_POINTERS, _POINTER, _SIZE, _SIZE, _POINTER, _POINTER)),
        ("after_columns", _function(_POINTERS, _POINTER, _SIZE, _SIZE, _POINTER, _POINTER)),
        ("reduce_row", _function(*_ARRAYS, *_BUFFERS, _SIZE, _POINTER)),
        ("update_row", _function(*_ARRAYS, *_BUFFERS, _SIZE)),
    ]


class Kernel(NamedTuple):
    """A compiled program, in a loaded library."""

    program: Program
    inputs: KernelInputs
    key: str  # see `cache.key_of`
    library: ctypes.CDLL

    @property
    def table(self) -> Any:
        """The kernel's table, a `ctypes.Structure`."""
        return _KernelTable.in_dll(self.library, "legacy_opt_table")

    @property
    def has_matrices(self) -> bool:
        """Whether there are values or slots of matrices, or of their rows or columns."""
        return self.program.has_matrices or self.inputs.have_matrices


def compiled(program: Program, slots: Sequence[Input] = ()) -> Kernel:
    """Returns the kernel of a program; compiles the program if there is no compiled kernel yet.

    Args:
      program: the program.
      slots: all slots of the variable.

    Raises:
      UnsupportedError: see `emit` and `cache.load`.
    """
    key, library = cache.load(emit(program, slots))
    inputs = inputs_of(program, slots)
    kernel = Kernel(program, inputs, key, library)
    try:
        table = kernel.table
    except ValueError:  # the library has no such symbol
        raise cache.NoCompilerError(
            f"The file {library._name} contains no kernel. Delete the file."
        ) from None
    counts = table.scalars, table.slots, table.row_slots, table.column_slots
    if table.abi != ABI or counts != tuple(map(len, inputs[:4])):
        raise cache.NoCompilerError(
            f"The kernel {library._name} does not fit its rule. Delete the file."
        )
    return kernel


def run(
    kernel: Kernel,
    value: np.ndarray,
    gradient: np.ndarray,
    slots: Mapping[str, np.ndarray],
    scalars: Mapping[str, np.ndarray],
    rows: Any = None,
) -> None:
    """Runs a kernel on arrays, which are updated in place.

    `updates.check` calls this function. It uses a single thread, and does not use TensorFlow.

    Args:
      kernel: the kernel.
      value: the variable's value, contiguous. The shapes of arrays matter only if the kernel
        `has_matrices`, or if `rows` is given.
      gradient: the gradient of the whole variable, or of the rows in the order of `rows`.
      slots: the values of all slots by name, contiguous. For a scalar slot, only the first element
        of the array is used.
      scalars: the values of the program's scalars by name, in the scalars' dtypes.
      rows: the numbers of the rows to update, without duplicates; None for the whole variable.
    """
    inputs, table = kernel.inputs, kernel.table
    # The buffer for values that are computed once per update or row.
    hoisted = ctypes.create_string_buffer(table.hoisted_bytes + 64)
    element_slots = [slots[each.name] for each in inputs.slots]
    row_slots = [slots[each.name] for each in inputs.row_slots]
    scalar_slots = addresses([slots[each.name] for each in inputs.scalar_slots])
    scalar_values = [np.asarray(scalars[each.name]) for each in inputs.scalars]
    table.prepare(addresses(scalar_values), scalar_slots, hoisted)
    if kernel.has_matrices:
        _update_matrices(kernel, value, slots, gradient, hoisted)
    elif rows is None:
        _update(table, value, element_slots, gradient, hoisted)
    else:
        if kernel.program.fades:
            for row in sorted(set(range(len(value))) - set(rows)):
                pointers = addresses([slot[row] for slot in element_slots])
                table.fade(pointers, hoisted, value[row].size)
        for i, row in enumerate(rows):
            if row_slots:
                table.prepare_row(addresses([slot[row : row + 1] for slot in row_slots]), hoisted)
            _update(
                table,
                value[row : row + 1],
                [slot[row : row + 1] for slot in element_slots],
                gradient[i : i + 1],
                hoisted,
            )
    if inputs.scalar_slots:
        table.finish(scalar_slots, hoisted)


def _update(
    table: Any, value: np.ndarray, slots: Sequence[np.ndarray], gradient: np.ndarray, hoisted: Any
) -> None:
    arrays = value.ctypes.data, addresses(slots), gradient.ctypes.data, hoisted
    if table.sums:
        sums = np.zeros(table.sums)
        table.reduce(*arrays, value.size, sums.ctypes.data)
        table.after_sums(sums.ctypes.data, value.size, hoisted)
    table.update(*arrays, value.size)


def _update_matrices(
    kernel: Kernel,
    value: np.ndarray,
    slots: Mapping[str, np.ndarray],
    gradient: np.ndarray,
    hoisted: Any,
) -> None:
    """Updates a stack of matrices; see `UpdateMatrices` in sources/update.h."""
    inputs, table = kernel.inputs, kernel.table
    rows, columns = value.shape[-2:]

    def row_pointers(index: Tuple[int, ...]) -> Tuple[int, Any, int]:
        """Returns pointers to the value, the slots and the gradient of a row."""
        slot_rows = addresses([slots[each.name][index] for each in inputs.slots])
        return value[index].ctypes.data, slot_rows, gradient[index].ctypes.data

    all_rows, buffers = [], []  # the arguments of functions for each row; the memory behind them
    for matrix in np.ndindex(value.shape[:-2]):
        row_sums = np.zeros((rows, table.row_sums))
        column_sums = np.zeros((table.column_sums, columns))
        row_buffers = np.zeros((rows, table.row_bytes), np.uint8)
        column_buffer = np.zeros(table.column_values * columns + 1)
        indices = [(*matrix, row) for row in range(rows)]
        if table.reduce_lines:
            for index, row_sum in zip(indices, row_sums):
                arrays = row_pointers(index)
                results = row_sum.ctypes.data, column_sums.ctypes.data
                table.reduce_lines(*arrays, hoisted, columns, *results)
        for line_slots, function, sums, buffer in (
            (inputs.row_slots, table.after_rows, row_sums, row_buffers),
            (inputs.column_slots, table.after_columns, column_sums, column_buffer),
        ):
            pointers = addresses([slots[each.name][matrix] for each in line_slots])
            function(pointers, sums.ctypes.data, rows, columns, hoisted, buffer.ctypes.data)
        buffers += [row_buffers, column_buffer]
        for index, buffer in zip(indices, row_buffers):
            addresses_of_buffers = buffer.ctypes.data, column_buffer.ctypes.data
            all_rows.append((*row_pointers(index), hoisted, *addresses_of_buffers, columns))
    if table.sums:
        totals = np.zeros(table.sums)
        for arguments in all_rows:
            sums_of_row = np.zeros(table.sums)
            table.reduce_row(*arguments, sums_of_row.ctypes.data)
            totals += sums_of_row
        table.after_sums(totals.ctypes.data, value.size, hoisted)
    for arguments in all_rows:
        table.update_row(*arguments)


def addresses(arrays: Sequence[np.ndarray]) -> Any:
    """Returns the addresses of arrays, and NULL; the arrays live as long as this object."""
    found = (ctypes.c_void_p * (len(arrays) + 1))(*[each.ctypes.data for each in arrays], None)
    found.arrays = arrays
    return found

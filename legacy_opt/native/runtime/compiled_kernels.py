"""Compiles programs to kernels, and runs kernels on NumPy arrays."""

from __future__ import annotations

import ctypes
from typing import Any, Mapping, NamedTuple, Sequence, Tuple

import numpy as np

from legacy_opt.native.compiler.emit import emit
from legacy_opt.native.compiler.program import MOST_SCALARS, MOST_SLOTS, Program
from legacy_opt.native.runtime import cache

ABI = 2  # LEGACY_OPT_ABI of sources/kernel.h
_POINTER = ctypes.c_void_p
_POINTERS = ctypes.POINTER(ctypes.c_void_p)
_SIZE = ctypes.c_int64
_OF_ROW = [_POINTER, _POINTERS, _POINTER, _POINTER, _POINTER, _POINTER]


class _Table(ctypes.Structure):
    """The struct legacy_opt_kernel of sources/kernel.h."""

    _fields_ = [
        *((name, ctypes.c_int32) for name in ("abi", "hoisted_bytes", "dtype", "scalars", "slots")),
        *((name, ctypes.c_int32) for name in ("row_slots", "column_slots", "scalar_slots", "sums")),
        ("scalar_dtypes", ctypes.c_int32 * MOST_SCALARS),
        ("slot_dtypes", ctypes.c_int32 * MOST_SLOTS),
        ("prepare", ctypes.CFUNCTYPE(None, _POINTERS, _POINTERS, _POINTER)),
        ("prepare_row", ctypes.CFUNCTYPE(None, _POINTERS, _POINTER)),
        (
            "reduce",
            ctypes.CFUNCTYPE(None, _POINTER, _POINTERS, _POINTER, _POINTER, _SIZE, _POINTER),
        ),
        ("after_sums", ctypes.CFUNCTYPE(None, _POINTER, _SIZE, _POINTER)),
        ("update", ctypes.CFUNCTYPE(None, _POINTER, _POINTERS, _POINTER, _POINTER, _SIZE)),
        ("fade", ctypes.CFUNCTYPE(None, _POINTERS, _POINTER, _SIZE)),
        ("finish", ctypes.CFUNCTYPE(None, _POINTERS, _POINTER)),
        ("add", ctypes.CFUNCTYPE(None, _POINTER, _POINTER, _SIZE)),
        *((name, ctypes.c_int32) for name in ("row_sums", "column_sums")),
        *((name, ctypes.c_int32) for name in ("row_bytes", "column_values")),
        (
            "reduce_lines",
            ctypes.CFUNCTYPE(
                None, _POINTER, _POINTERS, _POINTER, _POINTER, _SIZE, _POINTER, _POINTER
            ),
        ),
        *(
            (
                name,
                ctypes.CFUNCTYPE(None, _POINTERS, _POINTER, _SIZE, _SIZE, _POINTER, _POINTER),
            )
            for name in ("after_rows", "after_columns")
        ),
        ("reduce_row", ctypes.CFUNCTYPE(None, *_OF_ROW, _SIZE, _POINTER)),
        ("update_row", ctypes.CFUNCTYPE(None, *_OF_ROW, _SIZE)),
    ]


class Kernel(NamedTuple):
    """A compiled program.

    Attributes:
      program: the `Program`.
      key: the kernel's key, a hash; see `cache.key_of`.
      library: the loaded library.
    """

    program: Program
    key: str
    library: ctypes.CDLL

    @property
    def table(self) -> Any:
        """The kernel's table, a `ctypes.Structure`."""
        return _Table.in_dll(self.library, "legacy_opt_table")


def compiled(program: Program) -> Kernel:
    """Returns the kernel of a program; compiles the program if there is no compiled kernel yet.

    Raises:
      UnsupportedError: see `emit` and `cache.load`.
    """
    kernel = Kernel(program, *cache.load(emit(program)))
    try:
        table = kernel.table
    except ValueError:
        raise cache.NoCompilerError(
            f"The file {kernel.library._name} contains no kernel. Delete the file."
        ) from None
    expected = [len(each) for each in (program.scalars, program.slots, program.row_slots)]
    expected.append(len(program.column_slots))
    found = [table.scalars, table.slots, table.row_slots, table.column_slots]
    if table.abi != ABI or found != expected:
        raise cache.NoCompilerError(
            f"The kernel {kernel.library._name} does not fit its rule. Delete the file."
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

    This function is for checks. It uses a single thread, and does not use TensorFlow.

    Args:
      kernel: the kernel.
      value: the variable's value, contiguous. The shapes of arrays matter only if the kernel has
        matrices, or if `rows` is given.
      gradient: the gradient of the whole variable, or of the rows in the order of `rows`.
      slots: the values of all slots by name, contiguous. For a scalar slot, only the first element
        of the array is used.
      scalars: the values of the program's scalars by name, in the scalars' dtypes.
      rows: the numbers of the rows to update, without duplicates; None for the whole variable.
    """
    program, table = kernel.program, kernel.table
    hoisted = ctypes.create_string_buffer(table.hoisted_bytes + 64)
    element_slots = [slots[each.name] for each in program.slots]
    row_slots = [slots[each.name] for each in program.row_slots]
    scalar_slots = _pointers([slots[each.name] for each in program.scalar_slots])
    given = [np.asarray(scalars[each.name]) for each in program.scalars]
    table.prepare(_pointers(given), scalar_slots, hoisted)
    if program.has_matrices:
        _update_matrices(kernel, value, slots, gradient, hoisted)
    elif rows is None:
        _update(table, value, element_slots, gradient, hoisted)
    else:
        if program.fades:
            for row in sorted(set(range(len(value))) - set(rows)):
                pointers = _pointers([slot[row] for slot in element_slots])
                table.fade(pointers, hoisted, value[row].size)
        for i, row in enumerate(rows):
            if row_slots:
                table.prepare_row(_pointers([slot[row : row + 1] for slot in row_slots]), hoisted)
            _update(
                table,
                value[row : row + 1],
                [slot[row : row + 1] for slot in element_slots],
                gradient[i : i + 1],
                hoisted,
            )
    if program.scalar_slots:
        table.finish(scalar_slots, hoisted)


def _update(
    table: Any, value: np.ndarray, slots: Sequence[np.ndarray], gradient: np.ndarray, hoisted: Any
) -> None:
    arrays = value.ctypes.data, _pointers(slots), gradient.ctypes.data, hoisted
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
    program, table = kernel.program, kernel.table
    count = value.shape[-1]
    sums = np.zeros(table.sums)
    lines = []  # for each row: index, values of the row, values of the columns of its matrix
    for matrix in np.ndindex(value.shape[:-2]):
        rows = value.shape[-2]
        row_sums, column_sums = (
            np.zeros((rows, table.row_sums)),
            np.zeros((table.column_sums, count)),
        )
        if table.reduce_lines:
            for row in range(rows):
                arrays = _row(program, value, slots, gradient, (*matrix, row))
                to = row_sums[row].ctypes.data, column_sums.ctypes.data
                table.reduce_lines(*arrays, hoisted, count, *to)
        of_rows = np.zeros((rows, table.row_bytes), np.uint8)
        of_columns = np.zeros(table.column_values * count + 1)
        for names, function, of_lines, to, sizes in (
            (program.row_slots, table.after_rows, row_sums, of_rows, (rows, count)),
            (program.column_slots, table.after_columns, column_sums, of_columns, (rows, count)),
        ):
            pointers = _pointers([slots[each.name][matrix] for each in names])
            function(pointers, of_lines.ctypes.data, *sizes, hoisted, to.ctypes.data)
        lines += [((*matrix, row), of_rows[row], of_columns) for row in range(rows)]
    if table.sums:
        for index, of_row, of_columns in lines:
            part = np.zeros(table.sums)
            arrays = _row(program, value, slots, gradient, index)
            buffers = hoisted, of_row.ctypes.data, of_columns.ctypes.data
            table.reduce_row(*arrays, *buffers, count, part.ctypes.data)
            sums += part
        table.after_sums(sums.ctypes.data, value.size, hoisted)
    for index, of_row, of_columns in lines:
        arrays = _row(program, value, slots, gradient, index)
        table.update_row(*arrays, hoisted, of_row.ctypes.data, of_columns.ctypes.data, count)


def _row(
    program: Program,
    value: np.ndarray,
    slots: Mapping[str, np.ndarray],
    gradient: np.ndarray,
    index: Tuple[int, ...],
) -> Tuple[int, Any, int]:
    """Returns pointers to the value, the slots and the gradient of a row."""
    here = _pointers([slots[each.name][index] for each in program.slots])
    return value[index].ctypes.data, here, gradient[index].ctypes.data


def _pointers(arrays: Sequence[np.ndarray]) -> Any:
    return (ctypes.c_void_p * (len(arrays) + 1))(*[each.ctypes.data for each in arrays], None)

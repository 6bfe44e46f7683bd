"""Compiles programs to kernels."""

from __future__ import annotations

import ctypes
from typing import Any, NamedTuple, Sequence, Tuple

from legacy_opt.native.compiler.emit import emit
from legacy_opt.native.compiler.inputs import KernelInputs, inputs_of
from legacy_opt.native.runtime import cache
from legacy_opt.programs.program import Input, Program

ABI = 2  # LEGACY_OPT_ABI of sources/kernel.h


class _KernelTable(ctypes.Structure):
    """The first fields of the struct legacy_opt_kernel in sources/kernel.h."""

    _names = "abi hoisted_bytes dtype scalars slots row_slots column_slots"
    _fields_ = [(name, ctypes.c_int32) for name in _names.split()]


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
    def identity(self) -> Tuple[Any, ...]:
        """Equal for kernels that get the same inputs: names of inputs are not in the C source."""
        return (self.key, *self.inputs.names)

    @property
    def address(self) -> int:
        """The address of the kernel's table."""
        return ctypes.addressof(self.table)

    @property
    def has_matrices(self) -> bool:
        """Whether there are values or slots of matrices, or of their rows or columns."""
        return self.program.has_matrices or self.inputs.have_matrices


def compiled(program: Program, slots: Sequence[Input] = ()) -> Kernel:
    """Returns the kernel of a program, compiled if necessary; see `emit` and `cache.load`."""
    key, library = cache.load(emit(program, slots))
    kernel = Kernel(program, inputs_of(program, slots), key, library)
    try:
        table = kernel.table
    except ValueError:  # the library has no such symbol
        raise cache.NoCompilerError(
            f"The file {library._name} contains no kernel. Delete the file."
        ) from None
    counts = [table.scalars, table.slots, table.row_slots, table.column_slots]
    # `_KernelTable` has no count of scalar slots, the last field of `KernelInputs`.
    expected_counts = [len(each) for each in kernel.inputs[:4]]
    if table.abi != ABI or counts != expected_counts:
        raise cache.NoCompilerError(
            f"The kernel {library._name} does not fit its rule. Delete the file."
        )
    return kernel

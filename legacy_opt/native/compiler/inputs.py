"""The inputs of a kernel, in the order in which the kernel gets them."""

from __future__ import annotations

from typing import Iterable, List, NamedTuple, Tuple

from legacy_opt.programs import program as programs
from legacy_opt.programs.program import Input, Program

# The levels of the slots in each field of `KernelInputs` after `scalars`.
_LEVELS_OF_SLOTS = (
    (programs.ELEMENT,),
    (programs.ROW, programs.MATRIX_ROW),
    (programs.MATRIX_COLUMN,),
    (programs.SCALAR,),
)


class KernelInputs(NamedTuple):
    """The inputs of a kernel besides the gradient and the variable, sorted by their names."""

    scalars: List[Input]  # that the program reads
    slots: List[Input]  # with one value per element
    row_slots: List[Input]  # with one value per row, or per row of each matrix
    column_slots: List[Input]  # with one value per column of each matrix
    scalar_slots: List[Input]  # with one value per variable

    @property
    def all_slots(self) -> List[Input]:
        """All slots, in the order in which a kernel gets them."""
        return self.slots + self.row_slots + self.column_slots + self.scalar_slots

    @property
    def names(self) -> Tuple[Tuple[str, ...], ...]:
        """The names of the scalars and of the slots, in the order in which a kernel gets them."""
        scalars = tuple(each.name for each in self.scalars)
        return scalars, tuple(each.name for each in self.all_slots)

    @property
    def have_matrices(self) -> bool:
        """Whether there are slots of rows or columns of matrices."""
        return any(each.level in programs.OF_MATRICES for each in self.all_slots)


def inputs_of(program: Program, slots: Iterable[Input]) -> KernelInputs:
    """Returns the inputs of a program's kernel; `slots` are all slots of the variable."""
    scalars = [
        Input(node.detail[1], node.level, node.dtype)
        for node in program.nodes
        if node.operation == "Input" and node.detail[0] == programs.NUMBER
    ]
    by_name = sorted(slots, key=lambda each: each.name)
    return KernelInputs(
        sorted(dict.fromkeys(scalars), key=lambda each: each.name),
        *([each for each in by_name if each.level in levels] for levels in _LEVELS_OF_SLOTS),
    )

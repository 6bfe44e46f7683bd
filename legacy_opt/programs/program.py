"""Represents a traced update rule: inputs, operations and results."""

from __future__ import annotations

from typing import Any, Dict, Iterable, List, NamedTuple, Optional, Set, Tuple

# The level of a value: whether there is one value per update, per row of a sparse gradient, or per
# element. If the variable is a stack of matrices, there may also be one value per matrix, or per
# row or column of a matrix.
SCALAR, ROW, MATRIX, MATRIX_ROW, MATRIX_COLUMN, ELEMENT = range(6)
LINES = (MATRIX_ROW, MATRIX_COLUMN)  # a line is a row or a column of a matrix
_LEVELS_OF_SLOTS = (ELEMENT,), (ROW, MATRIX_ROW), (MATRIX_COLUMN,), (SCALAR,)

GRADIENT, VALUE = "gradient", "value"

# How a slot changes. ASSIGN: the slot gets a new value. ADD: a value is added to the slot. FADE:
# elements that a sparse gradient touches get a new value, and all other elements are multiplied by
# a factor.
ASSIGN, ADD, FADE = "assign", "add", "fade"

# Operations that reduce several values to one value. The values are all elements of a variable, the
# elements of a row or column of a matrix, or the values of all rows of a matrix.
SUMS = ("Sum", "Mean")

# The stage of a value: after which sums it can be computed. All sums of the same kind are computed
# in one pass over the variable. The lines of a matrix are its rows and its columns.
BEFORE_SUMS, AFTER_LINES, AFTER_MATRICES, AFTER_SUMS = range(4)
_STAGES = {
    MATRIX_ROW: AFTER_LINES,
    MATRIX_COLUMN: AFTER_LINES,
    MATRIX: AFTER_MATRICES,
    SCALAR: AFTER_SUMS,
}

# The limits of kernels, as in sources/kernel.h.
MOST_SLOTS, MOST_SCALARS, MOST_SUMS = 8, 32, 8


class UnsupportedError(ValueError):
    """A rule cannot be compiled. The message says why."""


class Input(NamedTuple):
    """An input of a rule.

    Attributes:
      name: `GRADIENT`, `VALUE`, or the name of a slot or scalar. A slot and a scalar may have the
        same name.
      level: the level, for example `SCALAR` or `ELEMENT`.
      dtype: the name of the input's dtype.
      is_slot: whether the input is a slot.
    """

    name: str
    level: int
    dtype: str
    is_slot: bool = False


class Node:
    """A value in a rule.

    Attributes:
      number: the position among the nodes of the program.
      operation: the type of the TensorFlow operation that computes the value, or "Input".
      dtype: the name of the value's dtype.
      inputs: a tuple of nodes.
      level: the level, for example `SCALAR` or `ELEMENT`.
      stage: the stage: `BEFORE_SUMS`, `AFTER_LINES` (after sums over rows or columns of matrices),
        `AFTER_MATRICES` (after sums over the rows' values) or `AFTER_SUMS` (after sums over all
        elements).
      detail: for an input, the `Input`; for a constant, the number; for a sum, the position among
        the program's sums of the same level.
    """

    def __init__(
        self,
        number: int,
        operation: str,
        dtype: str,
        inputs: Tuple[Node, ...],
        level: int,
        detail: Any = None,
    ) -> None:
        self.number = number
        self.operation = operation
        self.dtype = dtype
        self.inputs = inputs
        self.level = level
        self.detail = detail
        first_stage = _STAGES[level] if operation in SUMS else BEFORE_SUMS
        self.stage = max([first_stage, *(each.stage for each in inputs)])


class Change(NamedTuple):
    """A slot's change.

    Attributes:
      how: `ASSIGN`, `ADD` or `FADE`.
      node: the new value, or the value to add.
      factor: for `FADE`, the factor of the untouched elements; otherwise None.
    """

    how: str
    node: Node
    factor: Optional[Node] = None


class Program(NamedTuple):
    """A traced rule, from which C code is written.

    Attributes:
      dtype: the name of the variable's dtype.
      scalars: the scalar inputs that the rule uses.
      slots: the slots with one value per element.
      row_slots: the slots with one value per row, or per row of each matrix.
      column_slots: the slots with one value per column of each matrix.
      scalar_slots: the slots with one value per variable.
      nodes: all nodes, each after its inputs.
      value: the variable's new value.
      changes: a dict from the name of each changed slot to its `Change`.
    """

    dtype: str
    scalars: List[Input]
    slots: List[Input]
    row_slots: List[Input]
    column_slots: List[Input]
    scalar_slots: List[Input]
    nodes: List[Node]
    value: Node
    changes: Dict[str, Change]

    @property
    def names(self) -> Tuple[Tuple[str, ...], ...]:
        """The names of the scalars and of the slots, in the order in which a kernel gets them."""
        scalars, slots = self.scalars, self.all_slots
        return tuple(each.name for each in scalars), tuple(each.name for each in slots)

    @property
    def all_slots(self) -> List[Input]:
        """All slots, in the order in which a kernel gets them."""
        return self.slots + self.row_slots + self.column_slots + self.scalar_slots

    def sums(self, level: int) -> List[Node]:
        """Returns the sums of a level; the sums over all elements have the level `SCALAR`."""
        return [node for node in self.nodes if node.operation in SUMS and node.level == level]

    @property
    def has_matrices(self) -> bool:
        """Whether there are values that belong to matrices, or to their rows or columns."""
        return any(MATRIX <= each.level <= MATRIX_COLUMN for each in self.nodes + self.all_slots)

    @property
    def needs_all_elements(self) -> bool:
        """Whether an element's new value depends on other elements."""
        return bool(self.sums(SCALAR)) or self.has_matrices

    @property
    def fades(self) -> bool:
        """Whether a sparse update changes elements that the gradient does not touch."""
        return any(change.how == FADE for change in self.changes.values())


def needed_for(nodes: Iterable[Node]) -> Set[Node]:
    """Returns the nodes that a loop over elements must read or compute, to compute `nodes`."""
    needed: Set[Node] = set()
    waiting = list(nodes)
    while waiting:
        node = waiting.pop()
        if node.operation != "Const" and node not in needed:
            needed.add(node)
            if node.level == ELEMENT:
                waiting += node.inputs
    return needed


def program_from(
    dtype: str,
    inputs: Iterable[Input],
    nodes: Iterable[Node],
    roots: List[Node],
    changes: Dict[str, Change],
) -> Program:
    """Returns a program without the nodes and scalars that it does not need.

    Equal rules give equal programs, and so the same C code: nodes are numbered anew, and scalars
    and slots are sorted by their names.

    Args:
      dtype: the name of the variable's dtype.
      inputs: the inputs, in any order.
      nodes: all nodes, each after its inputs. They are changed.
      roots: the variable's new value, then the nodes that `changes` name.
      changes: see `Program`.
    """
    waiting, needed = list(roots), set()
    while waiting:
        node = waiting.pop()
        if node not in needed:
            needed.add(node)
            waiting += node.inputs
    kept = [node for node in nodes if node in needed]
    sums: Dict[int, int] = {}  # how many there are of each level
    for number, node in enumerate(kept):
        node.number = number
        if node.operation in SUMS:
            node.detail = sums.get(node.level, 0)
            sums[node.level] = node.detail + 1
    used = {node.detail for node in kept if node.operation == "Input"}
    by_name = sorted(inputs, key=lambda each: each.name)
    slots = [each for each in by_name if each.is_slot]
    return Program(
        dtype,
        [each for each in by_name if not each.is_slot and each.level == SCALAR and each in used],
        *([each for each in slots if each.level in levels] for levels in _LEVELS_OF_SLOTS),
        nodes=kept,
        value=roots[0],
        changes=changes,
    )


def check(program: Program) -> None:
    """Raises an UnsupportedError if kernels do not support the program."""
    slots = {each.name: each for each in program.all_slots}
    for name, change in program.changes.items():
        slot = slots[name]
        levels = {slot.level, SCALAR, MATRIX} if slot.level in LINES else range(slot.level + 1)
        if slot.level < ELEMENT and (
            change.node.level not in levels or change.node.stage == AFTER_SUMS
        ):
            raise UnsupportedError(
                f"the slot {name!r} has no value per element, but its new value needs one"
            )
        if change.how == ADD and slot.level in (*LINES, ELEMENT):
            raise UnsupportedError(f"kernels do not support an addition to the slot {name!r}")
        if change.how == FADE and (slot.level < ELEMENT or change.factor.level != SCALAR):
            raise UnsupportedError(
                f"kernels cannot multiply the slot {name!r} by a factor, unless the slot has a "
                "value per element and the factor is a scalar"
            )
    for node in program.nodes:
        latest = AFTER_LINES if node.level == MATRIX_COLUMN else AFTER_SUMS - 1
        if node.level in (MATRIX, *LINES) and node.stage > latest:
            raise UnsupportedError(
                "kernels cannot compute a value per row or column from a sum over all elements"
            )
        is_sum = node.operation in SUMS and node.level in LINES
        if is_sum and any(
            MATRIX <= each.level <= MATRIX_COLUMN for each in needed_for(node.inputs)
        ):
            raise UnsupportedError(
                "kernels cannot read slots of rows or columns in a sum over rows or columns"
            )

"""A traced rule: its inputs, operations and results."""

from __future__ import annotations

from typing import Any, Dict, List, NamedTuple, Optional, Tuple

# The level of a value says whether it belongs to the whole update, to a row, or to an element.
SCALAR, ROW, ELEMENT = range(3)

GRADIENT, VALUE = "gradient", "value"

# How a slot changes. ASSIGN: it gets a new value. ADD: a value is added. FADE: touched elements get
# a new value, and all others are multiplied by a factor.
ASSIGN, ADD, FADE = "assign", "add", "fade"

# Operations that combine all elements of a variable.
SUMS = ("Sum", "Mean")

# The limits of kernels, as in sources/kernel.h.
MOST_SLOTS, MOST_SCALARS, MOST_SUMS = 8, 32, 8


class UnsupportedError(ValueError):
    """A rule cannot be compiled. The message says why."""


class Input(NamedTuple):
    """An input of a rule.

    Attributes:
      name: `GRADIENT`, `VALUE`, or the name of a slot or scalar. A slot and a scalar may have the
        same name.
      level: `SCALAR`, `ROW` or `ELEMENT`.
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
      number: the position among the nodes of its program.
      operation: the type of the TensorFlow operation that computes the value, or "Input".
      dtype: the name of its dtype.
      inputs: a tuple of nodes.
      level: `SCALAR`, `ROW` or `ELEMENT`.
      after_sums: whether it depends on a sum over all elements.
      detail: the `Input` of an input; the value of a constant; for a sum, its position among the
        sums of the program.
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
        self.after_sums = operation in SUMS or any(each.after_sums for each in inputs)


class Change(NamedTuple):
    """A slot's change.

    Attributes:
      how: `ASSIGN`, `ADD` or `FADE`.
      node: the new value, or the value to add.
      factor: the factor of untouched elements for `FADE`; otherwise None.
    """

    how: str
    node: Node
    factor: Optional[Node] = None


class Program(NamedTuple):
    """A rule, ready to be written as C.

    Attributes:
      dtype: the name of the variable's dtype.
      scalars: the scalar inputs that the rule uses.
      slots: the slots with one value per element.
      row_slots: the slots with one value per row.
      scalar_slots: the slots with one value per variable.
      nodes: all nodes, each after its inputs.
      sums: the nodes whose operation is in `SUMS`.
      value: the variable's new value.
      changes: a dict from the name of each changed slot to its `Change`.
    """

    dtype: str
    scalars: List[Input]
    slots: List[Input]
    row_slots: List[Input]
    scalar_slots: List[Input]
    nodes: List[Node]
    sums: List[Node]
    value: Node
    changes: Dict[str, Change]

    @property
    def all_slots(self) -> List[Input]:
        """All slots, in the order in which a kernel gets them."""
        return self.slots + self.row_slots + self.scalar_slots

    @property
    def fades(self) -> bool:
        """Whether a sparse update changes elements that the gradient does not touch."""
        return any(change.how == FADE for change in self.changes.values())

"""Programs: the update of a variable as data, which kernels compile and records contain.

A program is traced from TensorFlow operations (`trace`), and needs no TensorFlow itself.
"""

from __future__ import annotations

import functools
from typing import Any, Dict, Iterable, List, Mapping, NamedTuple, Optional, Sequence, Set, Tuple

from legacy_opt.core.count_layout import CountLayout
from legacy_opt.programs.operations import SUMS

# The level of a value: whether there is one value per update, per row of a sparse gradient, or per
# element. If the variable is a stack of matrices, there may also be one value per matrix, or per
# row or column of a matrix. The order matters: an operation has the highest level of its operands.
LEVELS = ("scalar", "row", "matrix", "matrix_row", "matrix_column", "element")
SCALAR, ROW, MATRIX, MATRIX_ROW, MATRIX_COLUMN, ELEMENT = LEVELS
LINES = (MATRIX_ROW, MATRIX_COLUMN)  # a line is a row or a column of a matrix
OF_MATRICES = (MATRIX, *LINES)
# The sums over parts of a variable, as (level of the operand, level of the sum).
SUMS_OF_LEVELS = (
    (ELEMENT, SCALAR),
    (ELEMENT, MATRIX_ROW),
    (ELEMENT, MATRIX_COLUMN),
    (MATRIX_ROW, MATRIX),
)

# The kinds of inputs, and the names of the inputs of the kind TENSOR.
TENSOR, SLOT, NUMBER = "tensor", "slot", "scalar"
GRADIENT, VALUE = "gradient", "value"
FACTOR = "gradient_factor_0"  # the scalar by which `Program.scaled` multiplies the gradient

# How a slot changes. ASSIGN: the slot gets a new value. ADD: a value is added to the slot. FADE:
# elements that a sparse gradient touches get a new value, and all other elements are multiplied by
# a factor.
ASSIGN, ADD, FADE = "assign", "add", "fade"

# The stage of a value tells after which sums the value can be computed. All sums of the same stage
# are computed in one pass over the variable.
BEFORE_SUMS, AFTER_LINES, AFTER_MATRICES, AFTER_SUMS = range(4)
_STAGES_OF_SUMS = {
    MATRIX_ROW: AFTER_LINES,
    MATRIX_COLUMN: AFTER_LINES,
    MATRIX: AFTER_MATRICES,
    SCALAR: AFTER_SUMS,
}


class UnsupportedError(ValueError):
    """A rule cannot be compiled. The message says why."""


class Input(NamedTuple):
    """An input of a rule."""

    name: str  # `GRADIENT`, `VALUE`, or a name that both a slot and a scalar may have
    level: str  # one of `LEVELS`
    dtype: str
    is_slot: bool = False

    @property
    def key(self) -> Tuple[str, str]:
        """The kind and the name, as in `Node.detail`."""
        if self.is_slot:
            return SLOT, self.name
        kind = TENSOR if self.level == ELEMENT else NUMBER
        return kind, self.name


class Node(NamedTuple):
    """A value of a program or function."""

    operation: str  # a name in `operations.OPERATIONS`, "Input" or "Const"
    dtype: str
    level: str  # one of `LEVELS`
    inputs: Tuple[int, ...] = ()  # the positions of the operands among the nodes
    detail: Any = None  # for an input, (kind, name); for a constant, the number


Nodes = Sequence[Node]


class Function(NamedTuple):
    """A function of scalars."""

    nodes: Tuple[Node, ...]  # each after its operands
    results: Mapping[str, int]  # from names to positions of nodes


class Change(NamedTuple):
    """The change of a slot."""

    how: str  # `ASSIGN`, `ADD` or `FADE`
    node: int  # the position of the new value, or of the value to add
    factor: Optional[int] = None  # for `FADE`, the position of the factor of the untouched elements


class Program(NamedTuple):
    """The update of a variable."""

    by_rows: bool  # whether it gets only touched rows; if not, sparse gradients are made dense
    nodes: Tuple[Node, ...]  # each after its operands
    value: int  # the position of the variable's new value
    changes: Mapping[str, Change]  # by names of slots

    @property
    def dtype(self) -> str:
        """The name of the variable's dtype."""
        return self.nodes[self.value].dtype

    @property
    def results(self) -> Set[int]:
        """The positions of the nodes that `value` and `changes` name."""
        changes = self.changes.values()
        factors = [each.factor for each in changes if each.factor is not None]
        return {self.value, *(each.node for each in changes), *factors}

    @property
    def has_matrices(self) -> bool:
        """Whether there are values that belong to matrices, or to their rows or columns."""
        return any(node.level in OF_MATRICES for node in self.nodes)

    @property
    def needs_all_elements(self) -> bool:
        """Whether an element's new value depends on other elements."""
        return bool(self.sums(SCALAR)) or self.has_matrices

    @property
    def fades(self) -> bool:
        """Whether a sparse update changes elements that the gradient does not touch."""
        return any(change.how == FADE for change in self.changes.values())

    def sums(self, level: str) -> List[int]:
        """Returns the positions of the sums of a level; `SCALAR` means sums over all elements."""
        sums = [i for i, node in enumerate(self.nodes) if node.operation in SUMS]
        return [i for i in sums if self.nodes[i].level == level]

    def needed_for(self, positions: Iterable[int]) -> Set[int]:
        """Returns the nodes that a loop over elements reads or computes to get some nodes."""
        needed: Set[int] = set()
        waiting = list(positions)
        while waiting:
            i = waiting.pop()
            if self.nodes[i].operation != "Const" and i not in needed:
                needed.add(i)
                if self.nodes[i].level == ELEMENT:
                    waiting += self.nodes[i].inputs
        return needed

    def pruned(self) -> Program:
        """Returns the program without the nodes that its results do not need.

        Equal rules give equal programs, and so the same C code.
        """
        nodes, places = needed_nodes(self.nodes, self.results)
        return self if len(nodes) == len(self.nodes) else self._moved(nodes, places)

    def scaled(self) -> Program:
        """Returns the program that first multiplies the gradient by the scalar `FACTOR`."""
        nodes: List[Node] = []
        places: Dict[Any, Any] = {None: None}
        for i, node in enumerate(self.nodes):
            if node.detail == (TENSOR, GRADIENT):
                nodes += [Node("Input", node.dtype, SCALAR, (), (NUMBER, FACTOR)), node]
                node = Node("Mul", node.dtype, node.level, (len(nodes) - 1, len(nodes) - 2))
            else:
                node = node._replace(inputs=tuple(map(places.get, node.inputs)))
            places[i] = len(nodes)
            nodes.append(node)
        return self._moved(nodes, places)

    def _moved(self, nodes: Iterable[Node], places: Mapping[Any, Any]) -> Program:
        """Returns the program with other nodes; `places` are new positions by old ones."""
        changes = {
            name: Change(each.how, places[each.node], places[each.factor])
            for name, each in self.changes.items()
        }
        return Program(self.by_rows, tuple(nodes), places[self.value], changes)


def needed_nodes(nodes: Nodes, results: Iterable[int]) -> Tuple[List[Node], Dict[Any, Any]]:
    """Returns the nodes that some results need, and a dict from old positions to new ones."""
    needed = set(results)
    for i in reversed(range(len(nodes))):
        if i in needed:
            needed.update(nodes[i].inputs)
    places: Dict[Any, Any] = {old: new for new, old in enumerate(sorted(needed))}
    kept = [nodes[i]._replace(inputs=tuple(map(places.get, nodes[i].inputs))) for i in places]
    return kept, {**places, None: None}  # None for changes without a factor


def numbers_of(*parts: Any) -> Set[str]:
    """Returns the names of the scalars that programs and functions read."""
    inputs = [node.detail for each in parts for node in each.nodes if node.operation == "Input"]
    return {name for kind, name in inputs if kind == NUMBER}


@functools.lru_cache(maxsize=None)
def sum_of_squares(dtype: str) -> Program:
    """Returns the program of kernels that add the squares of all elements of gradients."""
    nodes = (
        Node("Input", dtype, ELEMENT, (), (TENSOR, GRADIENT)),
        Node("Square", dtype, ELEMENT, (0,)),
        Node("Sum", dtype, SCALAR, (1,)),
        Node("Input", dtype, ELEMENT, (), (TENSOR, VALUE)),
        Node("Sub", dtype, ELEMENT, (3, 2)),
    )
    return Program(False, nodes, 4, {})


def stage_of(operation: str, level: str, stages: Iterable[int]) -> int:
    """Returns the stage of a node; `stages` are the stages of the operands."""
    earliest = _STAGES_OF_SUMS[level] if operation in SUMS else BEFORE_SUMS
    return max([earliest, *stages])


def stages(nodes: Nodes) -> List[int]:
    """Returns the stage of each node."""
    found: List[int] = []
    for node in nodes:
        found.append(stage_of(node.operation, node.level, [found[each] for each in node.inputs]))
    return found


def highest(levels: Iterable[str]) -> str:
    """Returns the highest of some levels."""
    return max(levels, key=LEVELS.index)


def joined_level(levels: Sequence[str]) -> Optional[str]:
    """Returns the level of an elementwise operation on these levels; None if there is none."""
    found = set(levels)
    if found.issuperset(LINES):
        found.add(ELEMENT)
    if ROW in found and found.intersection(OF_MATRICES):
        return None
    return highest(found)


def level_in_program(layout: str, by_rows: bool) -> str:
    """Returns the level of a slot; `layout` is its level, or its kind of counts."""
    if layout in CountLayout.KINDS:
        return ROW if by_rows else SCALAR
    return layout


def check(program: Program, slots: Iterable[Input]) -> None:
    """Raises an UnsupportedError if kernels do not support a program with these slots."""
    stage = stages(program.nodes)
    by_name = {each.name: each for each in slots}
    for name, change in program.changes.items():
        level = by_name[name].level
        lower = (SCALAR, MATRIX) if level in LINES else LEVELS[: LEVELS.index(level)]
        is_known = program.nodes[change.node].level in (level, *lower)
        is_late = stage[change.node] == AFTER_SUMS and level != SCALAR  # scalars are written last
        if level != ELEMENT and (not is_known or is_late):
            raise UnsupportedError(
                f"the slot {name!r} has no value per element, but its new value needs one"
            )
        if change.how == ADD and level in (*LINES, ELEMENT):
            raise UnsupportedError(f"kernels do not support an addition to the slot {name!r}")
        factor = None if change.factor is None else program.nodes[change.factor]
        if factor is not None and not (level == ELEMENT and factor.level == SCALAR):
            raise UnsupportedError(
                f"kernels cannot multiply the slot {name!r} by a factor, unless the slot has a "
                "value per element and the factor is a scalar"
            )
    for i, node in enumerate(program.nodes):
        latest = AFTER_LINES if node.level == MATRIX_COLUMN else AFTER_MATRICES
        if node.level in OF_MATRICES and stage[i] > latest:
            raise UnsupportedError(
                "kernels cannot compute a value per row or column from a sum over all elements"
            )
        is_sum = node.operation in SUMS and node.level in LINES
        needed = program.needed_for(node.inputs) if is_sum else ()
        if any(program.nodes[each].level in OF_MATRICES for each in needed):
            raise UnsupportedError(
                "kernels cannot read slots of rows or columns in a sum over rows or columns"
            )

"""Reads recorded rules, and checks everything that a target relies on.

A record is data, never code: a target interprets the nodes one by one.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, Dict, List, Mapping, NoReturn, Optional, Sequence, Tuple, Union

from legacy_opt.programs.operations import DTYPES, FLOATS, INTEGERS, SUMS, TABLE
from legacy_opt.recorded.records import (
    ADD,
    ASSIGN,
    CLIP_NORM,
    CLIPPINGS,
    ELEMENT,
    FADE,
    FORMAT,
    GRADIENT,
    LAYOUTS,
    LEVELS,
    NUMBER,
    SCALAR,
    SLOT,
    SUMS_OF_LEVELS,
    TENSOR,
    VALUE,
    VERSION,
    Change,
    Function,
    Group,
    Node,
    Number,
    Program,
    Record,
    RecordError,
    Scalar,
    Slot,
    joined_level,
    level_of,
)
from legacy_opt.recorded.writing import number_text

# Limits, so that a damaged or hostile file costs little time and memory.
# MOST_NODES are nodes and operands.
MOST_BYTES, MOST_NODES, MOST_NAMES, MOST_GROUPS = 4 << 20, 40_000, 1_000, 10_000
LONGEST_NAME = 1_000


def catalogue() -> Dict[str, Path]:
    """Returns the records in this package: a dict from names of optimizers to files."""
    folder = Path(__file__).with_name("rules")
    return {path.stem: path for path in sorted(folder.glob("*.json"))}


def load(source: Union[str, os.PathLike]) -> Record:
    """Reads a record.

    Args:
      source: the path of a file, or the name of an optimizer of the catalogue.

    Raises:
      RecordError: the file cannot be read, or is not a record that this version knows.
    """
    known = catalogue()
    path = Path(known.get(str(source), source))
    try:
        if not path.is_file():
            raise RecordError(
                f"{str(source)!r} is neither a file nor a recorded optimizer: {', '.join(known)}"
            )
        with open(str(path), "rb") as file:
            content = file.read(MOST_BYTES + 1)
    except OSError as error:
        raise RecordError(f"{str(source)!r} cannot be read: {error}") from error
    try:
        return loads(content)
    except RecordError as error:
        raise RecordError(f"{str(source)!r}: {error}") from error


def loads(text: Union[str, bytes]) -> Record:
    """Reads a record from JSON; see `load`."""
    if len(text) > MOST_BYTES:
        raise RecordError(f"a record has at most {MOST_BYTES} bytes")
    try:
        document = json.loads(text if isinstance(text, str) else text.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise RecordError(f"not a record: {type(error).__name__}: {error}"[:300]) from error
    return _Reader().record(document)


class _Reader:
    """Checks a document, and converts it to a `Record`. `_at` is the place, for error messages."""

    def __init__(self) -> None:
        self._at: List[str] = []
        self._count = 0

    def record(self, document: Any) -> Record:
        if not isinstance(document, dict) or document.get("format") != FORMAT:
            raise RecordError(f"not a record: there is no format {FORMAT!r}")
        version = document.get("version")
        if version != VERSION:
            raise RecordError(
                f"version {_shown(version)} of the format is not known: this legacy_opt reads "
                f"version {VERSION}. Record the optimizer again"
            )
        names = "after before clipping dtype fixed format global_step groups hyperparameters"
        fields = self._fields(document, f"{names} initial nonzero optimizer shared version")
        global_step = fields["global_step"]
        if global_step is not None:
            self._one_of("global_step", global_step, (*INTEGERS, "float32"))
        hyperparameters = self._scalars("hyperparameters", fields["hyperparameters"], True)
        shared = self._scalars("shared", fields["shared"], False)
        fixed = self._scalars("fixed", fields["fixed"], True)
        given = dict(hyperparameters, **shared)
        count = len(hyperparameters) + len(fixed) + len(shared) + 1
        if len({*given, *fixed, "global_step"}) < count:
            self._refuse("a name has two meanings")
        dtypes = {name: scalar.dtype for name, scalar in given.items()}
        if global_step is not None:
            dtypes["global_step"] = global_step
        before = self._function("before", fields["before"], dtypes)
        after = self._function("after", fields["after"], dtypes)
        for name, position in after.results.items():
            if name not in shared or after.nodes[position].dtype != shared[name].dtype:
                self._refuse(f"after: {_shown(name)} is no shared variable of this dtype")
        dtype = self._one_of("dtype", fields["dtype"], FLOATS)
        scalars = {name: before.nodes[each].dtype for name, each in before.results.items()}
        groups = self._list("groups", fields["groups"], MOST_GROUPS)
        clipping = fields["clipping"]
        if clipping is not None:
            self._one_of("clipping", clipping, CLIPPINGS)
            if CLIP_NORM not in hyperparameters or hyperparameters[CLIP_NORM].dtype != dtype:
                self._refuse(f"clipping: there is no hyperparameter {CLIP_NORM!r} of this dtype")
        found = Record(
            self._name("optimizer", fields["optimizer"]),
            dtype,
            global_step,
            hyperparameters,
            shared,
            before,
            after,
            tuple(self._group(i, each, dtype, scalars) for i, each in enumerate(groups)),
            clipping,
            fixed,
            tuple(self._list("nonzero", fields["nonzero"], MOST_NAMES)),
            self._dict("initial", fields["initial"]),
        )
        for what, names in ("nonzero", found.nonzero), ("initial", found.initial.values()):
            for name in names:
                self._one_of(what, name, tuple(hyperparameters))
        for name in found.initial:
            self._one_of("initial", name, [each for each, _, _ in found.starts])
        return found

    def _group(self, i: int, group: Any, dtype: str, scalars: Mapping[str, str]) -> Group:
        self._at.append(f"groups[{i}]")
        fields = self._fields(group, "dense first ranks slots sparse variables")
        variables, ranks = fields["variables"], fields["ranks"]
        if (variables is None) == (ranks is None):
            self._refuse("a group has either variables or ranks")
        if variables is not None:
            variables = {
                name: self._sizes(f"the shape of {_shown(name)}", shape, 32)
                for name, shape in self._dict("variables", variables, MOST_GROUPS).items()
            }
        else:
            ranks = tuple(self._list("ranks", ranks, 2))
            sizes = self._sizes("ranks", [each for each in ranks if each is not None], 2)
            if len(ranks) != 2 or ranks[0] is None or sizes[0] > sizes[-1]:
                self._refuse(f"ranks: {_shown(ranks)} has no rank")
        slots = {}
        for name, slot in self._dict("slots", fields["slots"]).items():
            parts = self._fields(slot, "dtype initial layout suffix")
            slots[name] = Slot(
                self._one_of("layout", parts["layout"], LAYOUTS),
                self._one_of("dtype", parts["dtype"], DTYPES),
                self._number(parts["initial"], parts["dtype"]),
                self._name("suffix", parts["suffix"]),
            )
        dense = self._program("dense", fields["dense"], dtype, slots, scalars)
        sparse = self._program("sparse", fields["sparse"], dtype, slots, scalars)
        first: Optional[Program] = None
        if fields["first"] is not None:
            program = self._program("first", fields["first"], dtype, {}, scalars)
            if isinstance(program, str) or not program.by_rows:
                self._refuse("first: expected a program of rows")
            first = program
        self._at.pop()
        return Group(variables, ranks, slots, dense, sparse, first)

    def _program(
        self,
        name: str,
        program: Any,
        dtype: str,
        slots: Mapping[str, Slot],
        scalars: Mapping[str, str],
    ) -> Union[Program, str]:
        if isinstance(program, str):
            return program[:LONGEST_NAME]
        self._at.append(name)
        fields = self._fields(program, "by_rows changes nodes value")
        by_rows = fields["by_rows"]
        if not isinstance(by_rows, bool) or (by_rows and name == "dense"):
            self._refuse(f"by_rows is {_shown(by_rows)}")
        inputs = {(NUMBER, each): (SCALAR, its_dtype) for each, its_dtype in scalars.items()}
        inputs.update({(TENSOR, each): (ELEMENT, dtype) for each in (GRADIENT, VALUE)})
        for each, slot in slots.items():
            inputs[SLOT, each] = (level_of(slot.layout, by_rows), slot.dtype)
        nodes = self._nodes(fields["nodes"], inputs)
        if by_rows and any(n.level.startswith("matrix") or n.operation in SUMS for n in nodes):
            self._refuse("an update of rows has a sum")
        value = self._position("value", fields["value"], nodes, ELEMENT, dtype)
        changes = {}
        for slot_name, change in self._dict("changes", fields["changes"]).items():
            if slot_name not in slots:
                self._refuse(f"changes: there is no slot {_shown(slot_name)}")
            changes[slot_name] = self._change(change, nodes, inputs[SLOT, slot_name])
        self._at.pop()
        return Program(by_rows, nodes, value, changes)

    def _change(self, change: Any, nodes: Sequence[Node], slot: Tuple[str, str]) -> Change:
        parts = self._list("changes", change, 3)
        level, dtype = slot
        how = parts[0] if parts else None
        if how not in (ASSIGN, ADD, FADE) or len(parts) != (3 if how == FADE else 2):
            self._refuse(f"changes: {_shown(change)} is no change")
        node = self._position("changes", parts[1], nodes, level, dtype)
        if how != FADE:
            return Change(str(how), node)
        return Change(FADE, node, self._position("changes", parts[2], nodes, SCALAR, dtype))

    def _position(
        self, what: str, position: Any, nodes: Sequence[Node], level: str, dtype: str
    ) -> int:
        node = self._node_at(what, position, nodes)
        if node.dtype != dtype or joined_level([node.level, level]) != level:
            self._refuse(f"{what}: node {position} has another dtype or shape")
        return position

    def _node_at(self, what: str, position: Any, nodes: Sequence[Node]) -> Node:
        if not _is_whole(position, len(nodes)):
            self._refuse(f"{what}: there is no node {_shown(position)}")
        return nodes[position]

    def _function(self, name: str, function: Any, dtypes: Mapping[str, str]) -> Function:
        self._at.append(name)
        fields = self._fields(function, "nodes results")
        inputs = {(NUMBER, each): (SCALAR, dtype) for each, dtype in dtypes.items()}
        nodes = self._nodes(fields["nodes"], inputs)
        results = self._dict("results", fields["results"])
        for position in results.values():
            self._node_at("results", position, nodes)
        self._at.pop()
        return Function(nodes, results)

    def _nodes(
        self, nodes: Any, inputs: Mapping[Tuple[str, str], Tuple[str, str]]
    ) -> Tuple[Node, ...]:
        found: List[Node] = []
        for i, node in enumerate(self._list("nodes", nodes, MOST_NODES)):
            self._at.append(f"nodes[{i}]")
            found.append(self._node(node, found, inputs))
            self._at.pop()
            self._count += 1 + len(found[-1].inputs)
            if self._count > MOST_NODES:
                self._refuse(f"there are more than {MOST_NODES} nodes and operands")
        return tuple(found)

    def _node(
        self,
        node: Any,
        earlier: Sequence[Node],
        inputs: Mapping[Tuple[str, str], Tuple[str, str]],
    ) -> Node:
        parts = self._list("a node", node, 5)
        if len(parts) < 4:
            self._refuse("a node has an operation, a dtype, a level and operands")
        operation, dtype, level, operands, *detail = parts
        dtype = self._one_of("dtype", dtype, DTYPES)
        level = self._one_of("level", level, LEVELS)
        operands = self._list("operands", operands, MOST_NAMES)
        for each in operands:
            if not _is_whole(each, len(earlier)):
                self._refuse(f"there is no earlier node {_shown(each)}")
        if operation in ("Input", "Const"):
            if operands or len(detail) != 1:
                self._refuse(f"{operation} has a detail and no operands")
            if operation == "Const":
                return Node("Const", dtype, SCALAR, (), self._number(detail[0], dtype))
            kind_and_name = tuple(self._list("an input", detail[0], 2))
            if not all(isinstance(each, str) for each in kind_and_name):
                self._refuse(f"{_shown(detail[0])} is no input")
            if inputs.get(kind_and_name) != (level, dtype):
                self._refuse(f"there is no input {_shown(detail[0])} of this level and dtype")
            return Node("Input", dtype, level, (), kind_and_name)
        if not isinstance(operation, str) or operation not in TABLE or detail:
            self._refuse(f"the operation {_shown(operation)} is not known")
        return self._checked(Node(operation, dtype, level, tuple(operands)), earlier)

    def _checked(self, node: Node, earlier: Sequence[Node]) -> Node:
        rule = TABLE[node.operation]
        operands = [earlier[each] for each in node.inputs]
        if not operands or rule.operands not in (None, len(operands)):
            self._refuse(f"{node.operation} does not have {len(operands)} operands")
        if rule.dtype_of_result([each.dtype for each in operands]) not in ("any", node.dtype):
            dtypes = [each.dtype for each in operands]
            self._refuse(f"{node.operation} of {dtypes} is no {node.dtype}")
        if node.operation in SUMS:
            pair = operands[0].level, node.level
            fits = pair in SUMS_OF_LEVELS
        else:
            fits = joined_level([each.level for each in operands]) == node.level
        if not fits:
            self._refuse(f"{node.operation} has no result of the level {node.level!r}")
        if node.operation in ("FloorDiv", "FloorMod"):
            divisor = operands[1]
            if divisor.operation != "Const" or divisor.detail == 0:
                self._refuse(f"{node.operation} divides by something other than a constant")
        return node

    # Values of JSON.

    def _refuse(self, problem: str) -> NoReturn:
        raise RecordError(": ".join([*self._at, problem]))

    def _fields(self, value: Any, names: str) -> Dict[str, Any]:
        wanted = names.split()
        if not isinstance(value, dict) or sorted(value) != sorted(wanted):
            found = sorted(value) if isinstance(value, dict) else value
            self._refuse(f"expected the names {', '.join(wanted)}, got {_shown(found)}")
        return value

    def _sizes(self, what: str, value: Any, most: int) -> Tuple[int, ...]:
        sizes = self._list(what, value, most)
        if not all(_is_whole(each, 1 << 63) for each in sizes):
            self._refuse(f"{what}: {_shown(value)} are no sizes")
        return tuple(sizes)

    def _dict(self, what: str, value: Any, most: int = MOST_NAMES) -> Dict[str, Any]:
        if not isinstance(value, dict) or len(value) > most:
            self._refuse(f"{what}: expected names with values, got {_shown(value)}")
        for name in value:
            self._name(what, name)
        return value

    def _list(self, what: str, value: Any, most: int) -> List[Any]:
        if not isinstance(value, list) or len(value) > most:
            self._refuse(f"{what}: expected a list of at most {most}, got {_shown(value)}")
        return value

    def _name(self, what: str, value: Any) -> str:
        if not isinstance(value, str) or not 0 < len(value) <= LONGEST_NAME:
            self._refuse(f"{what}: expected a name, got {_shown(value)}")
        return value

    def _one_of(self, what: str, value: Any, known: Sequence[str]) -> str:
        if not isinstance(value, str) or value not in known:
            self._refuse(f"{what}: expected one of {', '.join(known)}, got {_shown(value)}")
        return value

    def _scalars(self, what: str, value: Any, may_be_open: bool) -> Dict[str, Scalar]:
        scalars = {}
        for name, each in self._dict(what, value).items():
            fields = self._fields(each, "dtype value")
            dtype = self._one_of("dtype", fields["dtype"], DTYPES)
            number = fields["value"]
            if number is not None or not may_be_open:
                number = self._number(number, dtype)
            scalars[name] = Scalar(dtype, number)
        return scalars

    def _number(self, value: Any, dtype: Any) -> Number:
        """Reads a number; a float is hexadecimal text, so that no bit is lost."""
        if dtype in FLOATS and isinstance(value, str) and len(value) <= 40:
            try:
                number = float.fromhex(value)
            except (ValueError, OverflowError):
                number = None
            if number is not None and number_text(number, dtype) == value:
                return number
        if dtype == "bool" and isinstance(value, bool):
            return value
        if dtype in INTEGERS and type(value) is int:
            bits = 31 if dtype == "int32" else 63
            if -(1 << bits) <= value < 1 << bits:
                return value
        return self._refuse(f"{_shown(value)} is no number of the dtype {_shown(dtype)}")


def _is_whole(value: Any, end: int) -> bool:
    """Whether a value is a whole number in [0, end)."""
    return type(value) is int and 0 <= value < end


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "…"

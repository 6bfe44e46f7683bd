"""Checks each part of a record's document, and converts it."""

from __future__ import annotations

from typing import Any, Callable, Dict, List, Mapping, NoReturn, Optional, Sequence, Tuple, Union

from legacy_opt.programs import program as programs
from legacy_opt.programs.operations import DTYPES, FLOATS, INTEGERS, OPERATIONS, SUMS
from legacy_opt.programs.program import Change, Function, Node, Program, joined_level
from legacy_opt.recorded import records
from legacy_opt.recorded.records import Group, Number, Record, RecordError, Scalar, Slot
from legacy_opt.recorded.writing import number_text

# Limits, so that a damaged or hostile file costs little time and memory.
MOST_NODES = 40_000  # and operands
MOST_NAMES, MOST_GROUPS, LONGEST_NAME = 1_000, 10_000, 1_000

_Check = Callable[["Reader", str, Any, Dict[str, Any]], Any]


class Reader:
    """Checks the values of a document.

    `read` reads a part of a record by a table of `_CHECKS`. The check of a field gets the name and
    the value of the field, and a dict `found`: the fields that were checked earlier, and the
    argument `known` of `read`. A check returns the converted value.
    """

    def __init__(self) -> None:
        self._at: List[str] = []  # the path of the part, for error messages
        self._count = 0  # of all nodes and operands of the document

    def read(self, kind: Any, value: Any, known: Mapping[str, Any] = {}, at: str = "") -> Any:
        """Reads a part of a record; `kind` is a class in `_CHECKS`, and `at` the part's name."""
        if at:
            self._at.append(at)
        table = _CHECKS[kind]
        if not isinstance(value, dict) or sorted(value) != sorted(table):
            found = sorted(value) if isinstance(value, dict) else value
            self.refuse(f"expected the names {', '.join(sorted(table))}, got {shown(found)}")
        found = dict(known)
        for name, check in table.items():
            found[name] = check(self, name, value[name], found)
        if at:
            self._at.pop()
        return kind(**{name: found[name] for name in table})

    # Checks of fields: parts of records.

    def scalars(self, name: str, value: Any, found: Dict[str, Any]) -> Dict[str, Scalar]:
        known = {"may_be_open": name != "shared"}  # a hyperparameter may lack a value
        named = self.named(name, value).items()
        return {each: self.read(Scalar, scalar, known) for each, scalar in named}

    def start(self, name: str, value: Any, found: Dict[str, Any]) -> Optional[Number]:
        is_open = value is None and found.get("may_be_open")
        return None if is_open else self.number_of(value, found["dtype"])

    def fixed(self, name: str, value: Any, found: Dict[str, Any]) -> Dict[str, Scalar]:
        fixed = self.scalars(name, value, found)
        given = {**found["hyperparameters"], **found["shared"]}
        names = [*found["hyperparameters"], *found["shared"], *fixed, "global_step"]
        if len(set(names)) < len(names):
            self.refuse("a name has two meanings")
        # `before` and `after`, which are checked later, read these.
        found["scalars"] = {each: scalar.dtype for each, scalar in given.items()}
        if found["global_step"] is not None:
            found["scalars"]["global_step"] = found["global_step"]
        return fixed

    def function(self, name: str, value: Any, found: Dict[str, Any]) -> Function:
        return self.read(Function, value, {"inputs": _numbers(found["scalars"])}, at=name)

    def results(self, name: str, value: Any, found: Dict[str, Any]) -> Dict[str, int]:
        results = self.named(name, value)
        for position in results.values():
            self._node_at(name, position, found["nodes"])
        return results

    def after(self, name: str, value: Any, found: Dict[str, Any]) -> Function:
        function = self.function(name, value, found)
        shared = found["shared"]
        for each, position in function.results.items():
            if each not in shared or function.nodes[position].dtype != shared[each].dtype:
                self.refuse(f"after: {shown(each)} is no shared variable of this dtype")
        return function

    def clipping(self, name: str, value: Any, found: Dict[str, Any]) -> Optional[str]:
        if value is not None:
            self.one_of(name, value, records.CLIPPINGS)
            limit = found["hyperparameters"].get(records.CLIP_NORM)
            if limit is None or limit.dtype != found["dtype"]:
                self.refuse(
                    f"clipping: there is no hyperparameter {records.CLIP_NORM!r} of this dtype"
                )
        return value

    def groups(self, name: str, value: Any, found: Dict[str, Any]) -> Tuple[Group, ...]:
        groups = self.items(name, value, MOST_GROUPS)
        before = found["before"]
        scalars = {each: before.nodes[i].dtype for each, i in before.results.items()}
        known = {"dtype": found["dtype"], "scalars": scalars}
        return tuple(self.read(Group, g, known, at=f"groups[{i}]") for i, g in enumerate(groups))

    def variables(self, name: str, value: Any, found: Dict[str, Any]) -> Any:
        if value is None:
            return None
        return {
            each: self.sizes(f"the shape of {shown(each)}", shape, most=32)
            for each, shape in self.named(name, value, MOST_GROUPS).items()
        }

    def ranks(self, name: str, value: Any, found: Dict[str, Any]) -> Any:
        if (found["variables"] is None) == (value is None):
            self.refuse("a group has either variables or ranks")
        if value is None:
            return None
        ranks = tuple(self.items(name, value, most=2))
        sizes = self.sizes(name, [each for each in ranks if each is not None], most=2)
        # A highest rank of None means no limit. Then, the lowest rank is the only size.
        if len(ranks) != 2 or ranks[0] is None or sizes[0] > sizes[-1]:
            self.refuse(f"ranks: {shown(ranks)} has no rank")
        return ranks

    def slots(self, name: str, value: Any, found: Dict[str, Any]) -> Dict[str, Slot]:
        return {each: self.read(Slot, slot) for each, slot in self.named(name, value).items()}

    def program(self, name: str, value: Any, found: Dict[str, Any]) -> Union[Program, str]:
        if isinstance(value, str):
            return value[:LONGEST_NAME]
        return self.read(Program, value, {**found, "place": name}, at=name)

    def first(self, name: str, value: Any, found: Dict[str, Any]) -> Optional[Program]:
        if value is None:
            return None
        program = self.program(name, value, {**found, "slots": {}})  # it gets no slots
        if isinstance(program, str) or not program.by_rows:
            self.refuse("first: expected a program of rows")
        return program

    def by_rows(self, name: str, value: Any, found: Dict[str, Any]) -> bool:
        if not isinstance(value, bool) or (value and found["place"] == "dense"):
            self.refuse(f"by_rows is {shown(value)}")
        inputs = _numbers(found["scalars"])
        for each in (programs.GRADIENT, programs.VALUE):
            inputs[programs.TENSOR, each] = (programs.ELEMENT, found["dtype"])
        for each in records.slot_inputs(found["slots"], value):
            inputs[each.key] = (each.level, each.dtype)
        found["inputs"] = inputs
        return value

    def nodes(self, name: str, value: Any, found: Dict[str, Any]) -> Tuple[Node, ...]:
        nodes: List[Node] = []
        for i, node in enumerate(self.items(name, value, MOST_NODES)):
            self._at.append(f"nodes[{i}]")
            nodes.append(self._node(node, nodes, found["inputs"]))
            self._at.pop()
            self._count += 1 + len(nodes[-1].inputs)
            if self._count > MOST_NODES:
                self.refuse(f"there are more than {MOST_NODES} nodes and operands")
        are_sums = (each.level in programs.OF_MATRICES or each.operation in SUMS for each in nodes)
        if found.get("by_rows") and any(are_sums):
            self.refuse("an update of rows has a sum")
        return tuple(nodes)

    def value(self, name: str, value: Any, found: Dict[str, Any]) -> int:
        nodes, dtype = found["nodes"], found["dtype"]
        return self._position(name, value, nodes, level=programs.ELEMENT, dtype=dtype)

    def changes(self, name: str, value: Any, found: Dict[str, Any]) -> Dict[str, Change]:
        changes = {}
        for slot, change in self.named(name, value).items():
            if slot not in found["slots"]:
                self.refuse(f"changes: there is no slot {shown(slot)}")
            level_and_dtype = found["inputs"][programs.SLOT, slot]
            changes[slot] = self._change(change, found["nodes"], level_and_dtype)
        return changes

    def nonzero(self, name: str, value: Any, found: Dict[str, Any]) -> Tuple[str, ...]:
        for each in self.items(name, value, MOST_NAMES):
            self.one_of(name, each, tuple(found["hyperparameters"]))
        return tuple(value)

    def initial(self, name: str, value: Any, found: Dict[str, Any]) -> Dict[str, str]:
        known = {*found["shared"], *(slot for group in found["groups"] for slot in group.slots)}
        for start, each in self.named(name, value).items():
            self.one_of(name, each, tuple(found["hyperparameters"]))
            if start not in known:
                self.one_of(name, start, sorted(known))
        return value

    # Parts of programs.

    def _change(
        self, change: Any, nodes: Sequence[Node], level_and_dtype: Tuple[str, str]
    ) -> Change:
        parts = self.items("changes", change, most=3)
        level, dtype = level_and_dtype
        how = parts[0] if parts else None
        length = 3 if how == programs.FADE else 2
        if how not in (programs.ASSIGN, programs.ADD, programs.FADE) or len(parts) != length:
            self.refuse(f"changes: {shown(change)} is no change")
        node = self._position("changes", parts[1], nodes, level, dtype)
        if how != programs.FADE:
            return Change(str(how), node)
        factor = self._position("changes", parts[2], nodes, programs.SCALAR, dtype)
        return Change(programs.FADE, node, factor)

    def _position(
        self, what: str, position: Any, nodes: Sequence[Node], level: str, dtype: str
    ) -> int:
        """Returns the position of a node; checks that its value can be broadcast to a level."""
        node = self._node_at(what, position, nodes)
        if node.dtype != dtype or joined_level([node.level, level]) != level:
            self.refuse(f"{what}: node {position} has another dtype or shape")
        return position

    def _node_at(self, what: str, position: Any, nodes: Sequence[Node]) -> Node:
        if not _is_whole(position, len(nodes)):
            self.refuse(f"{what}: there is no node {shown(position)}")
        return nodes[position]

    def _node(
        self, node: Any, earlier: Sequence[Node], inputs: Mapping[Tuple[str, str], Tuple[str, str]]
    ) -> Node:
        parts = self.items("a node", node, most=5)
        if len(parts) < 4:
            self.refuse("a node has an operation, a dtype, a level and operands")
        operation, dtype, level, operands, *detail = parts
        dtype = self.one_of("dtype", dtype, DTYPES)
        level = self.one_of("level", level, programs.LEVELS)
        operands = self.items("operands", operands, MOST_NAMES)
        for each in operands:
            if not _is_whole(each, len(earlier)):
                self.refuse(f"there is no earlier node {shown(each)}")
        if operation in ("Input", "Const"):
            if operands or len(detail) != 1:
                self.refuse(f"{operation} has a detail and no operands")
            if operation == "Const":
                return Node("Const", dtype, programs.SCALAR, (), self.number_of(detail[0], dtype))
            kind_and_name = tuple(self.items("an input", detail[0], most=2))
            if not all(isinstance(each, str) for each in kind_and_name):
                self.refuse(f"{shown(detail[0])} is no input")
            if inputs.get(kind_and_name) != (level, dtype):
                self.refuse(f"there is no input {shown(detail[0])} of this level and dtype")
            return Node("Input", dtype, level, (), kind_and_name)
        if not isinstance(operation, str) or operation not in OPERATIONS or detail:
            self.refuse(f"the operation {shown(operation)} is not known")
        return self.operation(Node(operation, dtype, level, tuple(operands)), earlier)

    def operation(self, node: Node, earlier: Sequence[Node]) -> Node:
        """Checks an operation; `earlier` contains its operands."""
        rule = OPERATIONS[node.operation]
        operands = [earlier[each] for each in node.inputs]
        if not operands or rule.operands not in (None, len(operands)):
            self.refuse(f"{node.operation} does not have {len(operands)} operands")
        dtypes = [each.dtype for each in operands]
        if rule.dtype_of_result(dtypes) not in ("any", node.dtype):
            self.refuse(f"{node.operation} of {dtypes} is no {node.dtype}")
        if node.operation in SUMS:
            fits = (operands[0].level, node.level) in programs.SUMS_OF_LEVELS
        else:
            fits = joined_level([each.level for each in operands]) == node.level
        if not fits:
            self.refuse(f"{node.operation} has no result of the level {node.level!r}")
        if rule.integer_code is not None and node.dtype in INTEGERS:  # a division
            divisor = operands[1]
            if divisor.operation != "Const" or divisor.detail == 0:
                self.refuse(f"{node.operation} divides by something other than a constant")
        return node

    # Values of JSON.

    def refuse(self, problem: str) -> NoReturn:
        raise RecordError(": ".join([*self._at, problem]))

    def sizes(self, what: str, value: Any, most: int) -> Tuple[int, ...]:
        sizes = self.items(what, value, most)
        if not all(_is_whole(each, 1 << 63) for each in sizes):
            self.refuse(f"{what}: {shown(value)} are no sizes")
        return tuple(sizes)

    def named(self, what: str, value: Any, most: int = MOST_NAMES) -> Dict[str, Any]:
        if not isinstance(value, dict) or len(value) > most:
            self.refuse(f"{what}: expected names with values, got {shown(value)}")
        for name in value:
            self.name_of(what, name)
        return value

    def items(self, what: str, value: Any, most: int) -> List[Any]:
        if not isinstance(value, list) or len(value) > most:
            self.refuse(f"{what}: expected a list of at most {most}, got {shown(value)}")
        return value

    def name_of(self, what: str, value: Any) -> str:
        if not isinstance(value, str) or not 0 < len(value) <= LONGEST_NAME:
            self.refuse(f"{what}: expected a name, got {shown(value)}")
        return value

    def one_of(self, what: str, value: Any, known: Sequence[str]) -> str:
        if not isinstance(value, str) or value not in known:
            self.refuse(f"{what}: expected one of {', '.join(known)}, got {shown(value)}")
        return value

    def number_of(self, value: Any, dtype: Any) -> Number:
        """Reads a number; a float is hexadecimal text, so that no bit is lost."""
        if dtype in FLOATS and isinstance(value, str) and len(value) <= 40:
            try:
                number = float.fromhex(value)
            except (ValueError, OverflowError):
                number = None
            if number is not None and number_text(number, dtype) == value:  # as `dumps` writes it
                return number
        if dtype == "bool" and isinstance(value, bool):
            return value
        if dtype in INTEGERS and type(value) is int:
            bits = 31 if dtype == "int32" else 63
            if -(1 << bits) <= value < 1 << bits:
                return value
        return self.refuse(f"{shown(value)} is no number of the dtype {shown(dtype)}")


def _numbers(dtypes: Mapping[str, str]) -> Dict[Any, Any]:
    return {(programs.NUMBER, name): (programs.SCALAR, dtype) for name, dtype in dtypes.items()}


def _one_of(*known: str) -> _Check:
    return lambda reader, name, value, found: reader.one_of(name, value, known)


def _step(reader: Reader, name: str, value: Any, found: Dict[str, Any]) -> Optional[str]:
    return value if value is None else reader.one_of(name, value, (*INTEGERS, "float32"))


def _text(reader: Reader, name: str, value: Any, found: Dict[str, Any]) -> str:
    return reader.name_of(name, value)


# The checks of the fields of each part, in the order in which they are made.
_CHECKS: Mapping[Any, Mapping[str, _Check]] = {
    Scalar: {"dtype": _one_of(*DTYPES), "value": Reader.start},
    Slot: {
        "layout": _one_of(*records.LAYOUTS),
        "dtype": _one_of(*DTYPES),
        "initial": Reader.start,
        "suffix": _text,
    },
    Function: {"nodes": Reader.nodes, "results": Reader.results},
    Program: {
        "by_rows": Reader.by_rows,
        "nodes": Reader.nodes,
        "value": Reader.value,
        "changes": Reader.changes,
    },
    Group: {
        "variables": Reader.variables,
        "ranks": Reader.ranks,
        "slots": Reader.slots,
        "dense": Reader.program,
        "sparse": Reader.program,
        "first": Reader.first,
    },
    Record: {
        "global_step": _step,
        "hyperparameters": Reader.scalars,
        "shared": Reader.scalars,
        "fixed": Reader.fixed,
        "before": Reader.function,
        "after": Reader.after,
        "dtype": _one_of(*FLOATS),
        "clipping": Reader.clipping,
        "optimizer": _text,
        "groups": Reader.groups,
        "nonzero": Reader.nonzero,
        "initial": Reader.initial,
    },
}


def _is_whole(value: Any, end: int) -> bool:
    """Whether a value is a whole number in [0, end)."""
    return type(value) is int and 0 <= value < end


def shown(value: Any) -> str:
    """Returns a value, shortened for an error message."""
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "…"

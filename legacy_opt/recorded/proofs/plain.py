"""The plain form of a rule: equal formulas in one way, for the search of causes and for texts."""

from __future__ import annotations

from typing import Any, Dict, Iterable, List, Mapping, Sequence

import numpy as np

from legacy_opt.programs.program import (
    ADD,
    ASSIGN,
    NUMBER,
    SCALAR,
    SLOT,
    VALUE,
    Change,
    Function,
    Input,
    Node,
    Program,
    needed_nodes,
)
from legacy_opt.recorded.formulas import Graph, Value, cast, sqrt, square
from legacy_opt.recorded.records import Record

COMPLETED, STEP = "global_step", "step, from 1"
_SIGNS = {"Add": "+", "Sub": "-", "Mul": "*", "RealDiv": "/", "Pow": "**", "Greater": ">"}
_RANKS = {"Add": 1, "Sub": 1, "Mul": 2, "RealDiv": 2}  # which operands need no parentheses
_DEPTH = 8  # of nested operations in a text


class _Plain(Graph):
    """Writes formulas in one way."""

    def _operands(self, value: Any, name: str) -> Sequence[Any]:
        is_it = isinstance(value, Value) and value.node.operation == name
        return [Value(self, each) for each in value.node.inputs] if is_it else (None, None)

    def operation(self, name: str, given: Any, level: Any = None, dtype: Any = None) -> Value:
        a, b = [*given, None][:2]
        if name == "Rsqrt":
            return 1.0 / sqrt(a)
        if name == "Mul" and _is(a, b):
            return square(a)
        completed, one = self._operands(a, "Add")
        is_step = _is(one, 1) and completed.node.detail == (NUMBER, COMPLETED)
        if name == "Cast" and dtype == self.dtype and is_step:
            return self.input(Input(STEP, SCALAR, self.dtype))
        if name == "Select" and a.node.operation == "Equal" and a.node.level == SCALAR:
            return given[2]  # the other one is the same for a value that is known better
        for difference, rest in (self._operands(b, "Mul"), self._operands(b, "Mul")[::-1]):
            (x, s), (one, beta) = self._operands(difference, "Sub"), self._operands(rest, "Sub")
            if name == "Add" and _is(s, a) and _is(one, 1.0):
                return beta * a + rest * x
        return super().operation(name, given, level, dtype)


def _is(value: Any, other: Any) -> bool:
    """Tells whether two values of a graph, or a value and a number, are the same."""
    if not isinstance(value, Value):
        return False
    if isinstance(other, Value):
        return value.position == other.position
    return value.node.detail == other


def plain(record: Record, short: bool = True) -> Record:
    """Returns an equal rule of float64 in the plain form.

    Its programs read hyperparameters, shared variables and the step; `before` computes only the
    step. Powers of beta are computed from the step. With `short`, numbers are the shortest ones
    with the same bits of float32: 0.1, not 0.10000000149.
    """
    number = _short if short else lambda value: value
    record = record.in_dtype("float64")
    record = record.with_starts({name: number(value) for name, value, _ in record.starts})
    nodes, results = record.after.nodes, record.after.results
    powers = {
        name: base
        for name, base in record.initial.items()
        if name in results
        and nodes[results[name]].operation == "Mul"
        and {nodes[i].detail for i in nodes[results[name]].inputs}
        == {(NUMBER, name), (NUMBER, base)}
    }
    results = without(results, powers)
    needed, places = needed_nodes(nodes, results.values())
    record = record._replace(
        shared=without(record.shared, powers),
        initial=without(record.initial, powers),
        after=Function(tuple(needed), {name: places[i] for name, i in results.items()}),
    )
    scalars = {**record.hyperparameters, **record.shared}
    inputs = {name: Input(name, SCALAR, each.dtype) for name, each in scalars.items()}
    inputs[COMPLETED] = Input(COMPLETED, SCALAR, record.global_step or "int64")

    def copied(graph: Graph, nodes: Sequence[Node], given: Mapping[str, Value]) -> List[Value]:
        values: List[Value] = []
        for node in nodes:
            kind, name = node.detail if node.operation == "Input" else ("", "")
            operands = [values[i] for i in node.inputs]
            node = node._replace(detail=number(node.detail))
            values.append(given[name] if kind == NUMBER else graph.again(node, operands))
        return values

    def rewritten(program: Any) -> Any:
        if not isinstance(program, Program):
            return program
        graph = _Plain("float64")
        given = {name: graph.input(each) for name, each in inputs.items()}
        step = cast(given[COMPLETED] + 1)
        given.update({name: given[base] ** step for name, base in powers.items()})
        first = copied(graph, computed.nodes, given)
        given = {name: first[i] for name, i in computed.results.items()}
        values = copied(graph, program.nodes, given)
        changes = {}
        for name, (how, i, factor) in program.changes.items():
            new = values[i]
            if how == ADD:
                slot = next(x for x in values if x.node.detail == (SLOT, name))
                how, new = ASSIGN, slot + new
            factor = None if factor is None else values[factor].position
            changes[name] = Change(how, new.position, factor)
        value = values[program.value].position
        return Program(program.by_rows, tuple(graph.nodes), value, changes).pruned()

    computed = record.before
    groups = tuple(
        each._replace(**{field: rewritten(getattr(each, field)) for field in each._fields[3:]})
        for each in record.groups
    )
    graph = Graph("float64")
    given = {name: graph.input(each) for name, each in inputs.items()}
    given[STEP] = cast(given[COMPLETED] + 1)
    step = inputs[COMPLETED].dtype
    return record._replace(global_step=step, before=graph.function(given), groups=groups)


def _short(value: Any) -> Any:
    if not isinstance(value, float):
        return value
    short = float(f"{value:.7g}")
    return short if np.float32(short) == value else value


def without(values: Mapping[str, Any], names: Iterable[str]) -> Dict[str, Any]:
    """Returns a dict without some names."""
    return {name: value for name, value in values.items() if name not in names}


def shown(program: Program, position: int) -> str:
    """Returns the formula of a node of a program, as a text."""
    slots = {change.node: name for name, change in program.changes.items()}

    def text(i: int, depth: int, rank: int) -> str:
        operation, _, _, inputs, detail = program.nodes[i]
        if operation == "Input":
            kind, name = detail
            name = f"{ {STEP: 't', VALUE: 'variable'}.get(name, name) }"
            return f"old {name}" if kind == SLOT else name
        if operation == "Const":
            return f"{detail:.7g}"
        if i in slots and i != position:
            return slots[i]
        if operation == "Cast":
            return text(inputs[0], depth, rank)
        if not depth:
            return "…"
        if operation not in _SIGNS:
            return f"{operation.lower()}({', '.join(text(x, depth - 1, 0) for x in inputs)})"
        own = _RANKS.get(operation, 3)
        one, other = (text(x, depth - 1, own + j) for j, x in enumerate(inputs))
        found = f"{one} {_SIGNS[operation]} {other}"
        return f"({found})" if own < rank else found

    return text(position, _DEPTH, 0)

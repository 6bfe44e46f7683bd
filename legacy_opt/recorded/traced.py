"""Converts the nodes from which kernels are compiled to those of records, and back."""

from __future__ import annotations

from typing import List, Mapping, Sequence, Tuple

from legacy_opt.programs import program as programs
from legacy_opt.programs.operations import DTYPES
from legacy_opt.programs.program import UnsupportedError
from legacy_opt.recorded import records
from legacy_opt.recorded.records import Change, Function, Node, Program, Slot, level_of

# The levels of kernels are numbers, in the order of those of records.
LEVELS = dict(enumerate(records.LEVELS))
_TRACED = {recorded: traced for traced, recorded in LEVELS.items()}


def program_of(program: programs.Program, by_rows: bool) -> Program:
    """Converts a traced program."""
    changes = {
        name: Change(
            change.how,
            change.node.number,
            None if change.factor is None else change.factor.number,
        )
        for name, change in sorted(program.changes.items())
    }
    return Program(by_rows, _nodes(program.nodes), program.value.number, changes)


def function_of(traced: Tuple[Sequence[programs.Node], Mapping[str, programs.Node]]) -> Function:
    """Converts the result of `trace_scalars`."""
    nodes, results = traced
    return Function(_nodes(nodes), {name: each.number for name, each in sorted(results.items())})


def _nodes(nodes: Sequence[programs.Node]) -> Tuple[Node, ...]:
    found = []
    for node in nodes:
        if node.dtype not in DTYPES:
            what = f", as {node.detail.name} has" if node.operation == "Input" else ""
            raise UnsupportedError(f"records have no values of the dtype {node.dtype}{what}")
        detail = None
        if node.operation == "Input":
            detail = _kind(node.detail), node.detail.name
        elif node.operation == "Const":
            detail = node.detail
        inputs = tuple(each.number for each in node.inputs)
        found.append(Node(node.operation, node.dtype, LEVELS[node.level], inputs, detail))
    return tuple(found)


def _kind(given: programs.Input) -> str:
    if given.is_slot:
        return records.SLOT
    return records.TENSOR if given.level == programs.ELEMENT else records.NUMBER


def traced_program(program: Program, slots: Mapping[str, Slot], dtype: str) -> programs.Program:
    """Returns the program from which C code is written: the inverse of `program_of`.

    Args:
      program: the recorded program.
      slots: the slots of the variable's group.
      dtype: the dtype of the variable.
    """
    inputs = [
        programs.Input(name, _TRACED[level_of(slot.layout, program.by_rows)], slot.dtype, True)
        for name, slot in slots.items()
    ]
    inputs += [programs.Input(name, programs.ELEMENT, dtype) for name in ("gradient", "value")]
    nodes: List[programs.Node] = []
    for number, node in enumerate(program.nodes):
        detail = node.detail
        if node.operation == "Input":
            kind, name = node.detail
            detail = programs.Input(name, _TRACED[node.level], node.dtype, kind == records.SLOT)
            if kind == records.NUMBER:
                inputs.append(detail)
        level, operands = _TRACED[node.level], tuple(nodes[each] for each in node.inputs)
        nodes.append(programs.Node(number, node.operation, node.dtype, operands, level, detail))
    changes = {}
    for name, change in sorted(program.changes.items()):
        factor = None if change.factor is None else nodes[change.factor]
        changes[name] = programs.Change(change.how, nodes[change.node], factor)
    roots = [nodes[each] for each in (program.value, *program.results)]
    return programs.program_from(dtype, dict.fromkeys(inputs), nodes, roots, changes)

"""Writes recorded rules as JSON."""

from __future__ import annotations

import json
import math
from typing import Any, Dict, List, Mapping, Optional, Sequence, Union

from legacy_opt.durable_files import PathLike, replaced
from legacy_opt.programs.operations import FLOATS
from legacy_opt.programs.program import FADE, Function, Node, Program
from legacy_opt.recorded.records import FORMAT, VERSION, Group, Number, Record, Scalar


def dumps(record: Record) -> str:
    """Returns a record as JSON, always in the same bytes."""
    text = json.dumps(_document(record), separators=(",", ":"), sort_keys=True)
    # Each group, whose first key is "dense", begins on a line of its own.
    return text.replace('"groups":', '\n"groups":').replace('{"dense":', '\n{"dense":') + "\n"


def save(record: Record, path: PathLike) -> None:
    """Writes a record into a file, which is complete or not written."""
    with replaced(path) as temporary:
        temporary.write_text(dumps(record), encoding="utf-8")


def number_text(value: Optional[Number], dtype: str) -> Union[str, Number, None]:
    """Returns a number, or None, for JSON: a float becomes hexadecimal text."""
    if value is None or dtype not in FLOATS:
        return value
    value = float(value)
    if math.isnan(value):
        return "nan"
    return value.hex()


def _document(record: Record) -> Dict[str, Any]:
    return {
        **record._asdict(),
        "format": FORMAT,
        "version": VERSION,
        "hyperparameters": _scalars(record.hyperparameters),
        "fixed": _scalars(record.fixed),
        "shared": _scalars(record.shared),
        "before": _function(record.before),
        "after": _function(record.after),
        "groups": [_group(each) for each in record.groups],
    }


def _scalars(scalars: Mapping[str, Scalar]) -> Dict[str, Any]:
    return {
        name: {**each._asdict(), "value": number_text(each.value, each.dtype)}
        for name, each in scalars.items()
    }


def _function(function: Function) -> Dict[str, Any]:
    return {"nodes": _nodes(function.nodes), "results": dict(function.results)}


def _group(group: Group) -> Dict[str, Any]:
    slots = {
        name: {**slot._asdict(), "initial": number_text(slot.initial, slot.dtype)}
        for name, slot in group.slots.items()
    }
    return {
        **group._asdict(),
        "slots": slots,
        "dense": _program(group.dense),
        "sparse": _program(group.sparse),
        "first": None if group.first is None else _program(group.first),
    }


def _program(program: Union[Program, str]) -> Any:
    if isinstance(program, str):
        return program
    changes = {name: [each.how, each.node] for name, each in program.changes.items()}
    for name, each in program.changes.items():
        if each.how == FADE:
            changes[name].append(each.factor)
    return {**program._asdict(), "nodes": _nodes(program.nodes), "changes": changes}


def _nodes(nodes: Sequence[Node]) -> List[Any]:
    rows = []
    for node in nodes:
        row = [node.operation, node.dtype, node.level, list(node.inputs)]
        if node.operation == "Input":
            row.append(list(node.detail))
        elif node.operation == "Const":
            row.append(number_text(node.detail, node.dtype))
        rows.append(row)
    return rows

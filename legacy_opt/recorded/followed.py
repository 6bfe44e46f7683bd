"""Finds which hyperparameters a record follows, and which are frozen in it.

A rule may use the value of a hyperparameter in Python, as in `if self._momentum > 0` or
`self._learning_rate * grad`; then the value is part of the nodes, or of another value. To find
this, the rule is traced again with other values.
"""

from __future__ import annotations

from typing import Any, Callable, Collection, Dict, Mapping, Set

import numpy as np

from legacy_opt.recorded.operations import INTEGERS
from legacy_opt.recorded.records import (
    CLIP_NORM,
    NUMBER,
    Function,
    Node,
    Program,
    Record,
    RecordError,
)


def found(record: Record, traced: Callable[[Mapping[str, Any]], Record]) -> Record:
    """Returns a record that says which hyperparameters it follows.

    Args:
      record: the record.
      traced: a function that takes other values of hyperparameters, and records again, without
        numbers that are computed in Python only to lose no digits.

    Raises:
      RecordError: a hyperparameter that was no number decides something in Python.
    """
    before, initial = traced({}), {}

    def is_at(name: str, start: Any) -> bool:
        dtype, value = before.hyperparameters[name]
        return value is None or value == np.array(start, dtype)

    def passes(changed: Mapping[str, Any], learns: bool = True) -> bool:
        """Whether a record with other values differs only by these values.

        If it `learns`, an initial value that is equal to a hyperparameter, twice, follows it.
        """
        try:
            after = traced(changed)
        except Exception:  # whatever the rule's own code raises
            return False
        for name, (dtype, value) in before.hyperparameters.items():
            value = np.array(changed[name], dtype) if name in changed else value
            if after.hyperparameters[name].value != value:
                return False
        if after.without_values() != before.without_values():
            return False
        follows: Dict[str, str] = dict(initial)
        for (name, start, dtype), (_, old, _) in zip(after.starts, before.starts):
            equal = [
                each
                for each, value in changed.items()
                if start == np.array(value, dtype) and is_at(each, old)
            ]
            if start != old and equal and learns:
                follows.setdefault(name, equal[0])
            other = changed.get(follows.get(name, ""))
            if start != (old if other is None else np.array(other, dtype)):
                return False
        initial.update(follows)
        return True

    hyper = record.hyperparameters
    others = {name: _other(*hyper[name], i) for i, name in enumerate(hyper)}

    def failing(factor: float, summand: float = 0.0) -> Set[str]:
        """Returns the names of numbers that decide, with a multiple or with another number."""
        changed = {
            name: type(each)(factor * each + summand)
            for name, each in others.items()
            if hyper[name].value is not None
        }
        if passes(changed, learns=False):
            return set()
        return {name for name, each in changed.items() if not passes({name: each}, learns=False)}

    all_pass = passes(others)
    decided = {name for name in others if not (all_pass or passes({name: others[name]}))}
    decided |= failing(8.0) | failing(0.0, 1.0) | failing(0.0, 2.0)
    nonzero = failing(0.0) | failing(-1.0)
    for name in decided:
        if hyper[name].value is None:
            raise RecordError(
                f"{record.optimizer} cannot be recorded: {name} is no number, but Python decides "
                "something by it, or computes another value from it: pass a number"
            )
    return settled(
        record._replace(
            nonzero=tuple(name for name in hyper if name in nonzero - decided),
            initial={name: each for name, each in initial.items() if each not in decided},
        ),
        decided,
    )


def _other(dtype: str, value: Any, i: int) -> Any:
    """Returns another value of a hyperparameter, the i-th, which differs from the others."""
    other = (value or 0) + 2 + i if dtype in INTEGERS else (value or 1.0) * (0.5 + i / 64)
    return other if dtype in ("float32", "int32") else np.dtype(dtype).type(other)


def settled(record: Record, decided: Collection[str] = ()) -> Record:
    """Returns a record whose `hyperparameters` are only those that it follows.

    Args:
      record: a record that may compute scalars which no program reads.
      decided: the names of hyperparameters that become constants.
    """
    hyper = record.hyperparameters
    parts = [each for group in record.groups for each in (group.dense, group.sparse, group.first)]
    scalars = _read(*[each for each in parts if isinstance(each, Program)])
    constants = {name: hyper[name].value for name in decided}
    before = _needed(record.before, scalars, constants)
    after = _needed(record.after, record.after.results, constants)
    read = {*_read(before, after), *record.initial.values()}
    read |= set() if record.clipping is None else {CLIP_NORM}
    fixed = {name: each for name, each in hyper.items() if name not in read}
    return record._replace(
        hyperparameters={name: each for name, each in hyper.items() if name in read},
        before=before,
        after=after,
        fixed={**record.fixed, **fixed},
    )


def _read(*functions: Any) -> Set[Any]:
    """Returns the names of the scalars that functions or programs read."""
    inputs = [node.detail for each in functions for node in each.nodes if node.operation == "Input"]
    return {name for kind, name in inputs if kind == NUMBER}


def _needed(function: Function, names: Collection[str], constants: Mapping[str, Any]) -> Function:
    """Returns a function with some of the results, in which some inputs are constants."""
    results = {name: each for name, each in function.results.items() if name in names}
    needed = set(results.values())
    for number in reversed(range(len(function.nodes))):
        needed.update(function.nodes[number].inputs if number in needed else ())
    places = {old: new for new, old in enumerate(sorted(needed))}

    def moved(node: Node) -> Node:
        if node.operation == "Input" and node.detail[1] in constants:
            node = node._replace(operation="Const", detail=constants[node.detail[1]])
        return node._replace(inputs=tuple(places[each] for each in node.inputs))

    nodes = tuple(moved(function.nodes[old]) for old in places)
    return Function(nodes, {name: places[each] for name, each in results.items()})


def of_version_1(record: Record) -> Record:
    """Returns a record with `initial`, which version 1 of the format did not have.

    An initial value is a hyperparameter with the same value, if one name contains the other.
    """
    initial = {
        name: hyperparameter
        for name, start, _ in record.starts
        for hyperparameter, (dtype, value) in record.hyperparameters.items()
        if start and (hyperparameter in name or name in hyperparameter)
        if np.array(start, dtype) == value
    }
    return record._replace(initial=initial)

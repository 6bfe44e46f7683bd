"""Finds which hyperparameters a record follows, and which are frozen in it.

A rule may use the value of a hyperparameter in Python, as in `if self._momentum > 0` or
`self._learning_rate * grad`; then the value is part of the nodes, or of another value. To find
this, the rule is traced again with other values.
"""

from __future__ import annotations

import contextlib
import itertools
from typing import Any, Callable, Collection, Dict, Mapping, Set

import numpy as np

from legacy_opt.programs.operations import INTEGERS
from legacy_opt.programs.program import Function, Node, needed_nodes, numbers_of
from legacy_opt.recorded.records import Record, RecordError


class Refused(Exception):
    """An optimizer refuses values of its hyperparameters."""


def found(
    record: Record,
    traced: Callable[[Mapping[str, Any]], Record],
    unknown: Collection[str] = (),
    is_quick: bool = False,
) -> Record:
    """Returns a record that says which hyperparameters it follows.

    `traced` takes other values of hyperparameters, and records again, without numbers that are
    computed in Python only to lose no digits; it may raise `Refused`. Hyperparameters in `unknown`
    are not followed if they have a number. If `is_quick`, a change of all values at once shows all
    changes: none hides another. Raises a RecordError if a hyperparameter that was no number decides
    something in Python.
    """
    hyper = record.hyperparameters
    before = traced({})
    initial: Dict[str, str] = {}
    others = {
        name: _other(each.dtype, each.value, i) for i, (name, each) in enumerate(hyper.items())
    }
    numbers = {name for name in hyper if hyper[name].value is not None}
    decided = numbers.intersection(unknown)
    nonzero = set()

    def decides(changed: Mapping[str, Any]) -> bool:
        """Whether a record with other values differs by more than these values."""
        try:
            after = traced(changed)
        except Exception as error:  # whatever the rule's own code raises
            if isinstance(error, Refused):
                raise
            return True
        follows = dict(initial)
        if changed.items() <= others.items():  # no two of these values are equal
            follows = {**_equal_twice(before, after, changed), **initial}
        if after != _with_values(before, changed, follows):
            return True
        initial.update(follows)
        return False

    # Other values, larger ones, all 1, all 2; then, for names that decided nothing, 0 and negative.
    for factor, summand in (1, 0), (8, 0), (0, 1), (0, 2), (0, 0), (-1, 0):
        changed = {
            name: type(each)(factor * each + summand)
            for name, each in others.items()
            if name not in decided | nonzero and (factor == 1 or name in numbers)
        }
        # If only 0 or another sign decides something, the record follows values of the same sign.
        names = decided if factor > 0 or summand > 0 else nonzero
        names.update(_deciding(changed, decides, is_quick))
    for name in decided - numbers:
        raise RecordError(
            f"{record.optimizer} cannot be recorded: {name} is no number, but Python decides "
            "something by it, or computes another value from it: pass a number"
        )
    initial = {name: each for name, each in initial.items() if each not in decided}
    nonzero_names = tuple(name for name in hyper if name in nonzero)
    return _settled(record._replace(nonzero=nonzero_names, initial=initial), decided)


def _deciding(
    changed: Mapping[str, Any], decides: Callable[[Mapping[str, Any]], bool], is_quick: bool
) -> Set[str]:
    """Returns the names of values that decide alone, else in pairs, else all that are left."""
    found: Set[str] = set()
    refused: Set[str] = set()
    for size in (1, 2, len(changed)):
        left = {name: changed[name] for name in changed if name not in found | refused}
        with contextlib.suppress(Refused):
            if (size > 1 or is_quick) and not decides(left):
                break
        for some in itertools.combinations(left, min(size, len(left))):
            try:
                if decides({name: left[name] for name in some}):
                    found.update(some)
            except Refused:
                if size == 1:
                    refused.update(some)
    return found


def _equal_twice(before: Record, after: Record, changed: Mapping[str, Any]) -> Dict[str, str]:
    """Returns the initial values that are equal to a hyperparameter before and after a change."""
    found: Dict[str, str] = {}
    for (name, start, dtype), (_, old, _) in zip(after.starts, before.starts):
        for hyper, value in changed.items():
            hyper_dtype, recorded = before.hyperparameters[hyper]
            was_equal = recorded is None or recorded == np.array(old, hyper_dtype)
            if start != old and start == np.array(value, dtype) and was_equal:
                found.setdefault(name, hyper)
    return found


def _with_values(record: Record, changed: Mapping[str, Any], follows: Mapping[str, str]) -> Record:
    """Returns a record with other hyperparameters, and the initial values that follow them."""
    hyper = dict(record.hyperparameters)
    for name, value in changed.items():
        hyper[name] = hyper[name]._replace(value=np.array(value, hyper[name].dtype).item())
    starts = {
        name: np.array(changed[follows[name]], dtype).item()
        for name, _, dtype in record.starts
        if follows.get(name) in changed
    }
    return record._replace(hyperparameters=hyper).with_starts(starts)


def _other(dtype: str, value: Any, i: int) -> Any:
    """Returns another value for the i-th hyperparameter. The values for all i differ."""
    other = (value or 0) + 2 + i if dtype in INTEGERS else (value or 1.0) * (0.5 + i / 64)
    return other if dtype in ("float32", "int32") else np.dtype(dtype).type(other)


def _settled(record: Record, decided: Collection[str]) -> Record:
    """Returns a record whose `hyperparameters` are only those that it follows.

    The hyperparameters in `decided` become constants. Scalars that no program reads are left out.
    """
    hyper = record.hyperparameters
    scalars = numbers_of(*[program for group in record.groups for program in group.programs])
    constants = {name: hyper[name].value for name in decided}
    before = _needed(record.before, scalars, constants)
    after = _needed(record.after, record.after.results, constants)
    read = {*numbers_of(before, after), *record.initial.values()}
    return record._replace(
        hyperparameters={name: each for name, each in hyper.items() if name in read},
        before=before,
        after=after,
        fixed={name: each for name, each in hyper.items() if name not in read},
        nonzero=tuple(name for name in record.nonzero if name in read),
    )


def _needed(function: Function, names: Collection[str], constants: Mapping[str, Any]) -> Function:
    """Returns a function with some of the results, in which some inputs are constants."""
    results = {name: each for name, each in function.results.items() if name in names}
    nodes, places = needed_nodes(function.nodes, results.values())

    def settled(node: Node) -> Node:
        if node.operation == "Input" and node.detail[1] in constants:
            node = node._replace(operation="Const", detail=constants[node.detail[1]])
        return node

    return Function(tuple(map(settled, nodes)), {name: places[x] for name, x in results.items()})

"""Finds which hyperparameters a record follows, and which are frozen in it.

A rule may use the value of a hyperparameter in Python, as in `if self._momentum > 0` or
`self._learning_rate * grad`; then the value is part of the nodes, or of another value. To find
this, the rule is traced again with other values. An initial value is followed if it is equal to a
hyperparameter.
"""

from __future__ import annotations

from typing import Any, Callable, Collection, Dict, Mapping, Tuple

import numpy as np

from legacy_opt.core import argument_checks
from legacy_opt.recorded import records
from legacy_opt.recorded.operations import INTEGERS
from legacy_opt.recorded.records import Record, RecordError, without_values

_SHARED = -1  # in place of the number of a group


def settled(
    record: Record,
    attributes: Mapping[str, Tuple[str, Any]],
    traced: Callable[[Mapping[str, Any]], Record],
) -> Record:
    """Returns a record whose `hyperparameters` are only those that it follows.

    Args:
      record: the record.
      attributes: a dict from names of hyperparameters to pairs: the attribute of the optimizer, and
        its value.
      traced: a function that takes other values of attributes, and records one variable of each
        group, without numbers that are computed in Python only to lose no digits.

    Raises:
      RecordError: a hyperparameter that was no number decides something in Python.
    """
    trial = _Trial(traced, attributes)
    others = {
        name: trial.value(name, i) for i, name in enumerate(record.hyperparameters)
    }
    zeros = {
        name: 0 * each for name, each in others.items() if not trial.is_open(name)
    }
    decided, nonzero = [], []
    if not trial.passes(others):
        decided = [name for name, other in others.items() if not trial.passes({name: other})]
    if not trial.passes(zeros):
        nonzero = [name for name, each in zeros.items() if not trial.passes({name: each})]
    for name in decided:
        if record.hyperparameters[name].value is None:
            raise RecordError(
                f"{record.optimizer} cannot be recorded: {name} is no number, but Python decides "
                "something by it, or computes another value from it: pass a number"
            )
    hyper = {
        name: each._replace(nonzero=name in nonzero and name not in decided)
        for name, each in record.hyperparameters.items()
    }
    record = _with_follows(record._replace(hyperparameters=hyper), trial.follows, decided)
    return records.settled(record, decided)


class _Trial:
    """Traces a rule with other values.

    Attributes:
      follows: a dict from pairs (number of a group, slot) or (`_SHARED`, shared variable) to the
        hyperparameter to which the initial value is equal.
    """

    def __init__(self, traced: Any, attributes: Mapping[str, Tuple[str, Any]]) -> None:
        self._traced, self._attributes = traced, attributes
        self._before = traced({})
        self.follows: Dict[Tuple[int, str], str] = {}

    def is_open(self, name: str) -> bool:
        """Whether a hyperparameter is no number, so that Python cannot decide by its value."""
        value = self._attributes[name][1]
        return argument_checks.is_tensor_like(value) or callable(value)

    def value(self, name: str, i: int) -> Any:
        """Returns another value of a hyperparameter, the i-th, which differs from the others."""
        dtype, value = self._before.hyperparameters[name][:2]
        if dtype == "bool":
            return not value
        if dtype in INTEGERS:
            other: Any = (value or 0) + 2 + i
        else:
            other = (value or 1.0) * (0.5 + i / 64)
        of_python = type(self._attributes[name][1]) in (int, float)
        return other if of_python else np.dtype(dtype).type(other)

    def passes(self, changed: Mapping[str, Any]) -> bool:
        """Whether a record with other values differs only by these values."""
        before = self._before
        try:
            after = self._traced({self._attributes[key][0]: each for key, each in changed.items()})
        except Exception:  # whatever the rule's own code raises
            return False
        expected = {name: each.value for name, each in before.hyperparameters.items()}
        for name, each in changed.items():
            expected[name] = np.array(each, before.hyperparameters[name].dtype)
        found = {name: each.value for name, each in after.hyperparameters.items()}
        if found != expected or without_values(after) != without_values(before):
            return False
        follows, starts = dict(self.follows), _starts(before)
        for key, (start, dtype) in _starts(after).items():
            equal = [name for name, each in changed.items() if start == np.array(each, dtype)]
            if start != starts[key][0] and equal:
                follows.setdefault(key, equal[0])
            wanted = changed.get(follows.get(key, ""))
            if start != (starts[key][0] if wanted is None else np.array(wanted, dtype)):
                return False
        self.follows.update(follows)
        return True


def _starts(record: Record) -> Dict[Tuple[int, str], Tuple[Any, str]]:
    """Returns the initial values of slots and shared variables, with their dtypes."""
    found = {(_SHARED, name): (each.value, each.dtype) for name, each in record.shared.items()}
    for i, group in enumerate(record.groups):
        found.update(
            ((i, name), (each.initial, each.dtype)) for name, each in group.slots.items()
        )
    return found


def _with_follows(
    record: Record, follows: Mapping[Tuple[int, str], str], decided: Collection[str]
) -> Record:
    """Returns a record whose slots and shared variables follow hyperparameters."""

    def following(number: int, parts: Mapping[str, Any]) -> Dict[str, Any]:
        names = {name: follows.get((number, name)) for name in parts}
        return {
            name: each._replace(follows=None if names[name] in decided else names[name])
            for name, each in parts.items()
        }

    groups = [
        group._replace(slots=following(i, group.slots)) for i, group in enumerate(record.groups)
    ]
    return record._replace(shared=following(_SHARED, record.shared), groups=tuple(groups))

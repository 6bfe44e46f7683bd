"""Compares recorded rules with optimizers of other libraries that do nearly the same.

`torch_own` and `optax_own` translate states to such an optimizer. To measure the difference, a
small problem trains with the rule, its state is translated, and both optimizers go on.
"""

from __future__ import annotations

import itertools
import math
from typing import Any, Callable, Dict, List, Mapping, NamedTuple, Sequence, Tuple

import numpy as np

from legacy_opt.programs.operations import INTEGERS
from legacy_opt.recorded import neighbours
from legacy_opt.recorded.arrays.interpreter import given_hyperparameters
from legacy_opt.recorded.numpy import NumpyOptimizer
from legacy_opt.recorded.proofs import judging, reference
from legacy_opt.recorded.proofs.proof import Arrays, Proof
from legacy_opt.recorded.records import Record, RecordError
from legacy_opt.recorded.state_files import SavedState, state_of

Gradients = Sequence[Arrays]
Rates = Sequence[float]
EXACT, ROUNDING, DIFFERS = "exact", "rounding", "differs"
_BEFORE, _AFTER = 10, 20  # steps before and after the translation
_SCALES = (1.0, 1e-2, 1e-4, 1e-6, 1e-7)  # of the gradients
_SQUARES = ("v", "rms", "accum")  # slots with means of squares of gradients
_NAMES = {judging.EQUAL: EXACT, judging.ROUNDING: ROUNDING, judging.DIFFERS: DIFFERS}


class Grade(NamedTuple):
    """How near a training by another optimizer is.

    Attributes:
      name: "exact": all weights are equal to the bit; "rounding": some last digits differ; or
        "differs": it is another formula.
      ratio: the largest difference of a weight, as a multiple of what rounding may cause in its
        element (see `legacy_opt.proofs`).
      case: the gradients and rates with which the difference is largest.
    """

    name: str
    ratio: float
    case: str

    def __str__(self) -> str:
        return f"{self.name} ({self.ratio:.2g} error bars after {_AFTER} steps, {self.case})"


class Setting(NamedTuple):
    """An optimizer of another library, with the names and values of its arguments."""

    name: str
    arguments: Dict[str, Any]
    slots: Mapping[str, str]  # from our names to the library's
    step: int  # the number of completed steps


def _worse(grade: Grade) -> Tuple[int, float]:
    """Returns a key by which the worse grade is the larger one."""
    return (EXACT, ROUNDING, DIFFERS).index(grade.name), grade.ratio


Hyper = Mapping[str, float]
_Train = Callable[[SavedState, Setting, Gradients, Rates], Arrays]


def _settings(state: SavedState, library: str, hyper: Hyper) -> List[Setting]:
    """Returns the optimizers of another library that may be the same."""
    rows = neighbours.of_library(library)[state.record.optimizer]
    rows = [row for row in rows if row.needs in hyper] or [row for row in rows if not row.needs]
    slots = {name for of_variable in state.slots.values() for name in of_variable}
    given: Dict[str, Any] = dict(hyper, step=_steps_of(state, hyper), slots=slots)
    found = []
    for row in rows:
        names = {ours: theirs[0] for ours, theirs in row.slots.items() if ours in slots}
        values = {}
        for name, ours in row.arguments.items():
            value = given[ours] if isinstance(ours, str) else ours
            values[name] = value(given) if callable(value) else value
        choices = [each if isinstance(each, list) else [each] for each in values.values()]
        found += [
            Setting(row.name, dict(zip(values, each)), names, given["step"])
            for each in itertools.product(*choices)
        ]
    return found


def _steps_of(state: SavedState, hyper: Hyper) -> int:
    """Returns how many steps Adam has done: as counted, by its power of beta2, or globally."""
    if "step" in state.shared:
        return int(state.shared["step"])
    power = float(state.shared.get("beta2_power", 0.0))
    if power < 1e-30:  # there is no power, or it is too small for a logarithm
        return state.global_step
    return max(0, round(math.log(power) / math.log(hyper["beta2"])) - 1)


def chosen(
    state: SavedState, library: str, called: str, train: _Train, hyperparameters: Hyper
) -> Tuple[Setting, Grade]:
    """Chooses the optimizer of another library that is nearest to a rule, or raises a RecordError.

    Each trains on dense gradients of several scales, with constant and falling rates. The largest
    difference counts. The shared variables, global step and slots of `state` matter. `called` is a
    format string for the name of an optimizer in messages. `train` translates a state, trains on
    gradients with rates, and returns the variables. `hyperparameters` have other values than in the
    record.
    """
    record = state.record
    if record.clipping is not None:
        text = f"no optimizer of {library} itself clips gradients by their global norm"
        raise RecordError(f"{text}, as this record does. Train with the record instead")
    rules = neighbours.of_library(library)
    if record.optimizer not in rules:
        raise RecordError(
            f"{library} has no optimizer like {record.optimizer}, but like "
            f"{', '.join(sorted(rules))}. Train with the record instead"
        )
    hyper = given_hyperparameters(record, hyperparameters)
    try:
        possible = _settings(state, library, hyper)
    except (ArithmeticError, ValueError) as error:
        raise RecordError(
            f"no other optimizer has these hyperparameters of {record.optimizer}: {hyper} ({error})"
        ) from error

    def grade_of(number: int) -> Grade:
        def go_on(small: SavedState, gradients: Gradients, rates: Rates) -> Arrays:
            # The arguments may depend on the step, which `small` has advanced.
            return train(small, _settings(small, library, hyper)[number], gradients, rates)

        can_fall = record.hyperparameters["learning_rate"].dtype not in INTEGERS
        cases = itertools.product([*_SCALES, *_scale_of(state)], {False, can_fall})
        grades = [_measured(state, hyper, go_on, *case) for case in cases]
        return max(grades, key=_worse)

    found = [(setting, grade_of(number)) for number, setting in enumerate(possible)]
    setting, grade = min(found, key=lambda pair: _worse(pair[1]))
    if grade.name == DIFFERS:
        raise RecordError(
            f"{called.format(setting.name)} is another optimizer than {record.optimizer}: "
            f"after {_AFTER} steps, weights are {grade.ratio:.2g} error bars away, {grade.case}. "
            "Train with the record instead"
        )
    return setting, grade


def _scale_of(state: SavedState) -> List[float]:
    """Returns [the scale of the smallest gradients], or [] if no slot has means of squares."""
    found = [slots[name] for slots in state.slots.values() for name in _SQUARES if name in slots]
    squares = [np.quantile(each[each > 0], 0.01) for each in found if np.any(each > 0)]
    return [float(np.sqrt(min(squares) / _bias_correction(state)))] if squares else []


def _bias_correction(state: SavedState) -> float:
    """Returns the factor by which Adam's means of squares are too small; 1 for other rules."""
    return 1.0 - float(state.shared.get("beta2_power", 0.0))


def _measured(
    state: SavedState, hyper: Mapping[str, Any], go_on: Any, scale: float, falls: bool
) -> Grade:
    """Returns the grade in one case: gradients of a scale, and a falling rate or not."""
    draw = np.random.RandomState(0)
    record, shapes = _small(state.record)

    def drawn(factor: float) -> Dict[str, np.ndarray]:
        return {
            name: np.array(factor * draw.standard_normal(shape), record.dtype)
            for name, shape in shapes.items()
        }

    weights = drawn(1.0)
    gradients = [drawn(scale) for _ in range(_BEFORE + _AFTER)]
    optimizer = NumpyOptimizer(record, weights, **hyper)
    optimizer.state.shared.update(state.shared)
    optimizer.state.global_step = state.global_step
    for slots in optimizer.state.slots.values():
        for name in set(_SQUARES) & set(slots):
            slots[name].fill(scale**2 * _bias_correction(state))
    for each in gradients[:_BEFORE]:
        optimizer.step(each)
    rate = hyper["learning_rate"]
    rates = [rate * (1 - i / _AFTER) if falls else rate for i in range(_AFTER)]
    inputs = Proof(
        start=state_of(optimizer),
        hyperparameters=[dict(hyper, learning_rate=each) for each in rates],
        gradients=gradients[_BEFORE:],
        ends={},
    )
    ends = reference.with_ends(inputs, [_AFTER]).ends
    found = go_on(inputs.start, inputs.gradients, rates)
    verdict = judging.judge(ends, {_AFTER: found})
    case = f"with gradients of {scale:.2g}" + (" and a falling rate" if falls else "")
    return Grade(_NAMES[verdict.name], verdict.error.ratio, case)


def _small(record: Record) -> Tuple[Record, Dict[str, Sequence[int]]]:
    """Returns a record for small variables, one for each group with a dense update, and shapes.

    Raises a RecordError if no group has an update for dense gradients.
    """
    groups = []
    for i, group in enumerate(record.groups):
        if isinstance(group.dense, str):
            continue
        if group.variables is None:
            low, high = group.ranks or (0, None)
            rank = max(low, 2 if high is None else min(high, 2))  # 2 if the group has this rank
        else:
            rank = len(next(iter(group.variables.values())))
        shape = (5, 4, *[2] * (rank - 2))[:rank]
        groups.append(group._replace(variables={f"w{i}": shape}, ranks=None))
    if not groups:
        raise RecordError(f"the record of {record.optimizer} has no update for dense gradients")
    shapes = {name: shape for group in groups for name, shape in group.variables.items()}
    return record._replace(groups=tuple(groups)), shapes

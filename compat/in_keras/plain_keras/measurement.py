"""Measures how far Keras' own optimizer and a v1 optimizer differ when both train side by side."""

from __future__ import annotations

import contextlib
from concurrent import futures
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Optional, Sequence, Tuple

import numpy as np
import tensorflow as tf

from legacy_opt.recorded.numpy import Rows

from ... import arrays, messages
from .. import side_by_side
from .counterparts import DENSE, KINDS, RATE, REPEATED, ROWS

GRADES = ("exact", "rounding", "differs")  # from best to worst
EXACT, ROUNDING, DIFFERS = GRADES
STEPS = 20
_WARM_UP = 5
_SHAPE = (9, 3)
# Factors of the gradients, by column. Small gradients reveal where epsilon is added.
_SCALES = (1.0, 1e-2, 1e-4)
# A difference of a weight counts as rounding if it is at most the sum of _ROUNDING times the length
# of the weight's own way, and _LAST_DIGITS times the weight.
_ROUNDING = 1e-4
_LAST_DIGITS = 4 * np.finfo(np.float32).eps
# The factor by which the kind "learning rate changed" multiplies the learning rate.
_DROP = 0.1
_Make = Callable[[], Tuple[Any, Any]]  # see `measure`
_Carry = Optional[Callable[..., None]]


class Measurement(NamedTuple):
    """The difference between two optimizers in one kind of training, measured in float32.

    Attributes:
      kind: "dense"; "some rows" (sparse gradients without repeated ids, for some of the rows);
        "repeated ids" (sparse gradients for all rows, with some rows twice); or "learning rate
        changed" (dense gradients; the learning rate is divided by ten after the translation).
      grade: "exact", "rounding" or "differs".
      largest: the largest difference in 20 training steps, of the weight that differs most clearly;
        inf if training raises an error.
      distance: the length of the way of this weight in these steps.
      counts: whether this kind counts for the grade of the translation.
      why: why the two optimizers differ, or None.
    """

    kind: str
    grade: str
    largest: float
    distance: float
    counts: bool
    why: Optional[str] = None

    @property
    def share(self) -> float:
        """The largest difference as a share of `distance`."""
        return self.largest / self.distance if self.distance else float(self.largest > 0)

    def __str__(self) -> str:
        size = "0" if self.grade == EXACT else f"{self.largest:.0e} of {self.distance:.1g}"
        if self.grade == DIFFERS:
            size = f"{self.largest:.2g} of {self.distance:.2g} ({100 * self.share:.0f} %)"
        if not np.isfinite(self.largest):
            size = "inf"
        return f"{self.kind}: {self.grade}, {size}{'' if self.counts else ' (does not count)'}"


def measure(make: _Make, carry: _Carry, rate: float, are_separate: bool) -> List[Measurement]:
    """Trains scratch variables with two optimizers side by side.

    Args:
      make: a function without arguments that returns two new optimizers. The first has the settings
        of the optimizer that was translated, the second has the settings of the translation.
      carry: a function that copies the state of the first optimizer to the second, or None. It
        takes both optimizers, the variables of the first, and the variables of the second.
      rate: the current learning rate.
      are_separate: whether each kind of training needs separate optimizers. This is the case with
        global_clipnorm, because then each gradient influences the updates of all variables.

    Returns:
      A list with a `Measurement` for each of `KINDS`; `why` is for errors of training alone.
    """
    if tf.distribute.has_strategy():
        # A new thread has no active strategy, so the scratch variables have no replicas there.
        with futures.ThreadPoolExecutor(1) as pool:
            return pool.submit(measure, make, carry, rate, are_separate).result()
    results = None
    if not are_separate:
        with contextlib.suppress(Exception):  # after an error, each kind is trained alone below
            results = _train_kinds(make, carry, rate, kinds=(DENSE, ROWS, REPEATED))
    if results is None:
        results = _train_kinds(make, carry, rate, kinds=(DENSE,))
        for kind in (ROWS, REPEATED):
            try:
                results.update(_train_kinds(make, carry, rate, kinds=(kind,)))
            except Exception as error:  # Keras or a user's function may not take sparse gradients
                why = "training raises " + messages.with_class(error).split("\n")[0]
                results[kind] = Measurement(kind, DIFFERS, np.inf, 0.0, counts=True, why=why)
    return [results[kind] for kind in KINDS]


def _train_kinds(
    make: _Make, carry: _Carry, rate: float, kinds: Sequence[str]
) -> Dict[str, Measurement]:
    """Trains a variable for each kind of training, and measures each; see `measure`.

    If `carry` is given, the first optimizer warms up.
    """
    problem = _problem(kinds, size=min(1.0, 10 * rate))
    steps = iter(problem.gradients)
    with side_by_side.scope() as initialize:
        trainings = [side_by_side.training(each, problem, named=False) for each in make()]
        initialize()
        if carry is not None:
            for _ in range(_WARM_UP):
                trainings[0].step(next(steps))
        results = _continue(trainings, steps, carry)
        if DENSE in results:
            changed = _continue(trainings, steps, carry, rate=_DROP * rate)
            results[RATE] = changed[DENSE]._replace(kind=RATE)
        return results


def _problem(kinds: Sequence[str], size: float) -> side_by_side.Problem:
    """Returns a `Problem` with one variable, of values of about `size`, per kind of training."""
    random = np.random.RandomState(0)
    values = {kind: (size * random.randn(*_SHAPE)).astype(np.float32) for kind in kinds}
    steps = range(_WARM_UP + 2 * STEPS)
    gradients = [{kind: _gradient(kind, random) for kind in kinds} for _ in steps]
    return side_by_side.Problem(values, gradients)


def _gradient(kind: str, random: np.random.RandomState) -> Any:
    draw = lambda rows: (random.randn(rows, _SHAPE[1]) * _SCALES).astype(np.float32)  # noqa: E731
    if kind == DENSE:
        return draw(_SHAPE[0])
    some_rows = random.permutation(_SHAPE[0] - 1)[:3]  # never the last row
    ids = some_rows if kind == ROWS else np.concatenate([np.arange(_SHAPE[0]), some_rows])
    return Rows(ids.astype(np.int64), draw(len(ids)))


def _continue(
    trainings: Sequence[Any], steps: Iterator[Any], carry: _Carry, rate: Optional[float] = None
) -> Dict[str, Measurement]:
    """Continues both trainings from the weights of the first. Measures each kind."""
    source, target = trainings
    before = source.values(source.variables)
    target.assign(before)
    if carry is not None:
        variables = [list(training.variables.values()) for training in trainings]
        carry(source.optimizer, target.optimizer, *variables)
    if rate is not None:
        for training in trainings:
            training.optimizer.learning_rate = rate
    gaps, ways = ({kind: np.zeros(_SHAPE) for kind in before} for _ in range(2))
    weights = before
    for _ in range(STEPS):
        gradients, last = next(steps), weights
        weights, target_weights = source.step(gradients), target.step(gradients)
        for kind in before:
            gap = arrays.differences(weights[kind], target_weights[kind])
            gaps[kind] = np.maximum(gaps[kind], gap)
            ways[kind] += arrays.differences(weights[kind], last[kind])
    return {kind: _worst(kind, gaps[kind], ways[kind], weights[kind]) for kind in before}


def _worst(kind: str, gaps: np.ndarray, ways: np.ndarray, weights: np.ndarray) -> Measurement:
    """Returns the measurement of the weight whose difference is least like rounding."""
    found = []
    for gap, way, weight in zip(*(array.reshape(-1).tolist() for array in (gaps, ways, weights))):
        is_rounding = gap <= _ROUNDING * way + _LAST_DIGITS * abs(weight)
        grade = EXACT if gap == 0 else ROUNDING if is_rounding else DIFFERS
        found.append(Measurement(kind, grade, gap, way, counts=True))
    return max(found, key=lambda each: (GRADES.index(each.grade), each.largest))

"""Measures how far Keras' own optimizer and a v1 optimizer differ when both train side by side."""

from __future__ import annotations

import contextlib
from concurrent import futures
from typing import NamedTuple, Optional

import numpy as np
import tensorflow as tf

from .. import arrays
from .counterparts import DENSE, KINDS, RATE, REPEATED, ROWS

v1 = tf.compat.v1
EXACT, ROUNDING, DIFFERS = GRADES = ("exact", "rounding", "differs")  # from best to worst
STEPS = 20
_WARM_UP = 5
_SHAPE = (9, 3)
# Factors of the gradients, by column. Small gradients reveal where epsilon is added.
_SCALES = (1.0, 1e-2, 1e-4)
# A difference counts as rounding if it is at most the sum of _ROUNDING times the largest distance
# that a weight has moved, and _LAST_DIGITS times the largest weight. In experiments, rounding alone
# caused differences of at most 1e-5 times that distance. A different update rule caused differences
# of at least 0.03 times that distance.
_ROUNDING = 1e-4
_LAST_DIGITS = 4 * np.finfo(np.float32).eps
# The factor by which the kind "learning rate changed" multiplies the learning rate.
_DROP = 0.1


class Measurement(NamedTuple):
    """The difference between two optimizers in one kind of training, measured in float32.

    Attributes:
      kind: "dense"; "some rows" (sparse gradients without repeated ids, for some of the rows);
        "repeated ids" (sparse gradients for all rows, with some rows twice); or "learning rate
        changed" (dense gradients; the learning rate is divided by ten after the translation).
      grade: "exact", "rounding" or "differs".
      largest: the largest difference between two corresponding weights in 20 training steps; inf if
        training raises an error.
      distance: the largest distance by which a weight has moved in these steps.
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

    def __str__(self):
        size = "0" if self.grade == EXACT else f"{self.largest:.0e} of {self.distance:.1g}"
        if self.grade == DIFFERS:
            size = f"{self.largest:.2g} of {self.distance:.2g} ({100 * self.share:.0f} %)"
        if not np.isfinite(self.largest):
            size = "inf"
        return f"{self.kind}: {self.grade}, {size}{'' if self.counts else ' (does not count)'}"


class SideBySide(NamedTuple):
    """The result of training with two optimizers side by side.

    Attributes:
      largest: the largest difference between two corresponding weights.
      distance: the largest distance by which a weight has moved.
      size: the largest absolute value of a weight.
      error: the exception if training with one of the optimizers fails, or None.
    """

    largest: float
    distance: float
    size: float
    error: Optional[Exception] = None

    @property
    def grade(self):
        """The grade: "exact", "rounding" or "differs"."""
        if self.largest == 0:
            return EXACT
        rounding = _ROUNDING * self.distance + _LAST_DIGITS * self.size
        return ROUNDING if self.largest <= rounding else DIFFERS


def worst(measurements):
    """Returns the worst grade of the measurements whose `counts` is True."""
    return max((each.grade for each in measurements if each.counts), key=GRADES.index)


def measure(make, carry, rate, apart):
    """Trains scratch variables with two optimizers side by side.

    Args:
      make: a function without arguments that returns two new optimizers. The first has the settings
        of the optimizer that was translated, the second has the settings of the translation.
      carry: a function that copies the first optimizer's state to the second optimizer; None if no
        state is translated. The function's arguments are the two optimizers, the variables of the
        first optimizer and the variables of the second optimizer.
      rate: the current learning rate.
      apart: whether each kind of training needs separate optimizers. This is the case with
        global_clipnorm, because then each gradient influences the updates of all variables.

    Returns:
      A list with a `SideBySide` for each of `KINDS`.
    """
    if not tf.distribute.has_strategy():
        return _measure(make, carry, rate, apart)
    # A new thread has no active distribution strategy, so the scratch variables have no replicas.
    with futures.ThreadPoolExecutor(1) as pool:
        return pool.submit(_measure, make, carry, rate, apart).result()


def _measure(make, carry, rate, apart):
    found = None
    if not apart:
        with contextlib.suppress(Exception):  # after an error, each kind is trained alone below
            found = _train_kinds(make, carry, rate, (DENSE, ROWS, REPEATED))
    if found is None:
        found = _train_kinds(make, carry, rate, (DENSE,))
        for kind in (ROWS, REPEATED):
            try:
                found.update(_train_kinds(make, carry, rate, (kind,)))
            except Exception as error:  # Keras or a user's function may not take sparse gradients
                found[kind] = SideBySide(np.inf, 0.0, 0.0, error)
    return [found[kind] for kind in KINDS]


def _train_kinds(make, carry, rate, kinds):
    with _scratch() as start:
        problem = _Problem(kinds, min(1.0, 10 * rate))
        runs = [_run(optimizer, problem) for optimizer in make()]
        start()
        return _side_by_side(runs, problem, carry, rate)


class _Problem:
    """The starting values of one variable per kind of training, and the gradients of each step."""

    def __init__(self, kinds, size):
        random = np.random.RandomState(0)
        start = lambda: (size * random.randn(*_SHAPE)).astype(np.float32)  # noqa: E731
        self.values = {kind: start() for kind in kinds}
        self.steps = [
            [_gradient(kind, random) for kind in kinds] for _ in range(_WARM_UP + 2 * STEPS)
        ]

    def specs(self):
        """Yields the dtypes and shapes of the tensors that make up one step's gradients."""
        for kind in self.values:
            if kind == DENSE:
                yield tf.float32, _SHAPE
            else:
                yield tf.float32, (None, _SHAPE[1])
                yield tf.int64, (None,)

    def pairs(self, tensors, variables):
        """Yields (gradient, variable) pairs from a flat list of one step's tensors."""
        tensors = iter(tensors)
        for kind, variable in zip(self.values, variables):
            gradient = next(tensors)
            if kind != DENSE:
                shape = tf.constant(_SHAPE, tf.int64)  # a tensor, as in embedding layers' gradients
                gradient = tf.IndexedSlices(gradient, next(tensors), shape)
            yield gradient, variable


def _gradient(kind, random):
    draw = lambda rows: (random.randn(rows, _SHAPE[1]) * _SCALES).astype(np.float32)  # noqa: E731
    if kind == DENSE:
        return draw(_SHAPE[0])
    some = random.permutation(_SHAPE[0] - 1)[:3]  # never the last row
    ids = some if kind == ROWS else np.concatenate([np.arange(_SHAPE[0]), some])
    return draw(len(ids)), ids.astype(np.int64)


@contextlib.contextmanager
def _scratch():
    """Makes a scope for scratch variables; yields a function that initializes them."""
    if tf.executing_eagerly():
        yield lambda: None
        return
    with tf.Graph().as_default(), v1.Session() as session:
        yield lambda: session.run(v1.global_variables_initializer())


def _run(optimizer, problem):
    return (_EagerRun if tf.executing_eagerly() else _GraphRun)(optimizer, problem)


class _EagerRun:
    """An optimizer that trains scratch variables in a tf.function."""

    def __init__(self, optimizer, problem):
        self.optimizer = optimizer
        self.variables = _variables(problem)
        signature = [tf.TensorSpec(shape, dtype) for dtype, shape in problem.specs()]

        @tf.function(input_signature=signature, autograph=False)
        def train(*tensors):
            optimizer.apply_gradients(list(problem.pairs(tensors, self.variables)))

        self._train = train

    def step(self, gradients):
        """Trains one step and returns the variables' values."""
        self._train(*map(tf.constant, tf.nest.flatten(gradients)))
        return self.values()

    def values(self):
        """Returns the variables' values."""
        return [variable.numpy() for variable in self.variables]

    def assign(self, values):
        """Sets the variables."""
        for variable, value in zip(self.variables, values):
            variable.assign(value)


class _GraphRun:
    """An optimizer that trains scratch variables in a graph, with the default Session."""

    def __init__(self, optimizer, problem):
        self.optimizer = optimizer
        self.variables = _variables(problem)
        self._inputs = [v1.placeholder(dtype, shape) for dtype, shape in problem.specs()]
        self._train = optimizer.apply_gradients(list(problem.pairs(self._inputs, self.variables)))

    def step(self, gradients):
        session = v1.get_default_session()
        session.run(self._train, dict(zip(self._inputs, tf.nest.flatten(gradients))))
        return self.values()

    def values(self):
        return v1.get_default_session().run(self.variables)

    def assign(self, values):
        for variable, value in zip(self.variables, values):
            variable.load(value, v1.get_default_session())


def _variables(problem):
    return [tf.compat.v2.Variable(value) for value in problem.values.values()]


def _side_by_side(runs, problem, carry, rate):
    """Trains both optimizers, after a warm-up of the first optimizer if state is translated.

    Returns:
      A dict from each kind to a `SideBySide`.
    """
    steps = iter(problem.steps)
    if carry is not None:
        for _ in range(_WARM_UP):
            runs[0].step(next(steps))
    found = dict(zip(problem.values, _continue(runs, steps, carry)))
    if DENSE in found:
        found[RATE] = _continue(runs, steps, carry, _DROP * rate)[0]
    return found


def _continue(runs, steps, carry, rate=None):
    """Continues both runs from the weights of the first run.

    Returns:
      A list with a `SideBySide` for each variable.
    """
    source, target = runs
    before = source.values()
    target.assign(before)
    if carry is not None:
        carry(source.optimizer, target.optimizer, source.variables, target.variables)
    if rate is not None:
        for run in runs:
            run.optimizer.learning_rate = rate
    gaps = np.zeros(len(before))
    for _ in range(STEPS):
        gradients = next(steps)
        after = source.step(gradients)
        gone = target.step(gradients)
        gaps = np.maximum(gaps, list(map(arrays.largest_difference, after, gone)))
    return [
        SideBySide(float(gap), _largest(end - start), _largest(end))
        for gap, start, end in zip(gaps, before, after)
    ]


def _largest(values):
    return float(np.max(np.abs(values[np.isfinite(values)]), initial=0.0))

"""Stochastic weight averaging (SWA): the mean of snapshots of the variables.

After the inner optimizer's update in the steps start, start + period, start + 2 period, …::

    average = (average * n + w) / (n + 1)        where n is (step - start) / period

So n is the number of earlier snapshots of a variable that has had a gradient in each of them.

Source: arXiv:1803.05407 (Izmailov et al.), and `tfa.optimizers.SWA` of TensorFlow Addons 0.23, with
the same arguments, slot and arithmetic.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from legacy_opt.core import argument_checks
from legacy_opt.core.hyperparameters import wide_dtype
from legacy_opt.core.types import Tensor, V1Optimizer, Variable
from legacy_opt.wrappers.averages import AveragingOptimizer
from legacy_opt.wrappers.shadows import WHOLE_VARIABLE, PeriodicOptimizer


class SWAOptimizer(PeriodicOptimizer, AveragingOptimizer):
    """Computes the mean of snapshots of each trained variable (stochastic weight averaging).

    As in `MovingAverageOptimizer`, `average(w)` returns the average of `w`, and `swapping_saver`
    saves the averages under the variables' names. The average is the slot `average`, the variable
    ``w/SWA`` with the shape and dtype of `w`. Before the first snapshot, it equals the variable.
    (In Addons it is zero then.) Averages of 16-bit variables are computed in float32. ``SWA/step``,
    int64, counts the steps, also for variables without a gradient, which are not averaged: a
    variable that is trained later starts with the weight of the missed snapshots at its value
    before. A sparse gradient averages all rows.

    Example::

        w = tf.Variable([1.0])
        descent = tf.compat.v1.train.GradientDescentOptimizer(0.25)
        optimizer = legacy_opt.SWAOptimizer(descent, average_period=1)
        for _ in range(2):
            optimizer.apply_gradients([(tf.constant([1.0]), w)])
        print(w.numpy(), optimizer.average(w).numpy())  # [0.5] [0.625]

    Args:
      optimizer: the v1 optimizer that updates the variables.
      start_averaging: the step, from 0, after which the first snapshot is taken, an integer.
      average_period: the number of steps from a snapshot to the next, a positive integer.
      name: the name of this optimizer and its slots.

    Raises:
      TypeError: `optimizer` is not a v1 optimizer, or another argument has the wrong type.
      ValueError: a number is out of its range; or `optimizer` accumulates gradients.
    """

    _shadow = "average"
    _work_without_kernel = "averages snapshots"

    def __init__(
        self,
        optimizer: V1Optimizer,
        start_averaging: int = 0,
        average_period: int = 10,
        name: str = "SWA",
    ) -> None:
        super().__init__(optimizer, name)
        start = argument_checks.integer("start_averaging", start_averaging)
        self._start_averaging = argument_checks.not_negative("start_averaging", start)
        self._average_period = argument_checks.positive_integer("average_period", average_period)

    def _is_due(self, step: Tensor) -> Tensor:
        since_start = step - self._start_averaging
        # Until the first snapshot, there are no earlier ones, and so the average is the variable.
        return tf.logical_or(since_start <= 0, tf.equal(since_start % self._average_period, 0))

    def _update(self, variable: Variable, shadow: Variable, step: Tensor) -> Any:
        dtype = shadow.dtype.base_dtype
        wide = wide_dtype(dtype)
        earlier = (step - self._start_averaging) // self._average_period
        earlier = tf.cast(tf.maximum(earlier, 0), wide)
        average, value = (tf.cast(WHOLE_VARIABLE.read(each), wide) for each in (shadow, variable))
        average = (average * earlier + value) / (earlier + 1)
        return WHOLE_VARIABLE.assign(shadow, tf.cast(average, dtype))

"""Stochastic weight averaging: the mean of snapshots of the variables.

After the update by the inner optimizer in the steps start, start + period, start + 2 period, …::

    average = (average * n + w) / (n + 1)        where n is the number of earlier snapshots

Source: Izmailov, Podoprikhin, Garipov, Vetrov, Wilson, "Averaging Weights Leads to Wider Optima and
Better Generalization" (arXiv:1803.05407), and `tfa.optimizers.SWA` of TensorFlow Addons 0.23. The
arguments, the slot and the arithmetic are those of Addons.
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

    Snapshots are taken after the steps `start_averaging`, ``start_averaging + average_period``, …;
    the first step has the number 0. Usually the learning rate is high or cyclic in these steps, and
    a snapshot is taken at the end of a cycle. As in `MovingAverageOptimizer`, `average(w)` returns
    the average of `w`, and `swapping_saver` saves the averages under the variables' names.

    The average of `w` is the slot `average`, the variable ``w/SWA`` with the shape and dtype of
    `w`. Before the first snapshot, it equals the variable. (In Addons it is zero, so that an
    evaluation with the averages would evaluate a model of zeros.) Averages of 16-bit variables are
    computed in float32. A variable without a gradient in a step is not averaged in this step, and
    the step counts nevertheless. A sparse gradient averages all rows. The shared variable
    ``SWA/step``, int64, counts the steps.

    If a model has batch normalization, its moving statistics do not fit the averages: compute them
    again, by passing data through the model with the averages in training mode.

    Example::

        w = tf.Variable([1.0])
        descent = tf.compat.v1.train.GradientDescentOptimizer(0.25)
        optimizer = legacy_opt.SWAOptimizer(descent, average_period=1)
        for _ in range(2):
            optimizer.apply_gradients([(tf.constant([1.0]), w)])
        print(w.numpy(), optimizer.average(w).numpy())  # [0.5] [0.625]

    Args:
      optimizer: any `tf.compat.v1.train.Optimizer` that updates variables in each step.
      start_averaging: the number of the step after which the first snapshot is taken, an integer of
        at least 0.
      average_period: the number of steps from a snapshot to the next, a positive integer.
      name: the name of this optimizer and its slots.

    Raises:
      TypeError: `optimizer` is not a v1 optimizer, or another argument has the wrong type.
      ValueError: a number is out of its range; or `optimizer` contains a
        `GradientAccumulationOptimizer`, which must be outside.
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
        snapshots = tf.maximum((step - self._start_averaging) // self._average_period, 0)
        snapshots = tf.cast(snapshots, wide)
        average, value = (tf.cast(WHOLE_VARIABLE.read(each), wide) for each in (shadow, variable))
        average = (average * snapshots + value) / (snapshots + 1)
        return WHOLE_VARIABLE.assign(shadow, tf.cast(average, dtype))

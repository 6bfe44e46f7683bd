"""Lookahead: slow weights follow the weights that the inner optimizer trains.

After each `sync_period`-th update by the inner optimizer::

    slow += slow_step_size * (w - slow)
    w = slow

Source: arXiv:1907.08610 (Zhang et al.), and `tfa.optimizers.Lookahead` of TensorFlow Addons 0.23,
with the same arguments, slot and arithmetic.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from legacy_opt.core import argument_checks
from legacy_opt.core.hyperparameters import current_value
from legacy_opt.core.types import Hyperparameter, Tensor, V1Optimizer, Variable
from legacy_opt.core.variable_access import after
from legacy_opt.wrappers.shadows import WHOLE_VARIABLE, PeriodicOptimizer


class LookaheadOptimizer(PeriodicOptimizer):
    """Moves slow weights towards the trained weights every few steps, and goes on from there.

    The slow weights of `w` are the slot `slow`, the variable ``w/Lookahead`` with the shape and
    dtype of `w`. They start at the initial value of `w` (in eager execution and in a `tf.function`,
    at the value before the first training step). ``Lookahead/step``, int64, counts the steps, also
    for variables without a gradient, which do not change. A sparse gradient synchronizes all rows.

    Example::

        w = tf.Variable([1.0])
        descent = tf.compat.v1.train.GradientDescentOptimizer(0.25)
        optimizer = legacy_opt.LookaheadOptimizer(descent, sync_period=2)
        for _ in range(2):
            optimizer.apply_gradients([(tf.constant([1.0]), w)])
        print(w.numpy())  # [0.75]

    Args:
      optimizer: the v1 optimizer that updates the variables.
      sync_period: the number of steps between synchronizations, a positive integer.
      slow_step_size: the part of the way from the slow to the trained weights: a number, scalar
        tensor or variable, or a callable that returns one of these.
      name: the name of this optimizer and its slots.

    Raises:
      TypeError: `optimizer` is not a v1 optimizer, or another argument has the wrong type.
      ValueError: a number is out of its range; or `optimizer` accumulates gradients.
    """

    _shadow = "slow"
    _work_without_kernel = "synchronizes slow weights"

    def __init__(
        self,
        optimizer: V1Optimizer,
        sync_period: int = 6,
        slow_step_size: Hyperparameter = 0.5,
        name: str = "Lookahead",
    ) -> None:
        super().__init__(optimizer, name)
        self._sync_period = argument_checks.positive_integer("sync_period", sync_period)
        self._slow_step_size = argument_checks.not_negative("slow_step_size", slow_step_size)

    def _is_due(self, step: Tensor) -> Tensor:
        return tf.equal((step + 1) % self._sync_period, 0)

    def _update(self, variable: Variable, shadow: Variable, step: Tensor) -> Any:
        slow = WHOLE_VARIABLE.read(shadow)
        size = tf.cast(current_value("slow_step_size", self._slow_step_size), slow.dtype)
        synchronized = slow + size * (WHOLE_VARIABLE.read(variable) - slow)
        with after(synchronized):
            both = shadow, variable
            return tf.group(*[WHOLE_VARIABLE.assign(each, synchronized) for each in both])

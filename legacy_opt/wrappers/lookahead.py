"""Lookahead: slow weights follow the weights that the inner optimizer trains.

After each `sync_period`-th update by the inner optimizer::

    slow += slow_step_size * (w - slow)
    w = slow

Source: Zhang, Lucas, Hinton, Ba, "Lookahead Optimizer: k steps forward, 1 step back"
(arXiv:1907.08610), and `tfa.optimizers.Lookahead` of TensorFlow Addons 0.23. The arguments, the
slot and the arithmetic are those of Addons.
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

    The inner optimizer trains the variables ("fast weights"). In every `sync_period`-th step, the
    slow weights move by the fraction `slow_step_size` of the way to the fast weights, and the fast
    weights are set to the slow weights. Slots of the inner optimizer do not change. Lookahead
    around `RectifiedAdamOptimizer` is known as "Ranger".

    A variable without a gradient in a step does not change, and the step counts nevertheless. A
    sparse gradient synchronizes all rows. An average or a table of slow weights therefore takes the
    memory of the variable.

    The slow weights of `w` are the slot `slow`, the variable ``w/Lookahead`` with the shape and
    dtype of `w`, which starts at the initial value of `w`. (In eager execution and in a
    `tf.function`: at the value before the first training step.) The shared variable
    ``Lookahead/step``, int64, counts the steps.

    Example::

        w = tf.Variable([1.0])
        descent = tf.compat.v1.train.GradientDescentOptimizer(0.25)
        optimizer = legacy_opt.LookaheadOptimizer(descent, sync_period=2)
        for _ in range(2):
            optimizer.apply_gradients([(tf.constant([1.0]), w)])
        print(w.numpy())  # [0.75]

    Args:
      optimizer: any `tf.compat.v1.train.Optimizer` that updates variables in each step.
      sync_period: the number of steps between synchronizations, a positive integer.
      slow_step_size: the fraction of the way from the slow to the fast weights: a number, scalar
        tensor or variable, or a callable that returns one of these.
      name: the name of this optimizer and its slots.

    Raises:
      TypeError: `optimizer` is not a v1 optimizer, or another argument has the wrong type.
      ValueError: a number is out of its range, NaN or infinite; or `optimizer` contains a
        `GradientAccumulationOptimizer`, which must be outside.
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
            writes = [WHOLE_VARIABLE.assign(each, synchronized) for each in (shadow, variable)]
        return tf.group(*[write for write in writes if write is not None])

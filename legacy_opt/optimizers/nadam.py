"""Nadam: Adam with Nesterov momentum.

The update of a variable w with the gradient g, for the t-th time (from 1)::

    m = beta1 * m + (1 - beta1) * g
    v = beta2 * v + (1 - beta2) * g**2
    ahead = beta1 * m + (1 - beta1) * g                     with the new m
    w -= learning_rate * sqrt(1 - beta2**t) / (1 - beta1**t) * ahead / (sqrt(v) + epsilon)

Source: `tf.contrib.opt.NadamOptimizer` of TensorFlow 1.15, after Dozat, "Incorporating Nesterov
Momentum into Adam" (2015), but without the momentum schedule of this paper.
"""

from __future__ import annotations

from typing import Optional

import tensorflow as tf

from legacy_opt.core.types import Operation, Tensor
from legacy_opt.core.update import Fading, RuleResult, Update, Values
from legacy_opt.optimizers.adam_base import AS_IN_A_SESSION, AdamBase, corrected_rate, moments


class NadamOptimizer(AdamBase):
    """Adam with Nesterov momentum (tf.contrib.opt).

    Unlike Keras' Nadam, this optimizer has no momentum schedule.

    With a sparse gradient, `m` and `v` decay in all rows, so each update reads and writes both
    slots completely. The variable changes only in the rows of the gradient.

    Slots, in this order, named after the optimizer (`w/Adam`, `w/Adam_1`, because the default name
    is "Adam"): `m` and `v`, with the variable's shape and dtype, initialized to zero. All variables
    share `beta1_power` and `beta2_power`, float32 scalars initialized to `beta1` and `beta2`.

    Example::

        with tf.Graph().as_default(), tf.compat.v1.Session() as session:
            w = tf.compat.v1.get_variable("w", initializer=[1.0, 2.0])
            train_op = legacy_opt.NadamOptimizer(0.1).minimize(tf.reduce_sum(w * w))
            session.run(tf.compat.v1.global_variables_initializer())
            session.run(train_op)  # subtracts 0.19, where Adam subtracts 0.1
            print(session.run(w).round(3))  # [0.81 1.81]

    Args:
      learning_rate: see `LazyAdamOptimizer`, also for `beta1`, `beta2` and `epsilon`.
      use_locking: see `LazyAdamOptimizer`.
      name: the name of the optimizer and its slots.

    Raises:
      TypeError: an argument has the wrong type.
      ValueError: an argument is NaN or out of range.
    """

    def _rounding_of_operations(self) -> str:
        return AS_IN_A_SESSION  # like tf.contrib's operations in a Session

    def _rule(self, grad: Tensor, slots: Values, hyper: Values, rounding: str) -> RuleResult:
        m, v = moments(grad, slots, hyper, rounding)
        ahead = grad * (1 - hyper.beta1) + hyper.beta1 * m
        change = corrected_rate(hyper) * ahead / (tf.sqrt(v) + hyper.epsilon)
        # `Fading`: with a sparse gradient, m and v also decay in the rows outside the gradient.
        return change, {"m": Fading(m, hyper.beta1), "v": Fading(v, hyper.beta2)}

    def fused(self, update: Update) -> Optional[Operation]:
        return self.apply_kernel(update, update.hyper, use_nesterov=True)

"""AdaMax: Adam with a decaying maximum of absolute gradients in place of the second moment.

The update of a variable w with the gradient g, for the t-th time (from 1)::

    m = beta1 * m + (1 - beta1) * g
    v = max(beta2 * v, abs(g))
    w -= learning_rate / (1 - beta1**t) * m / (v + epsilon)

Source: `tf.contrib.opt.AdaMaxOptimizer` of TensorFlow 1.15, after Kingma and Ba, "Adam: A Method
for Stochastic Optimization" (2014), section 7.1.
"""

from __future__ import annotations

from typing import Any, Dict, Optional

import tensorflow as tf

from legacy_opt.core.types import Hyperparameter, Operation, Tensor
from legacy_opt.core.update import RuleResult, Update, Values
from legacy_opt.optimizers.adam_base import AdamBase, moving_average


class AdaMaxOptimizer(AdamBase):
    """Adam with an exponentially weighted infinity norm (tf.contrib.opt).

    A sparse gradient updates only its own rows of the variable and slots. The power of beta1
    changes in every training step.

    Slots, in this order, named after the optimizer (`w/AdaMax`, `w/AdaMax_1`): `m` and `v`, with
    the variable's shape and dtype, initialized to zero. All variables share `beta1_power`, a
    float32 scalar initialized to `beta1`.

    Example::

        with tf.Graph().as_default(), tf.compat.v1.Session() as session:
            w = tf.compat.v1.get_variable("w", initializer=[1.0, 1.0])
            optimizer = legacy_opt.AdaMaxOptimizer(0.1)  # no element moves much more than 0.1
            train_op = optimizer.apply_gradients([(tf.constant([0.01, 100.0]), w)])
            session.run(tf.compat.v1.global_variables_initializer())
            session.run(train_op)
            print(session.run(w).round(3))  # [0.9 0.9]

    Args:
      learning_rate: see `LazyAdamOptimizer`, also for `beta1`, `beta2` and `name`.
      epsilon: added to `v`; not negative. For float16 variables pass 1e-4 or more, because the
        default rounds to 0 in float16, and 0 / 0 is NaN.
      use_locking: whether native kernels, and TensorFlow's AdaMax kernel for dense gradients, lock
        the variables while they write.

    Raises:
      TypeError: an argument has the wrong type.
      ValueError: an argument is NaN or out of range.
    """

    def __init__(
        self,
        learning_rate: Hyperparameter = 0.001,
        beta1: Hyperparameter = 0.9,
        beta2: Hyperparameter = 0.999,
        epsilon: Hyperparameter = 1e-8,
        use_locking: bool = False,
        name: str = "AdaMax",
    ) -> None:
        super().__init__(learning_rate, beta1, beta2, epsilon, use_locking, name)

    def non_slots(self) -> Dict[str, Hyperparameter]:
        return {"beta1_power": self._beta1}

    def _get_beta_accumulators(self) -> Any:
        """Returns the variable with the power of beta1; None before the first update."""
        return self._non_slot("beta1_power")

    def _rule(self, grad: Tensor, slots: Values, hyper: Values, rounding: str) -> RuleResult:
        m = moving_average(slots.m, grad, hyper.beta1, rounding)
        v = tf.maximum(slots.v * hyper.beta2, tf.abs(grad))
        change = hyper.learning_rate / (1 - hyper.beta1_power) * (m / (v + hyper.epsilon))
        return change, {"m": m, "v": v}

    def fused(self, update: Update) -> Optional[Operation]:
        return self._call_kernel("AdaMax", update, update.hyper)

"""AdamGS and LazyAdamGS: Adam that takes the powers of beta from the global step.

    t = global_step + 1
    m = beta1 * m + (1 - beta1) * g
    v = beta2 * v + (1 - beta2) * g**2
    w -= learning_rate * sqrt(1 - beta2**t) / (1 - beta1**t) * m / (sqrt(v) + epsilon)

Source: `tf.contrib.opt.AdamGSOptimizer` and `LazyAdamGSOptimizer` of TensorFlow 1.15.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Dict, Union

import tensorflow as tf

from legacy_opt.core import argument_checks
from legacy_opt.core.types import DType, GlobalStep, Hyperparameter
from legacy_opt.optimizers.adam_base import AdamBase


class AdamGSOptimizer(AdamBase):
    """Adam without powers of beta of its own (tf.contrib.opt).

    The powers are ``beta ** (global_step + 1)``, computed in float32, so nothing but the slots has
    to be kept, and no variable is read and written by all workers in each step. It needs somebody
    to advance the global step: pass it to `minimize` or `apply_gradients` too. The default,
    ``global_step=0``, is the original's and hardly what anybody wants: a constant, with which every
    step is corrected like the first one. A `GlobalStepWarning` tells.

    Sparse gradients move all rows, as with `tf.compat.v1.train.AdamOptimizer`, which costs what the
    whole table costs; `LazyAdamGSOptimizer` moves the touched ones.

    Slots, in this order, both under the optimizer's name (`w/Adam`, `w/Adam_1`: the default name
    is Adam's): `m` and `v`, of the variable's shape and dtype, starting at zero.

    Args:
      global_step: the scalar variable that counts steps, int32 or int64 (or of a floating point
        dtype, which the original takes too; float32 stops counting at 2**24), or a number that is
        not negative; None takes the graph's own (`tf.compat.v1.train.get_global_step`).
      learning_rate: a number, scalar tensor, variable, or callable that returns one; so are
        `beta1`, `beta2` and `epsilon`.
      beta1: how much of `m` stays, from 0 to below 1.
      beta2: how much of `v` stays, from 0 to below 1.
      epsilon: what is added to the root of `v`, not negative. For float16
        variables give 1e-4 or more: the default is 0 there, and 0 / 0 is NaN.
      use_locking: whether TensorFlow's Adam kernel holds the variables' locks while it writes;
        sparse updates take none.
      name: the name of the optimizer and its slots.

    Raises:
      TypeError: an argument has the wrong type.
      ValueError: an argument is NaN or out of its range.
    """

    uses_global_step = True
    allows_constant_step = True
    whole_tensor = True

    def __init__(
        self,
        global_step: Union[GlobalStep, float, None] = 0,
        learning_rate: Hyperparameter = 0.001,
        beta1: Hyperparameter = 0.9,
        beta2: Hyperparameter = 0.999,
        epsilon: Hyperparameter = 1e-8,
        use_locking: bool = False,
        name: str = "Adam",
    ) -> None:
        super().__init__(learning_rate, beta1, beta2, epsilon, use_locking, name)
        self._global_step = argument_checks.integer_step("global_step", global_step, constant=True)

    def non_slots(self) -> Dict[str, Hyperparameter]:
        return {}

    def _get_beta_accumulators(self):
        """Returns the powers of beta at the step of the last `apply_gradients`, float32 scalars.

        Raises:
          ValueError: there was none.
        """
        if self._rule_step.global_step is None:
            raise ValueError(f"{type(self).__name__} has applied no gradients yet.")
        hyper = self.hyperparameters(tf.float32)
        return hyper.beta1_power, hyper.beta2_power

    def hyperparameters(self, dtype: DType, non_slots: bool = True) -> SimpleNamespace:
        hyper = super().hyperparameters(dtype, non_slots)
        # In float32 whatever the dtype, as in the original.
        betas = hyper if dtype == tf.float32 else super().hyperparameters(tf.float32)
        step = tf.cast(hyper.global_step + 1, tf.float32)
        hyper.beta1_power = tf.cast(tf.pow(betas.beta1, step), dtype)
        hyper.beta2_power = tf.cast(tf.pow(betas.beta2, step), dtype)
        return hyper


class LazyAdamGSOptimizer(AdamGSOptimizer):
    """`AdamGSOptimizer` whose sparse gradients move the touched rows only (tf.contrib.opt).

    Everything else is as there: arguments, slots, and the global step that somebody has to advance.
    """

    whole_tensor = False

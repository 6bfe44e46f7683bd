"""NovoGrad: momentum of gradients that are divided by the moving average of their norm.

The update of a variable w with the gradient g, for the t-th time (from 1)::

    v = beta_2 * v + (1 - beta_2) * sum(g**2);  sum(g**2) if t = 1
    u = g / (sqrt(v) + epsilon) + weight_decay * w
    m = beta_1 * m - learning_rate * u;  with grad_averaging, (1 - beta_1) * u after the first step
    w += m

With amsgrad, the largest v so far divides the gradient.

Source: `tfa.optimizers.NovoGrad` of TensorFlow Addons 0.23, with the same arguments and slots;
after Ginsburg et al., "Stochastic Gradient Methods with Layer-wise Adaptive Moments for Training of
Deep Networks" (2019).
"""

from __future__ import annotations

from typing import Dict

import tensorflow as tf

from legacy_opt.core.argument_checks import boolean, checked, decay_factor, not_negative
from legacy_opt.core.slots import ScalarSlot, Slot
from legacy_opt.core.types import Hyperparameter, Tensor, Variable
from legacy_opt.core.update import RuleResult, Values
from legacy_opt.optimizers.counted_steps import CountedStepsOptimizer


class NovoGradOptimizer(CountedStepsOptimizer):
    """Momentum of normalized gradients, with one second moment per variable (TensorFlow Addons).

    The norm of a sparse gradient is that of its rows, after the rows of equal ids are summed; only
    these rows of the variable and `m` change. Each partition of a variable has its own norm.

    Slots, in this order, named after the optimizer (`w/NovoGrad`, `w/NovoGrad_1`, …): `m`, with the
    variable's shape, and `v`, a scalar; with `amsgrad` also `vhat`, the maximum of `v`, a scalar.
    They have the variable's dtype, and are initialized to zero. (In TensorFlow Addons, `vhat` has
    the variable's shape, and all its elements are equal.) See `RectifiedAdamOptimizer` for the
    shared variable `step` and for 16-bit variables. In float16, where the largest number is 65504,
    `v` is infinite after gradients of norm 256 or more.

    Example::

        w = tf.Variable([1.0, 1.0])
        optimizer = legacy_opt.NovoGradOptimizer(0.1)
        optimizer.apply_gradients([(tf.constant([30.0, 40.0]), w)])  # a change of norm 0.1
        print(w.numpy().round(3))  # [0.94 0.92]

    Args:
      learning_rate, beta_1, beta_2, use_locking, name: see `RectifiedAdamOptimizer`.
      epsilon: added to the square root of the second moment; not negative. With 0, a gradient that
        is zero in the first step gives NaN. In float16, `v` is 0 for gradients of norm below 1e-4.
      weight_decay: the factor of the variable in the update u; not negative.
      grad_averaging: whether u is multiplied by ``1 - beta_1``, except in the first step.
      amsgrad: whether the largest `v` so far divides the gradient.

    Raises:
      TypeError: an argument has the wrong type.
      ValueError: an argument is NaN or out of range.
    """

    full_precision = ("epsilon",)

    def __init__(
        self,
        learning_rate: Hyperparameter = 0.001,
        beta_1: Hyperparameter = 0.9,
        beta_2: Hyperparameter = 0.999,
        epsilon: Hyperparameter = 1e-7,
        weight_decay: Hyperparameter = 0.0,
        grad_averaging: bool = False,
        amsgrad: bool = False,
        use_locking: bool = False,
        name: str = "NovoGrad",
    ) -> None:
        betas = checked(decay_factor, beta_1=beta_1, beta_2=beta_2)
        others = checked(not_negative, epsilon=epsilon, weight_decay=weight_decay)
        super().__init__(use_locking, name, learning_rate=learning_rate, **betas, **others)
        self._grad_averaging = boolean("grad_averaging", grad_averaging)
        self._amsgrad = boolean("amsgrad", amsgrad)

    def slot_layouts(self, variable: Variable) -> Dict[str, Slot]:
        layouts = {"m": Slot(), "v": ScalarSlot()}
        return dict(layouts, vhat=ScalarSlot()) if self._amsgrad else layouts

    def formula(self, grad: Tensor, value: Tensor, slots: Values, hyper: Values) -> RuleResult:
        is_first = hyper.t < 2
        square = tf.reduce_sum(tf.square(grad))
        average = slots.v * hyper.beta_2 + square * (1 - hyper.beta_2)
        v = tf.compat.v2.where(is_first, square, average)
        new = {"v": v}
        if self._amsgrad:
            new["vhat"] = tf.maximum(slots.vhat, v)
        root = tf.sqrt(new.get("vhat", v)) + hyper.epsilon
        update = grad / root + hyper.weight_decay * value
        if self._grad_averaging:
            update = tf.compat.v2.where(is_first, update, update * (1 - hyper.beta_1))
        m = slots.m * hyper.beta_1 - update * hyper.learning_rate
        return -m, dict(new, m=m)

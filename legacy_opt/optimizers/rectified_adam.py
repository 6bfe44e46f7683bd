"""RectifiedAdam: Adam without a second moment in the first steps, while its variance is too large.

The update of a variable w with the gradient g, for the t-th time (from 1)::

    m = beta_1 * m + (1 - beta_1) * g
    v = beta_2 * v + (1 - beta_2) * g**2
    mean = m / (1 - beta_1**t)
    n_max = 2 / (1 - beta_2) - 1
    n = n_max - 2 * t * beta_2**t / (1 - beta_2**t)
    r = sqrt((n - 4) * (n - 2) * n_max / ((n_max - 4) * (n_max - 2) * n))
    u = r * mean / (sqrt(v / (1 - beta_2**t)) + epsilon);  mean if n < sma_threshold
    w -= learning_rate * (u + weight_decay * w)

With amsgrad, the largest v so far divides the update. With total_steps, the learning rate rises
linearly from 0, in the first total_steps * warmup_proportion steps, and then falls to min_lr.

Source: `tfa.optimizers.RectifiedAdam` of TensorFlow Addons 0.23, with the same arguments and slots;
after Liu et al., "On the Variance of the Adaptive Learning Rate and Beyond" (2019).
"""

from __future__ import annotations

from typing import Any, Dict, Tuple

import tensorflow as tf

from legacy_opt.core.argument_checks import boolean, checked, decay_factor, not_negative
from legacy_opt.core.slots import Slot
from legacy_opt.core.types import Hyperparameter, Tensor, Variable
from legacy_opt.core.update import Fading, RuleResult, Values
from legacy_opt.optimizers.counted_steps import CountedStepsOptimizer


class RectifiedAdamOptimizer(CountedStepsOptimizer):
    """Adam with a rectified learning rate, RAdam (TensorFlow Addons).

    In the first steps (5 with the defaults) the update is plain momentum, which needs no warmup.
    Later steps are shortened by a factor that approaches 1. With a sparse gradient, only its rows
    of the variable change, but `m` and `v` decay in all rows, which takes time.

    Slots, in this order, named after the optimizer (`w/RectifiedAdam`, `w/RectifiedAdam_1`, …): `m`
    and `v`, and with `amsgrad` also `vhat`, the maximum of `v`, with the variable's shape and
    dtype, initialized to zero. All variables share `step`, a float64 scalar: the number of training
    steps, initialized to 0 (`iter` in checkpoints of TensorFlow Addons). For float16 and bfloat16
    variables, updates are computed in float32 and then rounded.

    Example::

        w = tf.Variable([1.0, 1.0])
        optimizer = legacy_opt.RectifiedAdamOptimizer(0.1)
        optimizer.apply_gradients([(tf.constant([0.5, 2.0]), w)])  # subtracts 0.1 * g
        print(w.numpy().round(3))  # [0.95 0.8 ]

    Args:
      learning_rate: a number, scalar tensor or variable, or a callable that returns one of these.
        The same types are accepted for all arguments but `amsgrad`, `use_locking` and `name`.
      beta_1, beta_2: decay factors of `m` and `v`, at least 0 and less than 1.
      epsilon: added to the square root of the second moment; not negative. For float16 variables
        pass 1e-4 or more: a small `v` is 0 in float16, and the update is then divided by epsilon.
      weight_decay: the factor of the variable that is added to the update; not negative.
      amsgrad: whether the largest `v` so far divides the update.
      sma_threshold: the update is plain momentum while n is less than this number, or at most 4.
      total_steps: the number of steps in the schedule of the learning rate; 0 means no schedule.
      warmup_proportion: the part of `total_steps` in which the learning rate rises; not negative.
      min_lr: the learning rate after `total_steps`; not negative.
      use_locking, name: see `LionOptimizer`.

    Raises:
      TypeError: an argument has the wrong type.
      ValueError: an argument is NaN or out of range.
    """

    _raised = ("beta_1", "beta_2")
    full_precision = ("epsilon",)

    def __init__(
        self,
        learning_rate: Hyperparameter = 0.001,
        beta_1: Hyperparameter = 0.9,
        beta_2: Hyperparameter = 0.999,
        epsilon: Hyperparameter = 1e-7,
        weight_decay: Hyperparameter = 0.0,
        amsgrad: bool = False,
        sma_threshold: Hyperparameter = 5.0,
        total_steps: Hyperparameter = 0,
        warmup_proportion: Hyperparameter = 0.1,
        min_lr: Hyperparameter = 0.0,
        use_locking: bool = False,
        name: str = "RectifiedAdam",
    ) -> None:
        betas = checked(decay_factor, beta_1=beta_1, beta_2=beta_2)
        scales = checked(not_negative, epsilon=epsilon, weight_decay=weight_decay)
        steps = checked(not_negative, total_steps=total_steps, warmup_proportion=warmup_proportion)
        if type(total_steps) is int:  # then a float, so that there is one kernel for all numbers
            steps["total_steps"] = float(steps["total_steps"])
        min_lr = not_negative("min_lr", min_lr)
        others = dict(scales, sma_threshold=sma_threshold, **steps, min_lr=min_lr)
        super().__init__(use_locking, name, learning_rate=learning_rate, **betas, **others)
        self._amsgrad = boolean("amsgrad", amsgrad)

    def slot_layouts(self, variable: Variable) -> Dict[str, Slot]:
        names = ("m", "v", "vhat") if self._amsgrad else ("m", "v")
        return {name: Slot() for name in names}

    def second_moment(
        self, v: Tensor, slots: Values, hyper: Values
    ) -> Tuple[Tensor, Dict[str, Any]]:
        """Returns the second moment that divides the update, and the new slots."""
        new = {"v": Fading(v, hyper.beta_2)}
        if not self._amsgrad:
            return v, new
        # Rows outside of a sparse gradient keep `vhat`, because their `v` only decays.
        vhat = tf.maximum(slots.vhat, v)
        return vhat, dict(new, vhat=vhat)

    def rate(self, hyper: Values) -> Tensor:
        """Returns the learning rate of this step."""
        rate, t, total = hyper.learning_rate, hyper.t, hyper.total_steps
        warmup = no_constant(total * hyper.warmup_proportion, hyper)
        decay = tf.maximum(total - warmup, 1)
        falling = rate + (hyper.min_lr - rate) / decay * tf.minimum(t - warmup, decay)
        scheduled = tf.compat.v2.where(t <= warmup, rate * (t / warmup), falling)
        return tf.compat.v2.where(total > 0, scheduled, rate)

    def formula(self, grad: Tensor, value: Tensor, slots: Values, hyper: Values) -> RuleResult:
        # The order of operations is that of TensorFlow Addons, whose last bits depend on it.
        correction_1 = 1 / (1 - hyper.beta_1_power)
        correction_2 = 1 / (1 - hyper.beta_2_power)
        n_max = no_constant(2 / (1 - hyper.beta_2) - 1, hyper)
        n = n_max - 2 * hyper.t * hyper.beta_2_power * correction_2
        r = tf.sqrt((n - 4) / (n_max - 4) * (n - 2) / (n_max - 2) * n_max / n)
        m = hyper.beta_1 * slots.m + (1 - hyper.beta_1) * grad
        v = hyper.beta_2 * slots.v + (1 - hyper.beta_2) * tf.square(grad)
        divisor, new = self.second_moment(v, slots, hyper)
        mean = m * correction_1
        adaptive = r * mean / (tf.sqrt(divisor * correction_2) + hyper.epsilon)
        is_adaptive = tf.logical_and(n >= hyper.sma_threshold, n > 4)  # r is a root of n - 4
        update = tf.compat.v2.where(is_adaptive, adaptive, mean)
        change = self.rate(hyper) * (update + hyper.weight_decay * value)
        return change, dict(new, m=Fading(m, hyper.beta_1))


def no_constant(value: Tensor, hyper: Values) -> Tensor:
    """Returns a value that is not negative, unchanged, as a tensor that depends on the step.

    In graphs, Grappler would replace a division by a constant, and reorder products of constants.
    """
    return tf.maximum(value, -hyper.t)

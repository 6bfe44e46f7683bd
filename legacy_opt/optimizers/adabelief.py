"""AdaBelief: Adam with the squared difference of gradient and momentum as second moment.

The update of a variable w with the gradient g, for the t-th time (from 1)::

    m = beta_1 * m + (1 - beta_1) * g
    v = beta_2 * v + (1 - beta_2) * (g - m)**2 + epsilon                       with the new m
    mean = m / (1 - beta_1**t)
    u = r * mean / (sqrt(v / (1 - beta_2**t)) + epsilon);  mean if n < sma_threshold
    w -= learning_rate * (u + weight_decay * w)

r, n, amsgrad and total_steps are those of RectifiedAdam. Without rectify, r is 1 in every step.

Source: `tfa.optimizers.AdaBelief` of TensorFlow Addons 0.23, with the same arguments and slots;
after Zhuang et al., "AdaBelief Optimizer: Adapting Stepsizes by the Belief in Observed Gradients"
(2020).
"""

from __future__ import annotations

import tensorflow as tf

from legacy_opt.core.argument_checks import boolean
from legacy_opt.core.types import Hyperparameter, Tensor
from legacy_opt.core.update import Fading, RuleResult, Values
from legacy_opt.optimizers.rectified_adam import RectifiedAdamOptimizer, no_constant


class AdaBeliefOptimizer(RectifiedAdamOptimizer):
    """Adam with longer steps where gradients agree with their moving average (TensorFlow Addons).

    Slots (`w/AdaBelief`, …), `step`, updates with sparse gradients or of 16-bit variables, errors
    and all other arguments are those of `RectifiedAdamOptimizer`.

    Example::

        w = tf.Variable([1.0, 2.0])
        optimizer = legacy_opt.AdaBeliefOptimizer(0.1, rectify=False)
        optimizer.apply_gradients([(tf.constant([2.0, 4.0]), w)])  # subtracts 0.1 / beta_1
        print(w.numpy().round(3))  # [0.889 1.889]

    Args:
      epsilon: added to `v` in each update, and to its square root; not negative. For float16
        variables pass 1e-6 or more, because the default rounds to 0 in the slot `v`.
      rectify: whether r is used, and the update is plain momentum in the first steps.
      sma_threshold: used with `rectify` only.
    """

    def __init__(
        self,
        learning_rate: Hyperparameter = 0.001,
        beta_1: Hyperparameter = 0.9,
        beta_2: Hyperparameter = 0.999,
        epsilon: Hyperparameter = 1e-14,
        weight_decay: Hyperparameter = 0.0,
        amsgrad: bool = False,
        rectify: bool = True,
        sma_threshold: Hyperparameter = 5.0,
        total_steps: Hyperparameter = 0,
        warmup_proportion: Hyperparameter = 0.1,
        min_lr: Hyperparameter = 0.0,
        use_locking: bool = False,
        name: str = "AdaBelief",
    ) -> None:
        super().__init__(
            *(learning_rate, beta_1, beta_2, epsilon, weight_decay, amsgrad, sma_threshold),
            *(total_steps, warmup_proportion, min_lr, use_locking, name),
        )
        self._rectify = boolean("rectify", rectify)

    def formula(self, grad: Tensor, value: Tensor, slots: Values, hyper: Values) -> RuleResult:
        # The order of operations is that of TensorFlow Addons, whose last bits depend on it.
        power, epsilon = hyper.beta_2_power, hyper.epsilon
        m = hyper.beta_1 * slots.m + (1 - hyper.beta_1) * grad
        old, square = hyper.beta_2 * slots.v, (1 - hyper.beta_2) * tf.square(grad - m)
        # Grappler would reorder the sums; the maximum changes no value.
        if hyper.is_sparse:
            v = old + tf.maximum(square + epsilon, 0)
        else:
            v = tf.maximum(old + square, 0) + epsilon
        divisor, new = self.second_moment(v, slots, hyper)
        mean = m / (1 - hyper.beta_1_power)
        root = tf.sqrt(divisor / (1 - power)) + epsilon
        if self._rectify:
            n_max = no_constant(2 / (1 - hyper.beta_2) - 1, hyper)
            n = n_max - 2 * hyper.t * power / (1 - power)
            r = tf.sqrt((n - 4) * (n - 2) * n_max / ((n_max - 4) * (n_max - 2) * n))
            is_adaptive = tf.logical_and(n >= hyper.sma_threshold, n > 4)  # r is a root of n - 4
            update = tf.compat.v2.where(is_adaptive, r * mean / root, mean)
        else:
            update = mean / root
        change = self.rate(hyper) * (update + hyper.weight_decay * value)
        return change, dict(new, m=Fading(m, hyper.beta_1))

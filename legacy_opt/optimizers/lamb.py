"""LAMB: BERT's Adam with bias correction, and updates scaled to the norm of each variable.

The update of a variable w with the gradient g, in training step t (from 1)::

    m = beta_1 * m + (1 - beta_1) * g
    v = beta_2 * v + (1 - beta_2) * g**2
    u = m / (1 - beta_1**t) / (sqrt(v / (1 - beta_2**t)) + epsilon) + weight_decay_rate * w
    w -= learning_rate * |w| / |u| * u

Source: You et al., "Large Batch Optimization for Deep Learning: Training BERT in 76 minutes"
(2019), and ALBERT's `LAMBOptimizer`, which has the same arguments and variables.
"""

from __future__ import annotations

from typing import Dict, Optional, Sequence, Tuple

import tensorflow as tf

from legacy_opt.core import argument_checks
from legacy_opt.core.hyperparameters import wide_dtype
from legacy_opt.core.named_values import changed
from legacy_opt.core.types import DType, Hyperparameter, Tensor
from legacy_opt.core.update import RuleResult, Values
from legacy_opt.optimizers.adam_weight_decay import AdamWeightDecayOptimizer, matches


class LAMBOptimizer(AdamWeightDecayOptimizer):
    """Adam with updates scaled to the norm of each variable (You et al. 2019).

    The class extends `AdamWeightDecayOptimizer`. The slots are the same (`w/adam_m`, `w/adam_v`),
    and sparse gradients update the whole variable, not only some rows. **This optimizer increments
    `global_step`, so delete two lines of your script**; see `AdamWeightDecayOptimizer`.

    The norms are taken over all elements of a variable, or, as in ALBERT, of one partition. The
    factor ``|w| / |u|`` is 1 if a norm is zero, and for variables that match
    `exclude_from_layer_adaptation`. Norms of 16-bit variables are computed in float32.

    `t` is ``global_step + 1``, with the `global_step` passed to `apply_gradients`, or the graph's
    global step if none is passed; the optimizer has no other counter. ALBERT's class has no bias
    correction: with `bias_correction=False`, the results are bit for bit the same. The paper and
    TensorFlow Addons correct the bias, so the first steps differ from ALBERT's.

    Example::

        with tf.Graph().as_default(), tf.compat.v1.Session() as session:
            w = tf.compat.v1.get_variable("w", initializer=[30.0, 40.0])  # of norm 50
            step = tf.compat.v1.train.get_or_create_global_step()
            optimizer = legacy_opt.LAMBOptimizer(0.1)
            train_op = optimizer.apply_gradients([(tf.constant([1.0, -1.0]), w)], global_step=step)
            session.run(tf.compat.v1.global_variables_initializer())
            session.run(train_op)  # the change has norm 5, a tenth of the norm of w
            print(session.run(w).round(2))  # [26.46 43.54]

    Args:
      learning_rate: see `AdamWeightDecayOptimizer`, also for `weight_decay_rate`, `beta_1`,
        `beta_2`, `epsilon` and `exclude_from_weight_decay`.
      exclude_from_layer_adaptation: a list of regular expressions. The updates of variables with
        matching names are not scaled. None or an empty list means `exclude_from_weight_decay`.
      name: the name of the optimizer.
      bias_correction: whether to divide the moments by ``1 - beta**t``.

    Raises:
      TypeError: an argument has the wrong type.
      ValueError: an argument is NaN, out of range or an invalid regular expression.
    """

    prefers_advanced_step = True
    _pattern_attributes = ("exclude_from_layer_adaptation", "exclude_from_weight_decay")

    def __init__(
        self,
        learning_rate: Hyperparameter,
        weight_decay_rate: Hyperparameter = 0.0,
        beta_1: Hyperparameter = 0.9,
        beta_2: Hyperparameter = 0.999,
        epsilon: Hyperparameter = 1e-6,
        exclude_from_weight_decay: Optional[Sequence[str]] = None,
        exclude_from_layer_adaptation: Optional[Sequence[str]] = None,
        name: str = "LAMBOptimizer",
        bias_correction: bool = True,
    ) -> None:
        numbers = learning_rate, weight_decay_rate, beta_1, beta_2, epsilon
        super().__init__(*numbers, exclude_from_weight_decay, name)
        self.exclude_from_layer_adaptation = (
            argument_checks.patterns("exclude_from_layer_adaptation", exclude_from_layer_adaptation)
            or self.exclude_from_weight_decay
        )
        self._bias_correction = argument_checks.boolean("bias_correction", bias_correction)

    @property
    def uses_global_step(self) -> bool:
        """Whether there is a bias correction, which depends on the step."""
        return self._bias_correction

    def hyperparameters(self, dtype: DType, non_slots: bool = True) -> Values:
        hyper = super().hyperparameters(dtype, non_slots)
        if self._bias_correction:
            wide = wide_dtype(dtype)
            wide_hyper = hyper
            if dtype != wide:
                wide_hyper = super().hyperparameters(wide, non_slots)
            t = tf.cast(hyper.global_step + 1, wide)
            hyper = changed(
                hyper,
                bias_1=tf.cast(_one_minus_power(wide_hyper.rest_beta_1, t), dtype),
                bias_2=tf.cast(_one_minus_power(wide_hyper.rest_beta_2, t), dtype),
            )
        return hyper

    def _flags_of(self, name: str) -> Dict[str, bool]:
        return dict(super()._flags_of(name), adapts=self._do_layer_adaptation(name))

    def rule(self, grad: Tensor, value: Tensor, slots: Values, hyper: Values) -> RuleResult:
        direction, moments = self.direction(grad, value, slots, hyper)
        rate = hyper.learning_rate
        if hyper.adapts:
            rate = _ratio(value, direction) * rate
        return rate * direction, moments

    def estimates(self, m: Tensor, v: Tensor, hyper: Values) -> Tuple[Tensor, Tensor]:
        if not self._bias_correction:
            return m, v
        return m / hyper.bias_1, v / hyper.bias_2

    def _do_layer_adaptation(self, param_name: str) -> bool:
        return not matches(self.exclude_from_layer_adaptation, param_name)


def _one_minus_power(one_minus_beta: Tensor, t: Tensor) -> Tensor:
    """Computes ``1 - beta**t`` from ``1 - beta``, without cancellation of digits."""
    return -tf.math.expm1(t * tf.math.log1p(-one_minus_beta))


def _ratio(value: Tensor, direction: Tensor) -> Tensor:
    """Returns the norm of `value` divided by the norm of `direction`, or 1 if a norm is zero."""
    value_norm = _norm(value)
    direction_norm = _norm(direction)
    are_positive = (value_norm > 0) & (direction_norm > 0)
    ratio = value_norm / direction_norm
    ratio = tf.compat.v2.where(are_positive, ratio, tf.ones_like(value_norm))
    return tf.cast(ratio, value.dtype)


def _norm(tensor: Tensor) -> Tensor:
    return tf.sqrt(tf.reduce_sum(tf.square(tf.cast(tensor, wide_dtype(tensor.dtype)))))

"""Yogi: Adam whose second moment changes by a bounded amount, so that it also falls slowly.

The update of a variable w with the gradient g, for the t-th time (from 1)::

    m = beta1 * m + (1 - beta1) * g
    v = v + (1 - beta2) * sign(g**2 - v) * g**2
    rate = learning_rate * sqrt(1 - beta2**t) / (1 - beta1**t) / (sqrt(v) + epsilon)
    x = w - rate * m
    w = sign(x) * max(abs(x) - l1 * rate, 0) / (1 + l2 * rate)

With activation="tanh", ``tanh(10 * (g**2 - v))`` replaces the sign.

Source: `tfa.optimizers.Yogi` of TensorFlow Addons 0.23, with the same arguments and slots; after
Zaheer et al., "Adaptive Methods for Nonconvex Optimization" (2018).
"""

from __future__ import annotations

import numbers
from typing import Any, Dict

import tensorflow as tf

from legacy_opt.core import argument_checks
from legacy_opt.core.argument_checks import checked, decay_factor, not_negative
from legacy_opt.core.slots import Slot
from legacy_opt.core.types import Hyperparameter, Tensor, Variable
from legacy_opt.core.update import Fading, NewValue, RuleResult, Values
from legacy_opt.optimizers.counted_steps import CountedStepsOptimizer


class YogiOptimizer(CountedStepsOptimizer):
    """Adam with a second moment that grows and falls by bounded amounts (TensorFlow Addons).

    With a sparse gradient, only its rows of the variable and `v` change; `m` decays in all rows.

    Slots, in this order, named after the optimizer (`w/Yogi`, `w/Yogi_1`): `v`, initialized to
    `initial_accumulator_value`, and, unless `beta1` is the number 0, `m`, initialized to zero. They
    have the variable's shape and dtype. See `RectifiedAdamOptimizer` for the shared variable `step`
    and for 16-bit variables.

    Example::

        w = tf.Variable([1.0, 2.0])
        optimizer = legacy_opt.YogiOptimizer(0.1)
        optimizer.apply_gradients([(tf.constant([2.0, 4.0]), w)])
        print(w.numpy().round(3))  # [0.902 1.901]

    Args:
      learning_rate: a number, scalar tensor or variable, or a callable that returns one of these.
        The same types are accepted for all arguments but `activation`, `use_locking` and `name`.
      beta1: decay factor of `m`, at least 0 and less than 1. For the number 0 there is no slot `m`.
      beta2: decay factor of `v`, at least 0 and less than 1.
      epsilon: added to the square root of `v`; not negative.
      l1_regularization_strength, l2_regularization_strength: l1 and l2 above; not negative.
      initial_accumulator_value: the initial value of `v`, above zero. For float16 variables pass
        1e-4 or more, because the default has only a few digits in float16.
      activation: "sign", or "tanh" for a smooth sign.
      use_locking, name: see `LionOptimizer`.

    Raises:
      TypeError: an argument has the wrong type.
      ValueError: an argument is NaN or out of range, or `activation` is unknown.
    """

    _raised = ("beta1", "beta2")

    def __init__(
        self,
        learning_rate: Hyperparameter = 0.01,
        beta1: Hyperparameter = 0.9,
        beta2: Hyperparameter = 0.999,
        epsilon: Hyperparameter = 1e-3,
        l1_regularization_strength: Hyperparameter = 0.0,
        l2_regularization_strength: Hyperparameter = 0.0,
        initial_accumulator_value: Hyperparameter = 1e-6,
        activation: str = "sign",
        use_locking: bool = False,
        name: str = "Yogi",
    ) -> None:
        beta2, momentum = decay_factor("beta2", beta2), checked(decay_factor, beta1=beta1)
        others = checked(
            not_negative,
            epsilon=epsilon,
            l1_regularization_strength=l1_regularization_strength,
            l2_regularization_strength=l2_regularization_strength,
        )
        has_m = not _is_zero(beta1)
        # The number 0 is no hyperparameter, so that nothing can change it: there is no `m`.
        others.update(momentum if has_m else {})
        super().__init__(use_locking, name, learning_rate=learning_rate, beta2=beta2, **others)
        self._has_m, self._beta1 = has_m, beta1
        self._initial_accumulator_value = argument_checks.positive_hyperparameter(
            "initial_accumulator_value", initial_accumulator_value
        )
        if activation not in ("sign", "tanh"):
            raise ValueError(f'activation must be "sign" or "tanh", got {activation!r}.')
        self._activation = activation

    def slot_layouts(self, variable: Variable) -> Dict[str, Slot]:
        layouts = {"v": Slot(self._initial_accumulator_value)}
        return dict(layouts, m=Slot()) if self._has_m else layouts

    def formula(self, grad: Tensor, value: Tensor, slots: Values, hyper: Values) -> RuleResult:
        rate = hyper.learning_rate * tf.sqrt(1 - hyper.beta2_power)
        if self._has_m:
            rate = rate / (1 - hyper.beta1_power)
        square = tf.square(grad)
        difference, weight = square - slots.v, 1 - hyper.beta2
        if self._activation == "sign":
            v = slots.v + weight * tf.sign(difference) * square
        else:  # the maximum changes no value, but prevents Grappler from reordering the products
            v = slots.v + tf.maximum(weight * tf.tanh(10 * difference), -1) * square
        rate = rate / (tf.sqrt(v) + hyper.epsilon)
        m, new = grad, {"v": v}
        if self._has_m:
            m = slots.m * hyper.beta1 + grad * (1 - hyper.beta1)
            new["m"] = Fading(m, hyper.beta1)
        change = rate * m
        strengths = self._l1_regularization_strength, self._l2_regularization_strength
        if all(map(_is_zero, strengths)):
            return change, new
        is_regularized = hyper.l1_regularization_strength + hyper.l2_regularization_strength > 0
        moved = value - change
        l1 = hyper.l1_regularization_strength * rate
        shrunk = (moved - l1 * tf.sign(moved)) / (1 + hyper.l2_regularization_strength * rate)
        shrunk = tf.compat.v2.where(tf.abs(moved) <= l1, tf.zeros_like(moved), shrunk)
        return NewValue(tf.compat.v2.where(is_regularized, shrunk, moved)), new


def _is_zero(value: Any) -> bool:
    return isinstance(value, numbers.Real) and value == 0

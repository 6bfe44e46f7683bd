"""COCOB: training without a learning rate, by betting on the sign of each gradient.

The update of a variable w with the gradient g, for each element::

    lr = max(lr, abs(g))
    grad_norm_sum += abs(g);  gradients_sum += g;  reward = max(reward - g * tilde_w, 0)
    bet = -gradients_sum / (lr * max(grad_norm_sum + lr, alpha * lr)) * (reward + lr)
    w = w - tilde_w + bet;  tilde_w = bet

Source: `COCOB` of TensorFlow Addons, with the same constructor, slots and arithmetic; after Orabona
and Tommasi, "Training Deep Networks without Learning Rates Through Coin Betting" (2017).
"""

from __future__ import annotations

import numbers
from typing import Any

import tensorflow as tf

from legacy_opt.core.rule_optimizer import RuleOptimizer
from legacy_opt.core.slots import Slot
from legacy_opt.core.types import Hyperparameter, Tensor
from legacy_opt.core.update import NewValue, RuleResult, Values


class COCOBOptimizer(RuleOptimizer):
    """Continuous coin betting: no learning rate (`tfa.optimizers.COCOB`).

    Each element bets a fraction of what it has won on the sign of the next gradient. A sparse
    gradient, which TensorFlow Addons refuses, updates only its own rows of variable and slots.
    (float16 variables are refused: 1e-8 is 0 in float16, and Addons computes NaN.)

    Slots, in this order, named after the optimizer (`w/COCOB`, `w/COCOB_1`, …), with the variable's
    shape and dtype: `lr`, the largest absolute gradient, from 1e-8 on, and, from zero on, the sums
    `grad_norm_sum` and `gradients_sum`, the bet `tilde_w`, and `reward`, what has been won.

    Example::

        w = tf.Variable([1.0])  # the first bet is 1 / alpha, against the sign of the gradient
        legacy_opt.COCOBOptimizer().apply_gradients([(tf.constant([5.0]), w)])
        print(w.numpy())  # [0.99]

    Args:
      alpha: limits the first bets, to about ``1 / alpha`` of what has been won; at least 1. A
        number, scalar tensor or variable, or a callable that returns one of these.
      use_locking, name: see `LionOptimizer`.

    Raises:
      TypeError: an argument has the wrong type, or a variable to train is float16.
      ValueError: `alpha` is NaN or less than 1, or `name` is empty.
    """

    slots = dict(
        lr=Slot(1e-8), grad_norm_sum=Slot(), gradients_sum=Slot(), tilde_w=Slot(), reward=Slot()
    )
    full_precision = ("alpha",)

    def __init__(
        self, alpha: Hyperparameter = 100.0, use_locking: bool = False, name: str = "COCOB"
    ) -> None:
        super().__init__(use_locking, name, alpha=alpha)
        if isinstance(self._alpha, numbers.Real) and self._alpha < 1:
            raise ValueError(f"alpha must be at least 1, got {alpha!r}.")

    def _valid_dtypes(self) -> Any:
        return set(super()._valid_dtypes()) - {tf.float16}

    def rule(self, grad: Tensor, value: Tensor, slots: Values, hyper: Values) -> RuleResult:
        size = tf.abs(grad)
        lr = tf.maximum(slots.lr, size)
        grad_norm_sum = slots.grad_norm_sum + size
        gradients_sum = slots.gradients_sum + grad
        reward = tf.maximum(slots.reward - grad * slots.tilde_w, 0)
        divisor = lr * tf.maximum(grad_norm_sum + lr, hyper.alpha * lr)
        bet = -gradients_sum / divisor * (reward + lr)
        sums = {"grad_norm_sum": grad_norm_sum, "gradients_sum": gradients_sum}
        new_value = NewValue(value - slots.tilde_w + bet)
        return new_value, dict(sums, lr=lr, tilde_w=bet, reward=reward)

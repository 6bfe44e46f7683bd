"""Lion: the sign of a mean of gradient and momentum.

The update of a variable w with the gradient g::

    w -= learning_rate * (sign(beta_1 * momentum + (1 - beta_1) * g) + weight_decay * w)
    momentum = beta_2 * momentum + (1 - beta_2) * g

Source: Chen et al., "Symbolic Discovery of Optimization Algorithms" (2023), with Keras' names.
"""

from __future__ import annotations

import tensorflow as tf

from legacy_opt.core.argument_checks import checked, decay_factor, not_negative
from legacy_opt.core.rule_optimizer import RuleOptimizer
from legacy_opt.core.slots import Slot
from legacy_opt.core.types import Hyperparameter, Tensor
from legacy_opt.core.update import RuleResult, Values


class LionOptimizer(RuleOptimizer):
    """Updates of equal size for all elements, with half of the state of Adam (Chen et al. 2023).

    A good learning rate is 3 to 10 times smaller than Adam's. A sparse gradient updates only its
    own rows of the variable and of the slot `momentum` (`w/Lion`), which has the variable's shape
    and dtype, and is initialized to zero. (Keras' Lion also moves rows outside of the gradient.)

    Example::

        w = tf.Variable([1.0, 1.0])
        legacy_opt.LionOptimizer(0.1).apply_gradients([(tf.constant([50.0, -2.0]), w)])
        print(w.numpy())  # [0.9 1.1]

    Args:
      learning_rate: a number, scalar tensor or variable, or a callable that returns one of these.
        The same types are accepted for `beta_1`, `beta_2` and `weight_decay`.
      beta_1: weight of the momentum in the update, at least 0 and less than 1.
      beta_2: decay factor of the momentum, at least 0 and less than 1.
      weight_decay: each update also subtracts ``learning_rate * weight_decay * w``; not negative.
      use_locking: whether native kernels lock the variables while they write. Updates without
        native kernels do not lock; if `use_locking` is True, a `UseLockingWarning` is issued.
      name: the name of the optimizer and its slot.

    Raises:
      TypeError: an argument has the wrong type.
      ValueError: an argument is NaN or out of range.
    """

    slots = {"momentum": Slot()}

    def __init__(
        self,
        learning_rate: Hyperparameter = 0.001,
        beta_1: Hyperparameter = 0.9,
        beta_2: Hyperparameter = 0.99,
        weight_decay: Hyperparameter = 0.0,
        use_locking: bool = False,
        name: str = "Lion",
    ) -> None:
        betas = checked(decay_factor, beta_1=beta_1, beta_2=beta_2)
        decay = checked(not_negative, weight_decay=weight_decay)
        super().__init__(use_locking, name, learning_rate=learning_rate, **betas, **decay)

    def rule(self, grad: Tensor, value: Tensor, slots: Values, hyper: Values) -> RuleResult:
        mean = hyper.beta_1 * slots.momentum + (1 - hyper.beta_1) * grad
        momentum = hyper.beta_2 * slots.momentum + (1 - hyper.beta_2) * grad
        # Not `tf.sign`, which ignores NaN on TensorFlow 1.15.
        one = tf.ones([], grad.dtype)
        sign = tf.compat.v2.where(mean > 0, one, tf.compat.v2.where(mean < 0, -one, mean))
        change = hyper.learning_rate * (sign + hyper.weight_decay * value)
        return change, {"momentum": momentum}

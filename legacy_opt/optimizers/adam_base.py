"""What the optimizers of the Adam family share: arguments, slots, powers of beta, rule and kernel.

    m = beta1 * m + (1 - beta1) * g
    v = beta2 * v + (1 - beta2) * g**2
    w -= learning_rate * sqrt(1 - beta2**t) / (1 - beta1**t) * m / (sqrt(v) + epsilon)

Source: Kingma and Ba, "Adam: A Method for Stochastic Optimization" (2014), in the form that it has
before section 2.1, as in `tf.compat.v1.train.AdamOptimizer`.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Dict, Optional

import tensorflow as tf

from legacy_opt.core import argument_checks, fused_kernels, gradient_checks
from legacy_opt.core.hyperparameters import alias_of, tensor_of
from legacy_opt.core.rule_optimizer import RuleOptimizer
from legacy_opt.core.slots import Slot
from legacy_opt.core.types import Hyperparameter, Operation, Tensor
from legacy_opt.core.update import RuleResult, Update

_HOOKS = {
    "_apply_sparse_shared": "override sparse_rule",
    "_get_beta_accumulators": "override non_slots and update_non_slots, or hyperparameters",
}


class AdamBase(RuleOptimizer):
    """Adam, whose sparse gradients move the touched rows only.

    The arguments are those of `tf.compat.v1.train.AdamOptimizer`, and so are the variables:
    slots `m` and `v` (`w/Adam`, `w/Adam_1`), and `beta1_power` and `beta2_power`, which all
    variables share.

    Products and sums stand in the order that `tf.contrib.opt` has them in: the last bit depends
    on it.

    Subclasses find the learning rate under stock Adam's name too, `_lr`, the tensors that
    `_prepare` makes: `_lr_t`, `_beta1_t`, `_beta2_t`, `_epsilon_t`, and the powers of beta:
    `_get_beta_accumulators()`. Overriding a method that only the originals call is refused.
    """

    slots = {"m": Slot(), "v": Slot()}
    _lr = alias_of("learning_rate")
    _lr_t, _beta1_t, _beta2_t, _epsilon_t = map(
        tensor_of, ("learning_rate", "beta1", "beta2", "epsilon")
    )

    def __init_subclass__(cls, **kwargs):
        super().__init_subclass__(**kwargs)
        gradient_checks.refuse_hooks(cls, _HOOKS)

    def __init__(
        self,
        learning_rate: Hyperparameter = 0.001,
        beta1: Hyperparameter = 0.9,
        beta2: Hyperparameter = 0.999,
        epsilon: Hyperparameter = 1e-8,
        use_locking: bool = False,
        name: str = "Adam",
    ) -> None:
        super().__init__(
            use_locking,
            name,
            learning_rate=learning_rate,
            beta1=argument_checks.decay_factor("beta1", beta1),
            beta2=argument_checks.decay_factor("beta2", beta2),
            epsilon=argument_checks.not_negative("epsilon", epsilon),
        )

    def non_slots(self) -> Dict[str, Hyperparameter]:
        return {"beta1_power": self._beta1, "beta2_power": self._beta2}

    def _get_beta_accumulators(self):
        """Returns the variables of the powers of beta, each None before the first update."""
        return tuple(map(self._non_slot, self.non_slots()))

    def rule(
        self, grad: Tensor, value: Tensor, slots: SimpleNamespace, hyper: SimpleNamespace
    ) -> RuleResult:
        m, v = moments(grad, slots, hyper, as_stock=self.whole_tensor)
        return corrected_rate(hyper) * m / (tf.sqrt(v) + hyper.epsilon), {"m": m, "v": v}

    def fused(self, update: Update) -> Optional[Operation]:
        return self.apply_kernel(update, update.hyper)

    def apply_kernel(
        self, update: Update, hyper: SimpleNamespace, use_nesterov: bool = False
    ) -> Optional[Operation]:
        """Runs TensorFlow's Adam on a gradient that is dense from the start; else `NotImplemented`.

        Where the gradient came as rows the originals compute without the kernel, which rounds
        differently.

        Args:
          update: the `Update`.
          hyper: its hyperparameters, with `beta1_power` and `beta2_power`.
          use_nesterov: whether the kernel looks a step ahead, which makes it Nadam.
        """
        if update.sparse or update.densified:
            return NotImplemented
        return fused_kernels.apply(
            "Adam",
            update,
            use_locking=self._use_locking,
            m=update.slots.m,
            v=update.slots.v,
            beta1_power=hyper.beta1_power,
            beta2_power=hyper.beta2_power,
            lr=hyper.learning_rate,
            beta1=hyper.beta1,
            beta2=hyper.beta2,
            epsilon=hyper.epsilon,
            use_nesterov=use_nesterov,
        )

    def update_non_slots(
        self, values: SimpleNamespace, hyper: SimpleNamespace
    ) -> Dict[str, Tensor]:
        def beta(power, name):  # a beta that is a float64 tensor has a float64 power
            return getattr(self.hyperparameters(power.dtype, non_slots=False), name)

        return {
            name: power * beta(power, name[: len("beta1")]) for name, power in vars(values).items()
        }


def moments(grad, slots, hyper, as_stock=False):
    """Returns the new first and second moment.

    Args:
      grad: the gradient.
      slots: what a rule sees of `m` and `v`.
      hyper: the hyperparameters.
      as_stock: whether the original has stock Adam's ``(g * g) * (1 - beta2)`` for sparse
        gradients. TensorFlow 1.15 regroups that in a Session if `beta2` is a number, for float32
        and float64; here it stands so for all ways to run.
    """
    rest = 1 - hyper.beta2
    regrouped = as_stock and grad.dtype in (tf.float32, tf.float64)
    square = grad * (grad * rest) if regrouped else tf.square(grad) * rest
    return slots.m * hyper.beta1 + grad * (1 - hyper.beta1), slots.v * hyper.beta2 + square


def corrected_rate(hyper):
    """Returns the learning rate that makes up for moments that started at zero."""
    return hyper.learning_rate * tf.sqrt(1 - hyper.beta2_power) / (1 - hyper.beta1_power)

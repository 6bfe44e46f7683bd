"""Base class of the Adam family: arguments, slots, powers of beta, rule and kernel.

The update of a variable w with the gradient g, for the t-th time (from 1)::

    m = beta1 * m + (1 - beta1) * g
    v = beta2 * v + (1 - beta2) * g**2
    w -= learning_rate * sqrt(1 - beta2**t) / (1 - beta1**t) * m / (sqrt(v) + epsilon)

Source: Kingma and Ba, "Adam: A Method for Stochastic Optimization" (2014). The paper gives the last
formula just before section 2.1. `tf.compat.v1.train.AdamOptimizer` uses the same formulas.
"""

from __future__ import annotations

from typing import Any, Callable, Dict, Optional, Tuple

import tensorflow as tf

from legacy_opt.core import fused_kernels, gradient_checks
from legacy_opt.core.argument_checks import checked, decay_factor, not_negative
from legacy_opt.core.hyperparameters import alias_of, tensor_of
from legacy_opt.core.rule_optimizer import RuleOptimizer
from legacy_opt.core.slots import Slot
from legacy_opt.core.types import Hyperparameter, Operation, Tensor, Variable
from legacy_opt.core.update import RuleResult, Update, Values

# {a method of TensorFlow's AdamOptimizer: what a subclass should override instead}.
_REPLACEMENTS = {
    "_apply_sparse_shared": "override sparse_rule",
    "_get_beta_accumulators": "override non_slots and update_non_slots, or hyperparameters",
}

# The last bits of the moments depend on the order of products and sums. There are three orders:
# As in the source of TensorFlow's sparse updates: v has the product (g * g) * (1 - beta2).
AS_WRITTEN = "as written"
# A Session of TensorFlow 1.15 rewrites the product in v to g * (g * (1 - beta2)), if beta2 is a
# number and the dtype is float32 or float64.
AS_IN_A_SESSION = "as in a Session"
# As in TensorFlow's kernels: m + (g - m) * (1 - beta1).
AS_FUSED = "as fused"


class AdamBase(RuleOptimizer):
    """Adam in which a sparse gradient updates only the rows in the gradient.

    Arguments and variables are those of `tf.compat.v1.train.AdamOptimizer`: the slots `m` and `v`
    (`w/Adam`, `w/Adam_1` for a variable `w`), and the shared `beta1_power` and `beta2_power`.
    Without a kernel, moments are computed in the order of `tf.contrib.opt`, see `AS_WRITTEN`.

    Subclasses may use these private members of TensorFlow's AdamOptimizer: the attribute `_lr`, the
    tensors that `_prepare` creates (`_lr_t`, `_beta1_t`, `_beta2_t`, `_epsilon_t`), and the method
    `_get_beta_accumulators()`. Defining a subclass that overrides `_get_beta_accumulators` or
    `_apply_sparse_shared` raises a TypeError, because this package does not call these methods.
    """

    slots = {"m": Slot(), "v": Slot()}
    _lr = alias_of("learning_rate")
    _lr_t = tensor_of("learning_rate")
    _beta1_t = tensor_of("beta1")
    _beta2_t = tensor_of("beta2")
    _epsilon_t = tensor_of("epsilon")

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        gradient_checks.refuse_overrides(cls, _REPLACEMENTS)

    def __init__(
        self,
        learning_rate: Hyperparameter = 0.001,
        beta1: Hyperparameter = 0.9,
        beta2: Hyperparameter = 0.999,
        epsilon: Hyperparameter = 1e-8,
        use_locking: bool = False,
        name: str = "Adam",
    ) -> None:
        betas = checked(decay_factor, beta1=beta1, beta2=beta2)
        epsilon = not_negative("epsilon", epsilon)
        super().__init__(use_locking, name, learning_rate=learning_rate, **betas, epsilon=epsilon)

    def non_slots(self) -> Dict[str, Hyperparameter]:
        return {"beta1_power": self._beta1, "beta2_power": self._beta2}

    def _get_beta_accumulators(self) -> Tuple[Any, ...]:
        """Returns the variables with the powers of beta; (None, None) before the first update."""
        return tuple(self._non_slot(name) for name in self.non_slots())

    def rule(self, grad: Tensor, value: Tensor, slots: Values, hyper: Values) -> RuleResult:
        return self._rule(grad, slots, hyper, self._rounding_of_operations())

    def _rounding_of_operations(self) -> str:
        """Returns how `moments` rounds without a kernel."""
        # TensorFlow's AdamOptimizer updates all rows, and a Session rewrites its sparse updates.
        return AS_IN_A_SESSION if self.whole_tensor else AS_WRITTEN

    def _rule(self, grad: Tensor, slots: Values, hyper: Values, rounding: str) -> RuleResult:
        m, v = moments(grad, slots, hyper, rounding)
        change = corrected_rate(hyper) * m / (tf.sqrt(v) + hyper.epsilon)
        return change, {"m": m, "v": v}

    def pure_rule(self, variable: Variable, sparse: bool) -> Callable[..., RuleResult]:
        """Returns a function that, for dense gradients, rounds in the same way as `fused`."""
        rule = super().pure_rule(variable, sparse)
        if sparse or type(self).rule is not AdamBase.rule:  # a subclass may override `rule`
            return rule

        def rule_as_fused(grad: Tensor, value: Tensor, slots: Values, hyper: Values) -> RuleResult:
            return self._rule(grad, slots, hyper, AS_FUSED)

        return rule_as_fused

    def fused(self, update: Update) -> Optional[Operation]:
        return self.apply_kernel(update, update.hyper)

    def apply_kernel(
        self, update: Update, hyper: Values, use_nesterov: bool = False
    ) -> Optional[Operation]:
        """Applies TensorFlow's Adam kernel to a dense gradient.

        For sparse gradients, even if they were made dense, the result is `NotImplemented`: the
        kernel rounds differently from TensorFlow's sparse updates, which do not use the kernel.

        `hyper` includes `beta1_power` and `beta2_power`. `use_nesterov` is True for Nadam.
        """
        if update.sparse or update.densified:
            return NotImplemented
        return self._call_kernel(
            "Adam", update, hyper, beta2_power=hyper.beta2_power, use_nesterov=use_nesterov
        )

    def _call_kernel(
        self, kernel: str, update: Update, hyper: Values, **arguments: Any
    ) -> Optional[Operation]:
        """Applies a kernel with the arguments that the kernels of Adam and AdaMax share."""
        return fused_kernels.apply(
            kernel,
            update,
            use_locking=self._use_locking,
            m=update.slots.m,
            v=update.slots.v,
            beta1_power=hyper.beta1_power,
            lr=hyper.learning_rate,
            beta1=hyper.beta1,
            beta2=hyper.beta2,
            epsilon=hyper.epsilon,
            **arguments,
        )

    def update_non_slots(self, values: Values, hyper: Values) -> Dict[str, Tensor]:
        new_values = {}
        for name, power in vars(values).items():
            # `hyper` is float32, but the power is float64 if beta is a float64 tensor.
            betas = self.hyperparameters(power.dtype, non_slots=False)
            new_values[name] = power * getattr(betas, name.replace("_power", ""))
        return new_values


def moments(grad: Tensor, slots: Values, hyper: Values, rounding: str) -> Tuple[Tensor, Tensor]:
    """Returns the new moments; `rounding` is `AS_WRITTEN`, `AS_IN_A_SESSION` or `AS_FUSED`."""
    m = moving_average(slots.m, grad, hyper.beta1, rounding)
    if rounding == AS_FUSED:
        return m, moving_average(slots.v, tf.square(grad), hyper.beta2, rounding)
    weight = 1 - hyper.beta2
    is_regrouped = rounding == AS_IN_A_SESSION and grad.dtype in (tf.float32, tf.float64)
    weighted_square = grad * (grad * weight) if is_regrouped else tf.square(grad) * weight
    return m, slots.v * hyper.beta2 + weighted_square


def moving_average(average: Tensor, value: Tensor, beta: Tensor, rounding: str) -> Tensor:
    """Returns the next moving average, rounded as `rounding` says; see `moments`."""
    if rounding == AS_FUSED:
        return average + (value - average) * (1 - beta)
    return average * beta + value * (1 - beta)


def corrected_rate(hyper: Values) -> Tensor:
    """Returns the learning rate with Adam's bias correction of both moments."""
    return hyper.learning_rate * tf.sqrt(1 - hyper.beta2_power) / (1 - hyper.beta1_power)

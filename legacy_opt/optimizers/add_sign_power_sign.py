"""AddSign and PowerSign: steps that are longer where gradient and momentum agree in sign.

    m = beta * m + (1 - beta) * g
    AddSign:    w -= learning_rate * (alpha + d(t) * sign(g) * sign(m)) * g
    PowerSign:  w -= learning_rate * base ** (d(t) * sign(g) * sign(m)) * g

From Bello et al., "Neural Optimizer Search with Reinforcement Learning"
(https://arxiv.org/abs/1709.07417). These are `AddSignOptimizer` and `PowerSignOptimizer` of
TensorFlow 1's `tf.contrib.opt`: their constructors, slot, variable names and arithmetic are kept.
"""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any, Optional

import numpy as np
import tensorflow as tf

from legacy_opt.core import argument_checks, fused_kernels
from legacy_opt.core.hyperparameters import alias_of, tensor_of, wide_dtype
from legacy_opt.core.rule_optimizer import RuleOptimizer
from legacy_opt.core.serializable_functions import SavesStepFunctions
from legacy_opt.core.slots import Slot
from legacy_opt.core.types import FunctionOfStep, Hyperparameter, Operation, Tensor
from legacy_opt.core.update import Fading, RuleResult, Update
from legacy_opt.optimizers import sign_decay


class _SignOptimizer(SavesStepFunctions, RuleOptimizer):
    """What both have in common."""

    slots = {"m": Slot()}
    step_functions = {"sign_decay_fn": sign_decay.DECAYS}
    goes_by_advanced_step = True
    # As the originals keep them.
    _lr = alias_of("learning_rate")
    _lr_t, _beta_t, _sign_decay_t = map(tensor_of, ("learning_rate", "beta", "sign_decay"))

    def __init__(
        self,
        sign_decay_fn: Optional[FunctionOfStep],
        use_locking: bool,
        name: str,
        beta: Hyperparameter,
        **hyperparameters: Any,
    ) -> None:
        self._sign_decay_fn = sign_decay.checked(sign_decay_fn)
        beta = argument_checks.decay_factor("beta", beta)
        super().__init__(use_locking, name, beta=beta, **hyperparameters)

    @property
    def uses_global_step(self) -> bool:
        """Whether there is a decay, which goes by the step."""
        return self._sign_decay_fn is not None

    def _prepare(self):
        super()._prepare()
        decay = 1.0
        if self._sign_decay_fn is not None:
            decay = argument_checks.hyperparameter(
                "sign_decay_fn(global_step)", self._sign_decay_fn(self._rule_step.global_step)
            )
        self._sign_decay_t = tf.convert_to_tensor(decay, name="sign_decay")

    def rule(
        self, grad: Tensor, value: Tensor, slots: SimpleNamespace, hyper: SimpleNamespace
    ) -> RuleResult:
        return self._rule(grad, slots, hyper, self._multiplier)

    def _rule(self, grad, slots, hyper, multiplier):
        m = slots.m * hyper.beta + grad * (1 - hyper.beta)
        agreement = _sign(grad) * _sign(m)
        # Chosen among three scalars, the rate is multiplied by nothing that could be regrouped.
        agreed, none, opposed = (
            hyper.learning_rate * multiplier(sign * hyper.sign_decay, hyper) for sign in (1, 0, -1)
        )
        rate = tf.compat.v2.where(agreement < 0, opposed, none)
        rate = tf.compat.v2.where(agreement > 0, agreed, rate)
        return rate * grad, {"m": Fading(m, hyper.beta)}

    def _multiplier(self, sign, hyper):
        """Returns what the gradient is multiplied by, besides the learning rate.

        Args:
          sign: the decayed sign: the decay, 0, or the negative decay.
          hyper: see `rule`.
        """
        raise NotImplementedError


class AddSignOptimizer(_SignOptimizer):
    """AddSign (`tf.contrib.opt.AddSignOptimizer`).

    It has one slot, `m` (`w/AddSignOptimizer`), the gradient's moving average: like the variable,
    starts at zero. With a sparse gradient `m` decays in all rows and the touched rows of the
    variable move, as in the original; so a sparse step costs time for the whole slot. The original
    cannot train resource variables with sparse gradients; this one can.

    Args:
      learning_rate: a number, scalar tensor, variable, or callable that returns one.
      alpha: what is added to the sign term.
      beta: how much of `m` is kept in each step, from 0 to below 1.
      sign_decay_fn: called once in each step with the step given to `apply_gradients` (before it is
        advanced; if none is given the graph's own, with a `GlobalStepWarning`), returns the factor
        of the sign term: `get_linear_decay_fn`, `get_cosine_decay_fn`, `get_restart_decay_fn`, or
        a function of your own. None means 1.
      use_locking: whether TensorFlow's kernel for dense gradients holds the variables' locks while
        it writes. There is none for sparse ones.
      name: the name of the optimizer and its slot.

    Raises:
      TypeError: an argument has the wrong type.
      ValueError: an argument is NaN or out of its range.
    """

    def __init__(
        self,
        learning_rate: Hyperparameter = 0.1,
        alpha: Hyperparameter = 1.0,
        beta: Hyperparameter = 0.9,
        sign_decay_fn: Optional[FunctionOfStep] = None,
        use_locking: bool = False,
        name: str = "AddSignOptimizer",
    ) -> None:
        super().__init__(
            sign_decay_fn, use_locking, name, learning_rate=learning_rate, alpha=alpha, beta=beta
        )

    _alpha_t = tensor_of("alpha")

    def _multiplier(self, sign, hyper):
        return hyper.alpha + sign

    def fused(self, update: Update) -> Optional[Operation]:
        return fused_kernels.apply(
            "AddSign",
            update,
            use_locking=self._use_locking,
            m=update.slots.m,
            lr=update.hyper.learning_rate,
            alpha=update.hyper.alpha,
            sign_decay=update.hyper.sign_decay,
            beta=update.hyper.beta,
        )


class PowerSignOptimizer(_SignOptimizer):
    """PowerSign (`tf.contrib.opt.PowerSignOptimizer`).

    Slot, sparse gradients and arguments are those of `AddSignOptimizer`, but for `base`. A sparse
    gradient takes powers of e rounded to the variable's dtype by way of float32, as the original
    does: in float64 a dense and a sparse step differ by some 1e-8 of their length.

    Args:
      learning_rate: a number, scalar tensor, variable, or callable that returns one.
      base: the base of the power, above zero. The rule goes by its logarithm, which is rounded
        where `base` is a number only after it is taken.
      beta: how much of `m` is kept in each step, from 0 to below 1.
      sign_decay_fn: see `AddSignOptimizer`.
      use_locking: see `AddSignOptimizer`.
      name: the name of the optimizer and its slot.

    Raises:
      TypeError: an argument has the wrong type.
      ValueError: an argument is NaN or out of its range.
    """

    def __init__(
        self,
        learning_rate: Hyperparameter = 0.1,
        base: Hyperparameter = math.e,
        beta: Hyperparameter = 0.9,
        sign_decay_fn: Optional[FunctionOfStep] = None,
        use_locking: bool = False,
        name: str = "PowerSignOptimizer",
    ) -> None:
        self._base = argument_checks.hyperparameter("base", base)
        super().__init__(
            sign_decay_fn,
            use_locking,
            name,
            learning_rate=learning_rate,
            logbase=_logarithm(self._base),
            beta=beta,
        )

    _logbase_t = tensor_of("logbase")

    def _multiplier(self, sign, hyper):
        return tf.exp(hyper.logbase * sign)

    def sparse_rule(
        self, grad: Tensor, value: Tensor, slots: SimpleNamespace, hyper: SimpleNamespace
    ) -> RuleResult:
        dtype = grad.dtype
        wide = wide_dtype(dtype)  # TensorFlow 1.15 has no Pow of bfloat16
        e = tf.cast(tf.cast(np.float32(math.e), dtype), wide)

        def multiplier(sign, hyper):
            return tf.cast(tf.pow(e, tf.cast(hyper.logbase * sign, wide)), dtype)

        return self._rule(grad, slots, hyper, multiplier)

    def fused(self, update: Update) -> Optional[Operation]:
        return fused_kernels.apply(
            "PowerSign",
            update,
            use_locking=self._use_locking,
            m=update.slots.m,
            lr=update.hyper.learning_rate,
            logbase=update.hyper.logbase,
            sign_decay=update.hyper.sign_decay,
            beta=update.hyper.beta,
        )


def _sign(values):
    if values.dtype == tf.bfloat16:  # for which CPUs have no kernel in TensorFlow 1.15
        return tf.cast(tf.sign(tf.cast(values, tf.float32)), values.dtype)
    return tf.sign(values)


def _logarithm(base):
    """Returns the natural logarithm of a base: a number of a number, else a callable."""
    if argument_checks.is_tensor_like(base):
        return lambda: tf.math.log(tf.convert_to_tensor(base))
    if callable(base):
        return lambda: _now(_logarithm(base()))
    return math.log(argument_checks.positive("base", base))


def _now(value):
    return value() if callable(value) else value

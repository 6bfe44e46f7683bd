"""AddSign and PowerSign: larger updates where the gradient and its moving average agree in sign.

The update of a variable w with the gradient g in training step t::

    m = beta * m + (1 - beta) * g
    AddSign:    w -= learning_rate * (alpha + d(t) * sign(g) * sign(m)) * g
    PowerSign:  w -= learning_rate * base ** (d(t) * sign(g) * sign(m)) * g

``d(t)`` is the sign decay, the value of `sign_decay_fn`.

Source: `AddSignOptimizer` and `PowerSignOptimizer` of TensorFlow 1's `tf.contrib.opt`, with the
same constructors, slot, variable names and arithmetic; after Bello et al., "Neural Optimizer Search
with Reinforcement Learning" (https://arxiv.org/abs/1709.07417).
"""

from __future__ import annotations

import math
from typing import Any, Callable, ClassVar, Optional

import numpy as np
import tensorflow as tf

from legacy_opt.core import argument_checks, fused_kernels
from legacy_opt.core.hyperparameters import alias_of, current_value, tensor_of, wide_dtype
from legacy_opt.core.rule_optimizer import RuleOptimizer
from legacy_opt.core.serializable_functions import SavesStepFunctions
from legacy_opt.core.slots import Slot
from legacy_opt.core.types import FunctionOfStep, Hyperparameter, Operation, Tensor
from legacy_opt.core.update import Fading, RuleResult, Update, Values
from legacy_opt.optimizers import sign_decay


class _SignOptimizer(SavesStepFunctions, RuleOptimizer):
    """Base class; `_multiplier` returns the gradient's factor for ``d(t) * sign(g) * sign(m)``."""

    slots = {"m": Slot()}
    step_functions = {"sign_decay_fn": sign_decay.DECAYS}
    prefers_advanced_step = True
    _kernel: ClassVar[str]  # the name of TensorFlow's kernel
    _extra_argument: ClassVar[str]  # the argument that only this kernel has
    # Private attributes of the classes in tf.contrib, which subclasses may read.
    _lr = alias_of("learning_rate")
    _lr_t = tensor_of("learning_rate")
    _beta_t = tensor_of("beta")
    _sign_decay_t = tensor_of("sign_decay")

    def __init__(
        self,
        sign_decay_fn: Optional[FunctionOfStep],
        use_locking: bool,
        name: str,
        beta: Hyperparameter,
        **hyperparameters: Any,
    ) -> None:
        self._sign_decay_fn = sign_decay.checked_sign_decay_fn(sign_decay_fn)
        beta = argument_checks.decay_factor("beta", beta)
        super().__init__(use_locking, name, beta=beta, **hyperparameters)

    @property
    def uses_global_step(self) -> bool:
        """Whether there is a `sign_decay_fn`, which is called with the global step."""
        return self._sign_decay_fn is not None

    def _prepare(self) -> None:
        super()._prepare()
        decay = 1.0
        if self._sign_decay_fn is not None:
            decay = argument_checks.hyperparameter(
                "sign_decay_fn(global_step)", self._sign_decay_fn(self._rule_step.global_step)
            )
        self._sign_decay_t = tf.convert_to_tensor(decay, name="sign_decay")

    def rule(self, grad: Tensor, value: Tensor, slots: Values, hyper: Values) -> RuleResult:
        return self._rule(grad, slots, hyper, self._multiplier)

    def _rule(
        self,
        grad: Tensor,
        slots: Values,
        hyper: Values,
        multiplier: Callable[[Tensor, Values], Tensor],
    ) -> RuleResult:
        m = slots.m * hyper.beta + grad * (1 - hyper.beta)
        agreement = _sign(grad) * _sign(m)

        # The factor of each element is selected from three scalars. If factors were computed from
        # tensors of signs, Grappler would regroup the products, and the results would change.
        def rate_for(sign: int) -> Tensor:
            return hyper.learning_rate * multiplier(sign * hyper.sign_decay, hyper)

        rate_of_equal, rate_of_zero, rate_of_opposite = rate_for(1), rate_for(0), rate_for(-1)
        rate = tf.compat.v2.where(agreement < 0, rate_of_opposite, rate_of_zero)
        rate = tf.compat.v2.where(agreement > 0, rate_of_equal, rate)
        return rate * grad, {"m": Fading(m, hyper.beta)}

    def fused(self, update: Update) -> Optional[Operation]:
        return fused_kernels.apply(
            self._kernel,
            update,
            use_locking=self._use_locking,
            m=update.slots.m,
            lr=update.hyper.learning_rate,
            sign_decay=update.hyper.sign_decay,
            beta=update.hyper.beta,
            **{self._extra_argument: getattr(update.hyper, self._extra_argument)},
        )


class AddSignOptimizer(_SignOptimizer):
    """AddSign (`tf.contrib.opt.AddSignOptimizer`).

    The gradient g is multiplied by ``learning_rate * (alpha + d(t) * sign(g) * sign(m))``, where
    ``d(t)`` is the sign decay.

    The optimizer has one slot, `m` (`w/AddSignOptimizer`), the moving average of the gradient, with
    the variable's shape and dtype, initialized to zero. As in tf.contrib, a sparse gradient decays
    `m` in all rows, but changes only the variable's rows that are in the gradient. So each sparse
    update takes time for the whole slot. Unlike the class in tf.contrib, this class can train
    resource variables with sparse gradients.

    Example::

        with tf.Graph().as_default(), tf.compat.v1.Session() as session:
            w = tf.compat.v1.get_variable("w", initializer=[1.0])
            grad = tf.compat.v1.placeholder(tf.float32, [1])
            train_op = legacy_opt.AddSignOptimizer(0.1).apply_gradients([(grad, w)])
            session.run(tf.compat.v1.global_variables_initializer())
            session.run(train_op, {grad: [1.0]})  # subtracts 0.1 * 1.0 * 2
            session.run(train_op, {grad: [-0.1]})  # subtracts 0: the average is still positive
            print(session.run(w))  # [0.8]

    Args:
      learning_rate: a number, scalar tensor or variable, or a callable that returns one of these.
      alpha: see the formula above.
      beta: decay factor of `m`, at least 0 and less than 1.
      sign_decay_fn: a function of the global step that returns the sign decay, such as the results
        of `get_linear_decay_fn`, `get_cosine_decay_fn` and `get_restart_decay_fn`. Each call of
        `apply_gradients` calls the function once, with the value of the argument `global_step`
        before it is incremented. If `apply_gradients` is called without `global_step`, the function
        gets the graph's global step, and a `GlobalStepWarning` is issued. If `sign_decay_fn` is
        None, the sign decay is 1.
      use_locking: whether native kernels, and TensorFlow's kernel for dense gradients, lock the
        variables while they write.
      name: the name of the optimizer and its slot.

    Raises:
      TypeError: an argument has the wrong type.
      ValueError: an argument is NaN or out of range.
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

    _kernel = "AddSign"
    _extra_argument = "alpha"
    _alpha_t = tensor_of("alpha")

    def _multiplier(self, sign: Tensor, hyper: Values) -> Tensor:
        return hyper.alpha + sign


class PowerSignOptimizer(_SignOptimizer):
    """PowerSign (`tf.contrib.opt.PowerSignOptimizer`).

    The gradient g is multiplied by ``learning_rate * base ** (d(t) * sign(g) * sign(m))``, where
    ``d(t)`` is the sign decay. The slot `m`, the treatment of sparse gradients and the arguments
    are those of `AddSignOptimizer`, with `base` in place of `alpha`.

    As in tf.contrib, sparse updates compute the power as ``e ** (log(base) * …)``, where e is
    rounded to float32 and then to the variable's dtype. So, for float64 variables, the relative
    difference between a dense and a sparse update is about 1e-8.

    Example::

        with tf.Graph().as_default():
            w = tf.compat.v1.get_variable("w", initializer=[1.0, 2.0])
            step = tf.compat.v1.train.get_or_create_global_step()
            decay = legacy_opt.get_linear_decay_fn(decay_steps=1000)
            optimizer = legacy_opt.PowerSignOptimizer(0.1, base=2.0, sign_decay_fn=decay)
            train_op = optimizer.minimize(tf.reduce_sum(w * w), global_step=step)

    Args:
      learning_rate: see `AddSignOptimizer`, also for `beta`, `sign_decay_fn` and `use_locking`.
      base: the base of the power, above zero. The update uses the logarithm of the base. If the
        base is a number, the logarithm is computed in Python, rounded to float32, and for 16-bit
        variables also rounded to the variable's dtype.
      name: the name of the optimizer and its slot.

    Raises:
      TypeError: an argument has the wrong type.
      ValueError: an argument is NaN or out of range.
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

    _kernel = "PowerSign"
    _extra_argument = "logbase"
    _logbase_t = tensor_of("logbase")
    _computed_attributes = ("_logbase",)  # which `_prepare` computes from other attributes

    def _prepare(self) -> None:
        if callable(self._logbase):  # `to_keras` replaces `_base` in each step
            self._logbase = _logarithm(self._base)
        super()._prepare()

    def _multiplier(self, sign: Tensor, hyper: Values) -> Tensor:
        return tf.exp(hyper.logbase * sign)

    def sparse_rule(self, grad: Tensor, value: Tensor, slots: Values, hyper: Values) -> RuleResult:
        dtype = grad.dtype
        wide = wide_dtype(dtype)  # TensorFlow 1.15 has no Pow for bfloat16
        e = tf.cast(tf.cast(np.float32(math.e), dtype), wide)

        def multiplier(sign: Tensor, hyper: Values) -> Tensor:
            return tf.cast(tf.pow(e, tf.cast(hyper.logbase * sign, wide)), dtype)

        return self._rule(grad, slots, hyper, multiplier)


def _sign(values: Tensor) -> Tensor:
    if values.dtype == tf.bfloat16:  # TensorFlow 1.15 has no Sign for bfloat16 on CPUs
        return tf.cast(tf.sign(tf.cast(values, tf.float32)), values.dtype)
    return tf.sign(values)


def _logarithm(base: Hyperparameter) -> Hyperparameter:
    """Returns the natural logarithm of a base; if the base is not a number, as a callable."""
    if argument_checks.is_tensor_like(base):
        return lambda: tf.math.log(tf.convert_to_tensor(base))
    if callable(base):
        return lambda: current_value("base", _logarithm(base()))
    return math.log(argument_checks.positive("base", base))

"""Adafactor: factored second moments of matrices, and updates scaled to the size of the weights.

The update of a variable w with the gradient g, where u is the normalized gradient,
``t = global_step + 1``, ``decay = 1 - t**-0.8`` and ``rms(x) = sqrt(mean(x**2))``::

    rate = min(1 / sqrt(t), 0.01) * max(rms(w), epsilon2)
    vr = decay * vr + (1 - decay) * row_means(g**2 + epsilon1)
    vc = decay * vc + (1 - decay) * column_means(g**2 + epsilon1)
    u = g / sqrt(outer(vr / mean(vr), vc))
    w -= rate * u / max(1, rms(u) / clipping_threshold)

Source: Shazeer and Stern, "Adafactor: Adaptive Learning Rates with Sublinear Memory Cost" (2018),
and `AdafactorOptimizer` of tensor2tensor, whose constructor and variables are the same.
"""

from __future__ import annotations

import numbers
from typing import Any, Dict, Optional, Tuple, Union

import numpy as np
import tensorflow as tf

from legacy_opt.core import argument_checks
from legacy_opt.core.hyperparameters import takes_step, wide_dtype
from legacy_opt.core.rule_optimizer import RuleOptimizer
from legacy_opt.core.serializable_functions import SavesStepFunctions, StepFunction
from legacy_opt.core.slots import Slot, TensorSlot
from legacy_opt.core.types import (
    DecayFunction,
    DType,
    FunctionOfStep,
    Hyperparameter,
    Tensor,
    TensorLike,
    Variable,
)
from legacy_opt.core.update import RuleResult, Values


class _AdamDecayRate(StepFunction):
    kind = "adam"
    public_name = "adafactor_decay_rate_adam"

    def __init__(self, beta2: float) -> None:
        self.beta2 = argument_checks.open_unit_interval("beta2", beta2)

    def __call__(self, step: TensorLike) -> Tensor:
        t = _floating(step) + 1
        beta = tf.constant(self.beta2, t.dtype)
        return beta * (1 - tf.pow(beta, t - 1)) / (1 - tf.pow(beta, t))


class _PowDecayRate(StepFunction):
    kind = "pow"
    public_name = "adafactor_decay_rate_pow"

    def __init__(self, exponent: float) -> None:
        self.exponent = argument_checks.positive("exponent", exponent)
        if self.exponent > 1:
            raise ValueError(f"exponent must be at most 1, got {exponent!r}.")

    def __call__(self, step: TensorLike) -> Tensor:
        rate = 1 - tf.pow(_floating(step) + 1, -self.exponent)
        numpy_type = rate.dtype.as_numpy_dtype
        below_1 = np.nextafter(numpy_type(1), numpy_type(0))  # see `adafactor_decay_rate_pow`
        return tf.minimum(rate, below_1)


def _floating(step: TensorLike) -> Tensor:
    step = tf.convert_to_tensor(step)
    return step if step.dtype.is_floating else tf.cast(step, tf.float32)


class AdafactorOptimizer(SavesStepFunctions, RuleOptimizer):
    """Adam with smaller slots and its own learning rate schedule (tensor2tensor).

    The slots are initialized to zero, and named after the optimizer (`w/Adafactor`,
    `w/Adafactor_1`, …) in this order:

    * `m`, only if `beta1` is not 0: shape and dtype of the variable.
    * `vr` and `vc`, float32, for a variable with two or more axes: moving averages of the means of
      squared gradients, over the last axis for `vr`, and over the second to last axis for `vc`. For
      a matrix ``[a, b]`` the shapes are ``[a]`` and ``[b]``. A variable with more axes is a stack
      of matrices. Each partition of a partitioned variable is a separate matrix. Therefore, only a
      graph with the same partitions can restore the means over the partitioned axis.
    * `v`, float32, with the variable's shape, for a variable with fewer than two axes, or for all
      variables if `factored` is False.

    The arithmetic is float32, or float64 for float64 variables; the update is rounded to the
    variable's dtype. (tensor2tensor's class trains only float32 variables, or with a
    `parameter_encoding` also bfloat16 variables.) As in tensor2tensor, sparse gradients are made
    dense, because the means are taken over all rows of a variable.

    The update uses ``t = global_step + 1``, with the graph's global step. No global step is needed
    if `learning_rate` and `decay_rate` do not depend on it. tensor2tensor adds
    ``1e-30 * mean(g**2)`` to these two rates, to prevent an optimization of XLA. This class does
    not, because the term changes a rate only for gradients of 1e8 and more.

    Example::

        with tf.Graph().as_default():
            table = tf.compat.v1.get_variable("table", [1000, 300])
            step = tf.compat.v1.train.get_or_create_global_step()
            optimizer = legacy_opt.AdafactorOptimizer()
            train_op = optimizer.minimize(tf.reduce_sum(table * table), global_step=step)
            shapes = [slot.shape.as_list() for slot in optimizer.variables()]
            print(shapes)  # [[1000], [300]]

    Args:
      multiply_by_parameter_scale: whether to multiply the rate by ``max(rms(w), epsilon2)``.
      learning_rate: a number, scalar tensor or variable, or a callable that returns one of these.
        None means ``min(1 / sqrt(t), 0.01)``, or 0.05 times this value if
        `multiply_by_parameter_scale` is False.
      decay_rate: decay factor of the second moments, of the same types as `learning_rate`; or a
        function of the global step, such as the results of `adafactor_decay_rate_pow`
        and `adafactor_decay_rate_adam`. None means ``adafactor_decay_rate_pow(0.8)``.
      beta1: decay factor of the momentum, at least 0 and less than 1; 0 means no slot `m`.
      clipping_threshold: the largest rms of u, see the formulas of this module; None: no clipping.
      factored: whether to store only row and column means for matrices.
      simulated_quantize_bits: not supported; must be None or 0.
      parameter_encoding: not supported; must be None.
      use_locking: has no effect; True gives a `UseLockingWarning`.
      name: the name of the optimizer and its slots.
      epsilon1: added to squared gradients.
      epsilon2: lower bound of a variable's scale.

    Raises:
      TypeError: an argument has the wrong type.
      ValueError: an argument is NaN, out of range, or not supported.
    """

    whole_tensor = True
    step_functions = {"decay_rate": (_AdamDecayRate, _PowDecayRate)}

    def __init__(
        self,
        multiply_by_parameter_scale: bool = True,
        learning_rate: Optional[Hyperparameter] = None,
        decay_rate: Union[Hyperparameter, FunctionOfStep, None] = None,
        beta1: Hyperparameter = 0.0,
        clipping_threshold: Optional[Hyperparameter] = 1.0,
        factored: bool = True,
        simulated_quantize_bits: Optional[int] = None,
        parameter_encoding: None = None,
        use_locking: bool = False,
        name: str = "Adafactor",
        epsilon1: Hyperparameter = 1e-30,
        epsilon2: Hyperparameter = 1e-3,
    ) -> None:
        decays_by_function = decay_rate is None or takes_step(decay_rate)
        constant_decay = None
        if not decays_by_function:
            constant_decay = argument_checks.decay_factor("decay_rate", decay_rate)
        if clipping_threshold is not None:
            argument_checks.positive_hyperparameter("clipping_threshold", clipping_threshold)
        hyperparameters = {
            "learning_rate": learning_rate,
            "decay_rate": constant_decay,
            "beta1": argument_checks.decay_factor("beta1", beta1),
            "clipping_threshold": clipping_threshold,
            "epsilon1": argument_checks.not_negative("epsilon1", epsilon1),
            "epsilon2": argument_checks.not_negative("epsilon2", epsilon2),
        }
        hyperparameters = {name: each for name, each in hyperparameters.items() if each is not None}
        super().__init__(use_locking, name, **hyperparameters)
        self.full_precision = tuple(hyperparameters)
        # The base class has not set the attributes of hyperparameters that are None.
        if learning_rate is None:
            self._learning_rate = None
        if clipping_threshold is None:
            self._clipping_threshold = None
        if decays_by_function:
            self._decay_rate = decay_rate
        self.uses_global_step = decays_by_function or learning_rate is None
        self._multiply_by_parameter_scale = _first_argument(
            "multiply_by_parameter_scale", multiply_by_parameter_scale
        )
        self._factored = argument_checks.boolean("factored", factored)
        _refuse_option("simulated_quantize_bits", simulated_quantize_bits)
        _refuse_option("parameter_encoding", parameter_encoding)
        self._simulated_quantize_bits = None  # `get_config` reads all arguments
        self._parameter_encoding = None

    def slot_layouts(self, variable: Variable) -> Dict[str, Slot]:
        shape = variable.shape
        needs_shape = self._factored and shape.rank != 1
        if needs_shape and not shape.is_fully_defined():
            raise ValueError(
                f"{type(self).__name__}: variable {variable.name!r} has shape {shape}, so the "
                "shapes of its factored second moments are unknown. Give it a static shape, or "
                "pass factored=False."
            )
        layouts = {"m": Slot()} if self._has_momentum() else {}
        if self._factored and shape.rank >= 2:
            *stack, second_to_last, last = range(shape.rank)
            for name, axes in {"vr": [*stack, second_to_last], "vc": [*stack, last]}.items():
                sizes = [shape[axis] for axis in axes]
                layouts[name] = TensorSlot(sizes, dtype=tf.float32, axes=axes)
        else:
            layouts["v"] = Slot(dtype=tf.float32)
        return layouts

    def _has_momentum(self) -> bool:
        # A tensor, variable or callable may become nonzero.
        return not isinstance(self._beta1, numbers.Real) or self._beta1 != 0

    def hyperparameters(self, dtype: DType, non_slots: bool = True) -> Values:
        return super().hyperparameters(wide_dtype(dtype), non_slots)

    def rule(self, grad: Tensor, value: Tensor, slots: Values, hyper: Values) -> RuleResult:
        wide = wide_dtype(grad.dtype)
        grad = tf.cast(grad, wide)
        decay = self._second_moment_decay(hyper, wide)
        normalized, new_slots = self._normalized(grad, slots, decay, hyper)
        # Grappler would reorder chains of products, and graphs would round differently from eager
        # execution. Two things prevent this: the division below separates the products in
        # `_normalized` from the learning rate, and no term is a product with (1 - beta1).
        threshold = getattr(hyper, "clipping_threshold", float("inf"))
        normalized /= tf.maximum(_rms(normalized) / threshold, 1)
        rate = self._rate(hyper, wide)
        if self._multiply_by_parameter_scale:
            rate *= tf.maximum(_rms(tf.cast(value, wide)), hyper.epsilon2)
        change = rate * normalized
        if self._has_momentum():
            change += hyper.beta1 * (tf.cast(slots.m, wide) - change)
            new_slots["m"] = tf.cast(change, value.dtype)
        return tf.cast(change, value.dtype), new_slots

    def _normalized(
        self, grad: Tensor, slots: Values, decay: Tensor, hyper: Values
    ) -> Tuple[Tensor, Dict[str, Tensor]]:
        """Returns the gradient divided by the root of its second moment, and the new moments."""

        def moment(slot: Tensor, mean: Tensor) -> Tensor:
            return decay * tf.cast(slot, grad.dtype) + (1 - decay) * mean

        square = tf.square(grad) + hyper.epsilon1
        if hasattr(slots, "v"):
            v = moment(slots.v, square)
            return grad * tf.math.rsqrt(v), {"v": tf.cast(v, tf.float32)}
        vr = moment(slots.vr, tf.reduce_mean(square, -1))
        vc = moment(slots.vc, tf.reduce_mean(square, -2))
        relative_vr = vr / tf.reduce_mean(vr, -1, keepdims=True)
        row_factor = tf.expand_dims(tf.math.rsqrt(relative_vr), -1)
        column_factor = tf.expand_dims(tf.math.rsqrt(vc), -2)
        normalized = grad * (row_factor * column_factor)
        return normalized, {"vr": tf.cast(vr, tf.float32), "vc": tf.cast(vc, tf.float32)}

    def _rate(self, hyper: Values, dtype: DType) -> Tensor:
        if self._learning_rate is not None:
            return hyper.learning_rate
        rate = tf.minimum(tf.math.rsqrt(tf.cast(hyper.global_step, dtype) + 1), 0.01)
        return rate if self._multiply_by_parameter_scale else rate * 0.05

    def _second_moment_decay(self, hyper: Values, dtype: DType) -> Tensor:
        if hasattr(hyper, "decay_rate"):  # then it is not a function of the step
            return hyper.decay_rate
        decay_fn: Any = self._decay_rate or adafactor_decay_rate_pow(0.8)
        return tf.cast(decay_fn(tf.cast(hyper.global_step, dtype)), dtype)


def adafactor_decay_rate_adam(beta2: float) -> DecayFunction:
    """Returns Adam's bias-corrected decay rate: ``beta2 (1 - beta2**(t-1)) / (1 - beta2**t)``.

    Args:
      beta2: a number between 0 and 1.

    Returns:
      A function of the global step, for `AdafactorOptimizer`. (tensor2tensor's function returns a
      tensor, which would stay constant in eager execution and in Keras.)
    """
    return _AdamDecayRate(beta2)


def adafactor_decay_rate_pow(exponent: float) -> DecayFunction:
    """Returns a decay rate for a moving average over more and more steps: ``1 - t**-exponent``.

    The rate stays below 1. In float32, the formula is rounded to 1 if t is more than about
    ``2**(25 / exponent)`` (2.6e9 with an exponent of 0.8, 3.4e7 with an exponent of 1). In
    tensor2tensor, the moments do not change after this step, and a variable whose slots are created
    after this step becomes NaN. This package uses the largest float32 below 1 instead of 1.

    Args:
      exponent: a number, above 0 and at most 1.

    Returns:
      A function of the global step, for `AdafactorOptimizer`; see `adafactor_decay_rate_adam`.
    """
    return _PowDecayRate(exponent)


def _rms(tensor: Tensor) -> Tensor:
    return tf.sqrt(tf.reduce_mean(tf.square(tensor)))


def _first_argument(name: str, value: Any) -> bool:
    """Returns the first argument if it is a bool; other values may be meant as learning rate."""
    try:
        return argument_checks.boolean(name, value)
    except TypeError as error:
        rate = f"(The first argument is not the learning rate: pass learning_rate={value!r}.)"
        raise TypeError(f"{error} {rate}") from None


def _refuse_option(name: str, value: Any) -> None:
    if value:
        raise ValueError(
            f"{name}={value!r} is an experimental option of tensor2tensor and not supported. Pass "
            "None; keep variables in float32, and cast them to bfloat16 in the model."
        )

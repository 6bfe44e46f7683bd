"""Clips gradients whose norm is unusually large compared with its moving average.

Source: `tf.contrib.layers.adaptive_clipping_fn` of TensorFlow 1.15.
"""

from __future__ import annotations

from typing import Any, List, Optional, Tuple

import tensorflow as tf

from legacy_opt.core import argument_checks, gradient_values
from legacy_opt.core.types import (
    FunctionOfPairs,
    GlobalStep,
    GradAndVar,
    GradsAndVars,
    Tensor,
    TensorLike,
    Variable,
)
from legacy_opt.wrappers.moving_average import in_all_replicas

v1 = tf.compat.v1


def adaptive_clipping_fn(
    std_factor: TensorLike = 2.0,
    decay: TensorLike = 0.95,
    static_max_norm: Optional[TensorLike] = None,
    global_step: Optional[GlobalStep] = None,
    report_summary: bool = False,
    epsilon: float = 1e-8,
    name: Optional[str] = None,
) -> FunctionOfPairs:
    """Returns a function that clips gradients whose norm is unusually large.

    The function keeps moving averages of ``log(norm)`` and ``log(norm)**2``, where `norm` is the
    global norm of all gradients. If the norm is ``exp(mean + std_factor * std)`` or more, all
    gradients are scaled so that the norm is ``exp(mean)``. Sources: section 3.2.1 of
    https://arxiv.org/abs/1412.1602, and `tf.contrib.layers.adaptive_clipping_fn`.

    Args:
      std_factor: a number or tensor. Gradients are clipped if the logarithm of the norm is at least
        this many standard deviations above the mean of the logarithm.
      decay: the decay factor of the moving averages, a number in [0, 1) or a tensor.
      static_max_norm: a fixed upper bound of the norm, a number or tensor, or None.
      global_step: a variable or tensor, or None. For a global step n, the decay factor is
        ``min(decay, n / (n + 1))``, so that the averages are not biased towards zero.
      report_summary: whether to write the summary `global_norm/adaptive_max_gradient_norm`.
      epsilon: added to the norm; also the lower bound of the variance.
      name: the variable scope of the averages `mean` and `sq_mean`. None means "AdaptiveMaxNorm",
        with a suffix if this name is already used.

    Returns:
      A function that takes and returns a list of (gradient, variable) pairs. Pass this function to
      `optimize_loss` as `clip_gradients`. The function raises a RuntimeError in eager execution and
      in a `tf.function`, and a ValueError if there is no gradient.

    Raises:
      TypeError: an argument has the wrong type.
      ValueError: an argument is out of range.
    """
    std_factor = gradient_values.scalar("std_factor", std_factor)
    decay = argument_checks.decay_factor("decay", gradient_values.scalar("decay", decay))
    if static_max_norm is not None:
        static_max_norm = gradient_values.positive_scalar("static_max_norm", static_max_norm)
    argument_checks.integer_step("global_step", global_step)
    argument_checks.boolean("report_summary", report_summary)
    epsilon = argument_checks.positive("epsilon", epsilon)
    gradient_values.scope_name(name)

    def clip(grads_and_vars: GradsAndVars) -> List[GradAndVar]:
        gradient_values.check_mode("adaptive_clipping_fn")
        grads_and_vars = gradient_values.some_gradients("adaptive_clipping_fn", grads_and_vars)
        norm = gradient_values.global_norm(grads_and_vars)
        with v1.variable_scope(name, "AdaptiveMaxNorm", [norm]):
            max_norm, log_mean = _bound(norm, std_factor, decay, global_step, epsilon)
        if report_summary:
            v1.summary.scalar("global_norm/adaptive_max_gradient_norm", max_norm)
        factor = v1.where(norm < max_norm, tf.ones_like(norm), tf.exp(log_mean) / norm)
        if static_max_norm is not None:
            limit = gradient_values.in_dtype(static_max_norm, norm.dtype)
            factor = tf.minimum(limit / norm, factor)
        scaled = gradient_values.scaled
        return [(scaled(grad, factor), variable) for grad, variable in grads_and_vars]

    return clip


def _bound(
    norm: Tensor,
    std_factor: TensorLike,
    decay: Any,
    global_step: Optional[GlobalStep],
    epsilon: float,
) -> Tuple[Tensor, Tensor]:
    """Updates the averages. Returns the lowest norm that is clipped, and the mean of log(norm)."""
    log_norm = tf.math.log(norm + epsilon)
    if global_step is not None:
        step = tf.cast(global_step, tf.float32)
        decay = tf.minimum(gradient_values.in_dtype(decay, step.dtype), step / (step + 1.0))
    mean = _moving_average("mean", log_norm, decay)
    mean_square = _moving_average("sq_mean", tf.square(log_norm), decay)
    variance = mean_square - tf.square(mean)
    # The name is the same as in tf.contrib.
    lower_bound = tf.convert_to_tensor(epsilon, variance.dtype, name="Maximum/x")
    std = tf.sqrt(tf.maximum(lower_bound, variance))
    return tf.exp(mean + gradient_values.in_dtype(std_factor, std.dtype) * std), mean


def _moving_average(name: str, value: Tensor, decay: Any) -> Tensor:
    """Creates a variable and returns its update: ``decay * average + (1 - decay) * value``."""
    average = v1.get_variable(
        name, [], value.dtype, initializer=v1.zeros_initializer(), trainable=False
    )
    with v1.name_scope(None, "AssignMovingAvg", [average, value, decay]) as scope:
        weight = tf.convert_to_tensor(1.0 - decay, name="decay")
        weight = gradient_values.in_dtype(weight, value.dtype)

        def update(variable: Variable, value: Tensor) -> Tensor:
            return v1.assign_sub(variable, (variable - value) * weight, name=scope)

        return in_all_replicas(update, average, value)

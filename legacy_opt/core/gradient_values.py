"""Scales, casts, clips and checks gradients, dense or sparse."""

from __future__ import annotations

import math
from typing import Any, Callable, Iterable, List, Optional, Sequence, Tuple

import tensorflow as tf

from legacy_opt import versions
from legacy_opt.core import argument_checks
from legacy_opt.core.kernel_hook import kernels_for
from legacy_opt.core.shortened import quoted
from legacy_opt.core.types import (
    DType,
    GradAndVar,
    Gradient,
    GradsAndVars,
    Operation,
    Tensor,
    TensorLike,
    V1Optimizer,
)

v1 = tf.compat.v1


def clip_by_global_norm(
    grads_and_vars: Sequence[GradAndVar],
    clip_norm: TensorLike,
    norm: Optional[Tensor] = None,
    optimizer: Optional[V1Optimizer] = None,
) -> List[GradAndVar]:
    """Clips gradients by their `global_norm`; `norm` is this norm if it is already computed."""
    gradients = [grad for grad, _ in grads_and_vars]
    dtype = _common_dtype(gradients)
    if norm is None:
        norm = global_norm(grads_and_vars, optimizer)
    casts = [_cast(grad, dtype) for grad in gradients]
    clipped, _ = tf.clip_by_global_norm(casts, in_dtype(clip_norm, dtype), norm)
    pairs = []
    for value, (grad, variable) in zip(clipped, grads_and_vars):
        pairs.append((None if grad is None else _cast(value, grad.dtype), variable))
    return pairs


def clip_by_norm(grads_and_vars: Sequence[GradAndVar], clip_norm: TensorLike) -> List[GradAndVar]:
    """Clips each gradient by its own norm."""

    def clip(values: Tensor) -> Tensor:
        return tf.clip_by_norm(values, in_dtype(clip_norm, values.dtype))

    return [(map_values(clip, grad), variable) for grad, variable in grads_and_vars]


def global_norm(
    grads_and_vars: Sequence[GradAndVar], optimizer: Optional[V1Optimizer] = None
) -> Tensor:
    """Returns the global norm of the gradients; a kernel of `optimizer` may compute it.

    If dtypes of gradients differ, the norm is float64 if any gradient is float64, else float32.
    """
    gradients = [grad for grad, _ in grads_and_vars if grad is not None]
    dtype = _common_dtype(gradients)
    gradients = [_cast(grad, dtype) for grad in gradients]
    norm = kernels_for(optimizer).global_norm([values_of(grad) for grad in gradients])
    return tf.linalg.global_norm(gradients) if norm is None else norm


def _common_dtype(gradients: Iterable[Optional[Gradient]]) -> DType:
    dtypes = {grad.dtype.base_dtype for grad in gradients if grad is not None}
    if len(dtypes) == 1:
        return dtypes.pop()
    return tf.float64 if tf.float64 in dtypes else tf.float32


def values_of(grad: Gradient) -> Tensor:
    """Returns the values of a sparse gradient, or a dense gradient unchanged."""
    return grad.values if isinstance(grad, tf.IndexedSlices) else grad


def with_values(grad: Gradient, values: Tensor) -> Gradient:
    """Returns `values`, with the indices of `grad` if `grad` is sparse."""
    if isinstance(grad, tf.IndexedSlices):
        return tf.IndexedSlices(values, grad.indices, grad.dense_shape)
    return values


def map_values(function: Callable[[Tensor], Tensor], grad: Optional[Gradient]) -> Any:
    """Returns a gradient with `function` applied to its values; None stays None."""
    return grad if grad is None else with_values(grad, function(values_of(grad)))


def check_numerics(
    loss: Tensor, grads_and_vars: Sequence[GradAndVar], with_gradients: bool = True
) -> Tuple[List[GradAndVar], List[Operation]]:
    """Creates operations that check whether the loss and (`with_gradients`) gradients are finite.

    Returns the (gradient, variable) pairs, whose gradients depend on all checks, and the checks.
    """
    with v1.name_scope("check_numerics"):
        checks = [tf.debugging.check_numerics(loss, "LossTensor is inf or nan").op]
        # The gradients are checked after the loss, so that the loss is reported first.
        with tf.control_dependencies(checks):
            for grad, variable in grads_and_vars:
                if grad is not None and with_gradients:
                    message = f"The gradient of {variable.name} is inf or nan"
                    checks.append(tf.debugging.check_numerics(values_of(grad), message).op)
        with tf.control_dependencies(checks):
            pairs = [(map_values(tf.identity, grad), var) for grad, var in grads_and_vars]
    return pairs, checks


def scaled(grad: Optional[Gradient], factor: TensorLike) -> Optional[Gradient]:
    """Returns a gradient times a number or scalar tensor."""
    return map_values(lambda values: values * in_dtype(factor, values.dtype), grad)


def _cast(grad: Optional[Gradient], dtype: DType) -> Any:
    return map_values(lambda values: in_dtype(values, dtype), grad)


def in_dtype(value: Any, dtype: DType) -> Any:
    """Casts a tensor to `dtype`; returns a Python number unchanged."""
    if not argument_checks.is_tensor_like(value) or value.dtype.base_dtype == dtype.base_dtype:
        return value
    return tf.cast(value, dtype)


def check_mode(function: str):
    """Raises a RuntimeError if `function`, a name for messages, is not called in a TF1 graph."""
    if versions.runs_in_order():
        raise RuntimeError(
            f"{function} builds a part of a TF1 graph, which a Session runs again and again; it "
            "does not work eagerly or in a tf.function. Build the model inside `with "
            "tf.Graph().as_default():`, in an Estimator's model_fn or in "
            "tf.compat.v1.wrap_function. In eager code call optimizer.minimize(lambda: "
            "loss()), or change the gradients of a tf.GradientTape and call "
            "optimizer.apply_gradients."
        )


def pairs_of(caller: str, grads_and_vars: GradsAndVars) -> List[GradAndVar]:
    """Returns a list of (gradient, variable) pairs; raises a TypeError for anything else."""
    try:
        return [(grad, variable) for grad, variable in grads_and_vars]
    except (TypeError, ValueError):
        raise argument_checks.WrongTypeError(
            f"{caller} takes a list of (gradient, variable) pairs, as compute_gradients returns "
            f"it, got {grads_and_vars!r}."
        ) from None


def some_gradients(caller: str, grads_and_vars: GradsAndVars) -> List[GradAndVar]:
    """Returns the result of `pairs_of`; raises a ValueError if all gradients are None."""
    pairs = pairs_of(caller, grads_and_vars)
    if all(grad is None for grad, _ in pairs):
        names = quoted(variable.name for _, variable in pairs)
        reason = f"The loss depends on none of {names}." if names else "The list is empty."
        raise ValueError(f"{caller}: no variable has a gradient. {reason}")
    return pairs


def scalar(name: str, value: Any) -> TensorLike:
    """Returns `value` if it is a finite number, or a scalar tensor or variable."""
    if argument_checks.is_function(value):
        raise argument_checks.WrongTypeError(
            f"{name} must be a number or a scalar tensor, got {value!r}."
        )
    # A number too large for float32 is allowed, because it is cast to the dtype of the gradients.
    return argument_checks.hyperparameter(name, value, largest=math.inf)


def positive_scalar(name: str, value: Any) -> TensorLike:
    """Returns `value` if it is a positive number, or a scalar tensor or variable."""
    value = scalar(name, value)
    if argument_checks.is_tensor_like(value):
        return value
    return argument_checks.positive(name, value)


def scope_name(name: Any) -> Any:
    """Returns `name` if it is None, a variable scope or a scope name ("" is the current scope)."""
    if name is None or name == "" or isinstance(name, v1.VariableScope):
        return name
    return argument_checks.text("name", name)

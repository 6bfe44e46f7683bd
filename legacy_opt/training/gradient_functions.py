"""Changes gradients between `compute_gradients` and `apply_gradients`.

Most functions take and return lists of (gradient, variable) pairs.
Source: `tf.contrib.layers` and `tf.contrib.training` of TensorFlow 1.15.
"""

from __future__ import annotations

from typing import Any, Callable, Iterable, List, Mapping, Tuple

import numpy as np
import tensorflow as tf

from legacy_opt.core import argument_checks, gradient_values
from legacy_opt.core.nearest_names import did_you_mean
from legacy_opt.core.shortened import quoted
from legacy_opt.core.types import (
    FunctionOfPairs,
    GradAndVar,
    GradsAndVars,
    Tensor,
    TensorLike,
    Variable,
)

v1 = tf.compat.v1


def clip_gradient_norms(
    gradients_to_variables: GradsAndVars, max_norm: TensorLike
) -> List[GradAndVar]:
    """Clips each gradient by its own norm.

    If a sparse gradient has several rows with the same id, the rows are not summed before the norm
    is computed.

    Args:
      gradients_to_variables: a list of (gradient, variable) pairs.
      max_norm: the norm to clip to, a number or scalar tensor.

    Returns:
      A list of (gradient, variable) pairs.

    Raises:
      TypeError: an argument has the wrong type.
      ValueError: `max_norm` is not positive.
    """
    max_norm = gradient_values.positive_scalar("max_norm", max_norm)
    pairs = gradient_values.pairs_of("clip_gradient_norms", gradients_to_variables)
    return gradient_values.clip_by_norm(pairs, max_norm)


def clip_gradient_norms_fn(max_norm: TensorLike) -> FunctionOfPairs:
    """Returns `clip_gradient_norms` with a fixed `max_norm`, for use as `transform_grads_fn`.

    Args:
      max_norm: the norm to clip to, a number or scalar tensor.

    Returns:
      A function that takes and returns a list of (gradient, variable) pairs.

    Raises:
      TypeError: `max_norm` has the wrong type.
      ValueError: `max_norm` is not positive.
    """
    max_norm = gradient_values.positive_scalar("max_norm", max_norm)
    return lambda gradients_to_variables: clip_gradient_norms(gradients_to_variables, max_norm)


def multiply_gradients(
    grads_and_vars: GradsAndVars, gradient_multipliers: Mapping[Any, TensorLike]
) -> List[GradAndVar]:
    """Multiplies the gradients of some variables.

    Args:
      grads_and_vars: a list of (gradient, variable) pairs.
      gradient_multipliers: a dict whose values are the factors of the gradients, numbers or
        tensors. Its keys are variables or the names of their operations (`"w"`, not `"w:0"`). Keys
        for variables that are not in `grads_and_vars` are ignored.

    Returns:
      A list of (gradient, variable) pairs.

    Raises:
      TypeError: an argument has the wrong type.
      ValueError: `gradient_multipliers` is empty; or it has a name that does not belong to any
        variable; or it has a key for a variable whose gradient is None.
    """
    pairs = gradient_values.pairs_of("multiply_gradients", grads_and_vars)
    check_multipliers(gradient_multipliers)
    if not gradient_multipliers:
        raise ValueError("gradient_multipliers is empty.")
    multipliers = _multipliers(gradient_multipliers, pairs, lambda variable: variable.op.name)
    new_pairs = []
    for (grad, variable), multiplier in zip(pairs, multipliers):
        if multiplier is not None:
            if grad is None:
                raise ValueError(
                    f"gradient_multipliers has {variable.op.name!r}, which has no gradient."
                )
            if not argument_checks.is_tensor_like(multiplier):
                multiplier = tf.convert_to_tensor(multiplier, dtype=grad.dtype)
            grad = gradient_values.scaled(grad, multiplier)
        new_pairs.append((grad, variable))
    return new_pairs


def multiply_by_full_names(
    grads_and_vars: GradsAndVars, gradient_multipliers: Mapping[Any, Any]
) -> List[GradAndVar]:
    """Multiplies gradients, or None, by numbers for full names of variables, such as "w:0"."""
    pairs = list(grads_and_vars)
    multipliers = _multipliers(gradient_multipliers, pairs, lambda variable: variable.name)
    new_pairs = []
    for (grad, variable), multiplier in zip(pairs, multipliers):
        if multiplier is not None and grad is not None:
            if not isinstance(grad, tf.IndexedSlices):
                multiplier = tf.cast(multiplier, grad.dtype)
            grad = gradient_values.scaled(grad, multiplier)
        new_pairs.append((grad, variable))
    return new_pairs


def check_multipliers(multipliers: Any) -> None:
    """Checks a dict from variables or names to multipliers: finite numbers or tensors."""
    what = "gradient_multipliers"
    if not isinstance(multipliers, dict):
        raise argument_checks.WrongTypeError(
            f"{what} must be a dict from variables or names to numbers, got {multipliers!r}."
        )
    for key, value in multipliers.items():
        if not (argument_checks.is_tensor_like(value) or isinstance(value, np.ndarray)):
            argument_checks.number(f"{what}[{key!r}]", value)
        if not (isinstance(key, str) or argument_checks.is_tensor_like(_variable_of(key))):
            raise TypeError(f"{what} must have variables or names as keys, got {key!r}.")


def _variable_of(key: Any) -> Any:
    """Returns the variable if `key` is the `ref()` of a variable, otherwise `key`."""
    return key.deref() if hasattr(key, "deref") else key


def _multipliers(
    multipliers: Mapping[Any, Any], pairs: List[GradAndVar], name_of: Callable[[Variable], str]
) -> List[Any]:
    """Returns the multiplier of each variable, or None. Call `check_multipliers` before."""
    by_name = {key: value for key, value in multipliers.items() if isinstance(key, str)}
    by_identity = {id(_variable_of(key)): value for key, value in multipliers.items()}
    variables = [variable for _, variable in pairs]
    names = [name_of(variable) for variable in variables]
    missing = [key for key in by_name if key not in names]
    if missing:  # a name is no error if its variable exists, but is not trained
        existing = {name_of(each) for each in v1.global_variables() + v1.local_variables()}
        missing = [key for key in missing if key not in existing]
    if missing:
        raise ValueError(
            f"gradient_multipliers has {quoted(missing)}, but there is no such variable. "
            f"Trained variables: {quoted(names) or 'none'}.{did_you_mean(missing[0], names)}"
        )
    return [
        by_identity.get(id(variable), by_name.get(name)) for variable, name in zip(variables, names)
    ]


def add_gradients_summaries(grads_and_vars: GradsAndVars) -> List[Tensor]:
    """Writes two summaries of each gradient: a histogram and the norm.

    Args:
      grads_and_vars: a list of (gradient, variable) pairs; a gradient may be None.

    Returns:
      A list of summaries: `<variable>_gradient` and `<variable>_gradient_norm` for each gradient.

    Raises:
      TypeError: `grads_and_vars` is not a list of (gradient, variable) pairs.
    """
    summaries = []
    for grad, variable in gradient_values.pairs_of("add_gradients_summaries", grads_and_vars):
        if grad is None:
            v1.logging.info("Var %s has no gradient", variable.op.name)
            continue
        name = variable.op.name
        values = gradient_values.values_of(grad)
        summaries.append(v1.summary.histogram(name + "_gradient", values))
        norm = tf.linalg.global_norm([values])
        summaries.append(v1.summary.scalar(name + "_gradient_norm", norm))
    return summaries


def add_noise(
    grads_and_vars: Iterable[Tuple[Any, Variable]], scale: TensorLike
) -> List[GradAndVar]:
    """Adds noise from a truncated normal distribution, which makes sparse gradients dense."""
    noisy = []
    for grad, variable in grads_and_vars:
        if grad is not None:
            if not isinstance(grad, tf.IndexedSlices):
                shape = grad.shape if grad.shape.is_fully_defined() else tf.shape(grad)
            elif grad.dense_shape is None:
                shape = tf.shape(variable, out_type=tf.int64)
                grad = tf.IndexedSlices(grad.values, grad.indices, shape)
            else:
                shape = grad.dense_shape
            noise = tf.random.truncated_normal(shape, dtype=grad.dtype)
            grad = grad + noise * gradient_values.in_dtype(scale, grad.dtype)
        noisy.append((grad, variable))
    return noisy

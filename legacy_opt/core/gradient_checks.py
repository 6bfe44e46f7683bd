"""Checks gradients, dtypes of variables, and subclasses of optimizers."""

from __future__ import annotations

from typing import Any, Collection, Mapping

import tensorflow as tf

from legacy_opt import versions
from legacy_opt.core.argument_checks import WrongTypeError
from legacy_opt.core.types import DType, Tensor, Variable


def refuse_overrides(cls: type, replacements: Mapping[Any, str]):
    """Raises a TypeError for a subclass that overrides a method which is never called.

    The original optimizer calls the methods in `replacements`, a dict from method name to advice on
    which method to override instead. Methods of base classes of users are refused, too.
    """
    package = __name__.partition(".")[0] + "."
    user_classes = [each for each in cls.__mro__ if not each.__module__.startswith(package)]
    for name, advice in replacements.items():
        if any(name in vars(each) for each in user_classes):
            raise TypeError(
                f"this package never calls {cls.__name__}.{name}, unlike the original "
                f"optimizer: {advice}."
            )


def gradient(optimizer_name: str, grad: Tensor, variable: Variable, sparse: bool) -> Tensor:
    """Checks that a gradient, or the tensor of a sparse gradient's values, fits its variable.

    Returns the gradient. If its static shape is not fully known, the shape is checked at runtime,
    because arithmetic would silently broadcast a gradient of a wrong shape. (The number of rows of
    a sparse gradient is not checked.)
    """
    gradient_dtype(optimizer_name, grad, variable)
    shape = grad.shape
    expected = versions.static_shape(variable)
    if sparse and expected.rank is not None:
        expected = tf.TensorShape([None]).concatenate(expected[1:])
    if not shape.is_compatible_with(expected):
        raise ValueError(
            f"{optimizer_name}: the {'sparse ' if sparse else ''}gradient of variable "
            f"{variable.name!r} has shape {shape}, expected {expected}."
        )
    if shape.rank is None or not shape[int(sparse) :].is_fully_defined():
        return tf.ensure_shape(grad, expected)
    return grad


def gradient_dtype(optimizer_name: str, grad: Tensor, variable: Variable):
    """Raises a TypeError if a gradient does not have its variable's dtype."""
    # On TensorFlow 1.15, the `dtype` of Keras' AutoCastVariable (mixed precision) is the dtype to
    # which reads are cast; `true_dtype` is the stored dtype. Since 2.4, both are the stored dtype.
    expected = getattr(variable, "true_dtype", variable.dtype).base_dtype
    if grad.dtype.base_dtype != expected:
        raise TypeError(
            f"{optimizer_name}: the gradient of variable {variable.name!r} has dtype "
            f"{grad.dtype.base_dtype.name}, the variable {expected.name}: cast the gradient."
        )


def trainable_dtype(optimizer_name: str, variable: Variable, valid: Collection[DType]):
    """Raises a WrongTypeError if an optimizer cannot train a variable of this dtype."""
    if variable.dtype.base_dtype not in valid:
        raise WrongTypeError(
            f"{optimizer_name} cannot train variable {variable.name!r} of dtype "
            f"{variable.dtype.base_dtype.name}; it trains "
            f"{', '.join(sorted(dtype.name for dtype in valid))}."
        )

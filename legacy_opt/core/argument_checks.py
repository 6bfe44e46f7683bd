"""Checks arguments of constructors and functions."""

from __future__ import annotations

import inspect
import math
import numbers
import re
from typing import TYPE_CHECKING, Any, Callable, Dict, Optional, Sequence, Union

import numpy as np
import tensorflow as tf

from legacy_opt.core.types import V1Optimizer
from legacy_opt.core.user_warnings import warn

if TYPE_CHECKING:
    from typing import TypeIs

_NUMBERS_OF_TENSORFLOW: Any = (numbers.Integral, float, np.float16, np.float32)
_LARGEST_FLOAT32 = float(np.finfo(np.float32).max)
_SMALLEST_FLOAT32 = float(np.finfo(np.float32).tiny)
_LARGEST_INT64 = np.iinfo(np.int64).max


class WrongTypeError(TypeError, ValueError):
    """A TypeError that is also a ValueError, for code that catches TensorFlow 1's ValueError."""


def is_tensor_like(value: Any) -> TypeIs[Union[tf.Tensor, tf.Variable]]:
    """Whether `value` is a tensor or variable of TensorFlow."""
    return tf.is_tensor(value) or isinstance(value, tf.Variable)


def is_function(value: Any) -> TypeIs[Callable[..., Any]]:
    """Whether `value` is callable and not a variable (variables may be callable, too)."""
    return callable(value) and not is_tensor_like(value)


def number(name: str, value: Any) -> Any:
    """Returns `value` if it is a finite number, not a bool.

    Types that TensorFlow rejects, such as `fractions.Fraction` and `np.longdouble`, become floats.
    """
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise WrongTypeError(f"{name} must be a number, got {value!r} of type {_type_name(value)}.")
    try:
        is_finite = math.isfinite(value)
    except OverflowError:  # an integer that is too large for a float
        is_finite = False
    if not is_finite:
        raise ValueError(f"{name} must be finite, got {value!r}.")
    return value if isinstance(value, _NUMBERS_OF_TENSORFLOW) else float(value)


def positive(name: str, value: Any) -> float:
    """Returns `value` if it is a finite number above zero; raises the same errors as `number`.

    A number below the smallest normal float32 number raises a ValueError, too, because TensorFlow
    may round it to zero, and a division by zero may give NaN.
    """
    value = number(name, value)
    if value < _SMALLEST_FLOAT32:
        where = " in float32" if value > 0 else ""
        raise ValueError(f"{name} must be positive{where}, got {value!r}.")
    return value


def integer(name: str, value: Any) -> int:
    """Returns `value` as an int. The float 100.0 is not an integer."""
    number(name, value)
    if not isinstance(value, numbers.Integral):
        raise WrongTypeError(
            f"{name} must be an integer, got {value!r} of type {_type_name(value)}: write it "
            "without a decimal point."
        )
    return int(value)


def positive_integer(name: str, value: Any) -> int:
    """Returns `value` as an int if it is above zero; raises the same errors as `integer`."""
    return int(positive(name, integer(name, value)))


def open_unit_interval(name: str, value: Any) -> float:
    """Returns `value` if it is strictly between 0 and 1; raises the same errors as `number`."""
    value = number(name, value)
    if not 0 < value < 1:
        raise ValueError(f"{name} must lie strictly between 0 and 1, got {value!r}.")
    return value


def decay_factor(name: str, value: Any) -> Any:
    """Returns `value` if it is a `hyperparameter`; a number must be at least 0 and less than 1."""
    value = _hyperparameter(name, value)
    if isinstance(value, numbers.Real) and not 0 <= value < 1:
        raise ValueError(f"{name} must be at least 0 and less than 1, got {value!r}.")
    return value


def not_negative(name: str, value: Any) -> Any:
    """Returns `value` if it is a `hyperparameter`; a number must not be negative."""
    value = _hyperparameter(name, value)
    if isinstance(value, numbers.Real) and value < 0:
        raise ValueError(f"{name} must not be negative, got {value!r}.")
    return value


def checked(check: Callable[[str, Any], Any], **arguments: Any) -> Dict[str, Any]:
    """Returns the keyword arguments as a check, such as `not_negative`, returns them."""
    return {name: check(name, value) for name, value in arguments.items()}


def positive_hyperparameter(name: str, value: Any) -> Any:
    """Returns `value` if it is a `hyperparameter`; a number must be above 0."""
    value = _hyperparameter(name, value)
    return positive(name, value) if isinstance(value, numbers.Real) else value


def hyperparameter(name: str, value: Any, largest: float = _LARGEST_FLOAT32) -> Any:
    """Returns `value` if it is a hyperparameter: a number, scalar tensor, variable or callable.

    A callable has no arguments, and is called each time gradients are applied. A negative number
    for the learning rate gives a warning.

    The absolute value of a number must not exceed `largest`. By default, this is the largest
    float32 number, because most hyperparameters become float32 tensors, even for variables of
    another dtype. (TensorFlow's own optimizers raise an error in eager code, and use infinity in
    graphs.)
    """
    value = _hyperparameter(name, value, largest)
    if name in ("learning_rate", "lr") and isinstance(value, numbers.Real) and value < 0:
        warn(
            f"{name}={value!r} is negative: updates would go uphill and increase the loss. Pass a "
            "positive number; to maximize an objective, minimize its negative.",
            UserWarning,
        )
    return value


def _hyperparameter(name: str, value: Any, largest: float = _LARGEST_FLOAT32) -> Any:
    """Like `hyperparameter`, without the warning."""
    if is_function(value):
        return without_arguments(name, value)
    if not is_tensor_like(value):
        if getattr(value, "shape", None) == () and hasattr(value, "item"):
            value = value.item()  # a NumPy scalar
        value = number(name, value)
        if abs(value) > largest:
            raise ValueError(f"{name} must fit into float32, got {value!r}.")
        # TensorFlow cannot convert an integer of more than 64 bits to a tensor.
        return float(value) if abs(value) > _LARGEST_INT64 else value
    dtype = value.dtype.base_dtype
    if not (dtype.is_floating or dtype.is_integer):
        raise WrongTypeError(f"{name} must be numeric, got a tensor of dtype {dtype.name}.")
    if value.shape.rank not in (None, 0):
        raise ValueError(f"{name} must be a scalar, got a tensor of shape {value.shape}.")
    return value


def without_arguments(name: str, function: Callable[..., Any]) -> Callable[[], Any]:
    """Returns `function`; raises a TypeError if it needs an argument, like a Keras schedule."""
    try:
        inspect.signature(function).bind()
    except ValueError:  # a built-in function without a signature
        pass
    except TypeError as error:
        raise TypeError(
            f"{name} must be callable without arguments, got {function!r} ({error}). In place "
            "of a schedule pass lambda: schedule(global_step)."
        ) from None
    return function


def boolean(name: str, value: Any) -> bool:
    """Returns `value` as a bool; raises a TypeError if it is not a bool of Python or NumPy."""
    if not isinstance(value, (bool, np.bool_)):
        raise TypeError(f"{name} must be True or False, got {value!r}.")
    return bool(value)


def text(name: str, value: Any) -> str:
    """Returns `value` if it is a string that is not empty; raises a ValueError if it is not."""
    if not isinstance(value, str):
        raise WrongTypeError(f"{name} must be a string, got {value!r} of type {_type_name(value)}.")
    if not value:
        raise ValueError(f"{name} must not be empty.")
    return value


def patterns(name: str, value: Any) -> Optional[Sequence[str]]:
    """Returns `value` if it is a list or tuple of valid regular expressions, or None."""
    if value is None:
        return value
    if not isinstance(value, (list, tuple)):
        raise TypeError(
            f"{name} must be a list of regular expressions, such as ['bias'], or None, got "
            f"{value!r}."
        )
    for pattern in value:
        try:
            re.compile(pattern)
        except TypeError:
            raise TypeError(f"{name} contains {pattern!r}, which is not a string.") from None
        except re.error as error:
            raise ValueError(
                f"{name} contains {pattern!r}, which is not a valid regular expression: {error}."
            ) from None
    return value


def integer_step(name: str, value: Any, constant: bool = False) -> Any:
    """Returns `value` if it is a global step: None, or an integer scalar variable or tensor.

    If `constant` is true, numbers and floating point tensors are allowed, too.
    """
    if value is None:
        return value
    if constant:
        if isinstance(value, np.ndarray) and value.shape == ():
            value = value.item()
        if isinstance(value, numbers.Real) and not isinstance(value, bool):
            number(name, value)
            if not 0 <= value <= _LARGEST_INT64:
                raise ValueError(f"{name} must be from 0 to {_LARGEST_INT64}, got {value!r}.")
            return int(value) if isinstance(value, numbers.Integral) else float(value)
        if is_tensor_like(value) and value.dtype.is_floating:
            return hyperparameter(name, value)
    if not is_tensor_like(value):
        raise WrongTypeError(
            f"{name} must be an int32 or int64 variable (for example from "
            "tf.compat.v1.train.get_or_create_global_step()) or None for the "
            f"graph's global step, got {value!r} of type {_type_name(value)}."
        )
    if value.dtype.base_dtype not in (tf.int32, tf.int64):
        raise WrongTypeError(f"{name} must be int32 or int64, got {value.dtype.base_dtype.name}.")
    if value.shape.rank not in (None, 0):
        raise ValueError(f"{name} must be a scalar, got shape {value.shape}.")
    return value


def _type_name(value: Any) -> str:
    return type(value).__name__


def optimizer(wrapper: str, value: Any) -> V1Optimizer:
    """Returns a v1 optimizer; raises a TypeError, which names the class `wrapper`, for others."""
    if isinstance(value, tf.compat.v1.train.Optimizer):
        return value
    hint = ""
    if isinstance(value, type):
        hint = " Pass an instance, not the class."
    elif hasattr(value, "iterations"):
        hint = " It is a Keras optimizer: convert it with legacy_opt.compat.to_v1(…)."
    raise TypeError(
        f"{wrapper} wraps tf.compat.v1.train.Optimizer instances, got {value!r} of type "
        f"{_type_name(value)}.{hint}"
    )

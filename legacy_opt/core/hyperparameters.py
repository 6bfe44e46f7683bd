"""Computes the values of hyperparameters in a training step, and casts them to a dtype."""

from __future__ import annotations

import inspect
from typing import Any, Callable, Optional

import numpy as np
import tensorflow as tf

from legacy_opt.core import argument_checks
from legacy_opt.core.types import DType, Hyperparameter, Tensor


def current_value(name: str, value: Hyperparameter) -> Any:
    """Returns the current value of a hyperparameter; calls the hyperparameter if it is callable."""
    if argument_checks.is_function(value):
        value = argument_checks.hyperparameter(name, value())
        if argument_checks.is_function(value):
            raise TypeError(f"{name} is a function that returns another function, {value!r}.")
    return value


def alias_of(name: str) -> Any:
    """Returns a property for a `RuleOptimizer` that reads and writes the hyperparameter `name`."""

    def read(self: Any) -> Hyperparameter:
        return getattr(self, "_" + name)

    def write(self: Any, value: Hyperparameter) -> None:
        # A value that is set before the constructor has run is ignored: it would be replaced.
        if "_hyperparameter_names" in vars(self):
            setattr(self, "_" + name, argument_checks.hyperparameter(name, value))

    return property(read, write)


def tensor_of(name: str) -> Any:
    """Returns a property for a `RuleOptimizer`: the tensor of a hyperparameter, set by `_prepare`.

    TensorFlow 1's optimizers have attributes with these tensors, such as `_lr_t`. Subclasses and
    summaries read them, also after a training step; before the first step, they are None.
    """

    def read(self: Any) -> Optional[Tensor]:
        return self._rule_step.tensors.get(name)

    def write(self: Any, value: Tensor):
        tensors = dict(self._rule_step.tensors, **{name: value})
        self._rule_step = self._rule_step._replace(tensors=tensors)

    return property(read, write)


def takes_step(value: Any) -> bool:
    """Whether `value` is a function that must be called with one argument, the global step."""
    return _can_be_called(value, None) and not takes_nothing(value)


def takes_nothing(value: Any) -> bool:
    """Whether `value` is a function that can be called without arguments."""
    return _can_be_called(value)


def _can_be_called(value: Any, *arguments: Any) -> bool:
    if not argument_checks.is_function(value):
        return False
    try:
        inspect.signature(value).bind(*arguments)
    except (TypeError, ValueError):
        return False
    return True


def wide_dtype(dtype: DType) -> DType:
    """Returns the dtype to compute in: float32 for float16 and bfloat16, other dtypes unchanged."""
    return tf.float32 if dtype.base_dtype in (tf.float16, tf.bfloat16) else dtype.base_dtype


def unrounded(tensor: Tensor, value: Any, dtype: DType) -> Tensor:
    """Returns a hyperparameter in `dtype`; a Python number is not rounded to float32 first.

    `value`, the argument of the constructor, is read only if it is a number: this training step may
    update a variable, and kernels are made from graphs without variables. `tensor`, the value in
    this step, differs if the user has changed it in a Keras optimizer of `to_keras`.
    """
    return _without_rounding(lambda number: number, tensor, value, dtype)


def complement(tensor: Tensor, value: Any, dtype: DType) -> Tensor:
    """Returns 1 minus an `unrounded` hyperparameter; a number is subtracted in Python."""
    return _without_rounding(lambda number: 1 - number, tensor, value, dtype)


def _without_rounding(
    function: Callable[[Any], Any], tensor: Tensor, value: Any, dtype: DType
) -> Tensor:
    """Applies `function` to an `unrounded` hyperparameter; to an unchanged number, in Python.

    No intermediate tensor is float64, because not all devices support float64.
    """
    if argument_checks.is_tensor_like(value) or callable(value):
        return function(tf.cast(tensor, dtype))
    exact = tf.constant(function(value), dtype)
    rounded = function(tf.cast(tensor, dtype))
    is_unchanged = tf.equal(tensor, tf.cast(np.float32(value), tensor.dtype))
    return tf.compat.v2.where(is_unchanged, exact, rounded)

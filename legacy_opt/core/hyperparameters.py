"""Computes the value of a hyperparameter in a step, and its tensor in a variable's dtype."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import tensorflow as tf

from legacy_opt.core import argument_checks
from legacy_opt.core.types import Hyperparameter


def current(name: str, value: Hyperparameter) -> Any:
    """Returns the value of a hyperparameter in this step; calls it if it is a callable.

    Raises:
      TypeError: the callable returned no number, tensor or variable.
      ValueError: it returned NaN, infinity, or a tensor that is no scalar.
    """
    if argument_checks.is_function(value):
        return argument_checks.hyperparameter(name, value())
    return value


def alias_of(name: str) -> Any:
    """Returns an attribute of a `RuleOptimizer`: a hyperparameter under another name."""

    def read(self) -> Hyperparameter:
        return getattr(self, "_" + name)

    def write(self, value: Hyperparameter) -> None:
        if "_hyperparameter_names" in vars(self):  # otherwise the constructor will set it
            setattr(self, "_" + name, argument_checks.hyperparameter(name, value))

    return property(read, write)


def tensor_of(name):
    """Returns an attribute of a `RuleOptimizer`: a hyperparameter's tensor, which `_prepare` made.

    The original classes keep these tensors in attributes that their subclasses and users' summaries
    read, after a step as well. Before the first step they are None.
    """

    def read(self):
        return self._rule_step.tensors.get(name)

    def write(self, value):
        self._rule_step = self._rule_step.with_tensor(name, value)

    return property(read, write)


def takes_step(value):
    """Whether `value` is a function that must be called with one argument, the step."""
    if not argument_checks.is_function(value):
        return False
    try:
        signature = inspect.signature(value)
        signature.bind(None)
    except (TypeError, ValueError):
        return False
    try:
        signature.bind()
    except TypeError:
        return True
    return False


def wide_dtype(dtype):
    """Returns the dtype of arithmetic that must be at least as exact as float32."""
    return tf.float32 if dtype.base_dtype in (tf.float16, tf.bfloat16) else dtype.base_dtype


def unrounded(tensor, value, dtype):
    """Returns a hyperparameter in `dtype`; a Python number is not rounded to float32 first.

    Args:
      tensor: its tensor in this step; a bridge may have set another value than `value`.
      value: the argument of the constructor.
      dtype: the dtype to return.
    """
    return _exactly(lambda number: number, tensor, value, dtype)


def complement(tensor, value, dtype):
    """Returns 1 minus a hyperparameter in `dtype`; Python computes it for a Python number.

    Args:
      tensor: see `unrounded`, as for the others.
      value: the same.
      dtype: the same.
    """
    return _exactly(lambda number: 1 - number, tensor, value, dtype)


def _exactly(function, tensor, value, dtype):
    """Returns a function of a hyperparameter in `dtype`; Python computes it for a Python number.

    There is no float64 tensor in between, which not all devices have.
    """
    if argument_checks.is_tensor_like(value) or callable(value):
        return function(tf.cast(value if getattr(value, "dtype", None) == dtype else tensor, dtype))
    exact, cast = tf.constant(function(value), dtype), function(tf.cast(tensor, dtype))
    unchanged = tf.equal(tensor, tf.cast(np.float32(value), tensor.dtype))
    return tf.compat.v2.where(unchanged, exact, cast)

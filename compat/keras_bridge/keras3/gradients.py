"""Converts gradients for Keras 3: to types that can be divided, and to the variable's dtype."""

from __future__ import annotations

from typing import Any, Optional

import tensorflow as tf

from legacy_opt.core.gradient_values import values_of, with_values
from legacy_opt.core.types import Gradient, KerasVariable, TensorLike


class Rows(tf.IndexedSlices):
    """A sparse gradient that supports division, because Keras divides gradients by a loss scale."""

    @classmethod
    def of(cls, slices: tf.IndexedSlices) -> Rows:
        """Returns the same gradient as an instance of this class."""
        return cls(slices.values, slices.indices, slices.dense_shape)

    def __truediv__(self, divisor: TensorLike) -> Gradient:
        return with_values(self, self.values / tf.cast(divisor, self.values.dtype))


def as_gradient(grad: Any) -> Optional[Gradient]:
    """Converts a gradient to a type that Keras can compute with."""
    if isinstance(grad, tf.IndexedSlices):
        return Rows.of(grad)
    if grad is None or hasattr(grad, "dtype"):
        return grad
    return tf.convert_to_tensor(grad)


def of_dtype(grad: Optional[Gradient], variable: KerasVariable) -> Optional[Gradient]:
    """Casts a gradient to its variable's dtype, as Keras 3's own optimizers do."""
    if grad is None or grad.dtype == variable.dtype:
        return grad
    return with_values(grad, tf.cast(values_of(grad), variable.dtype))

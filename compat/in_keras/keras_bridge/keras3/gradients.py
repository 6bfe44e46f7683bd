"""Converts gradients for Keras 3: to types that can be divided, and to the variable's dtype."""

from __future__ import annotations

from typing import Any, Callable, List, Optional

import tensorflow as tf

from legacy_opt.core.duplicate_ids import with_summed_duplicates
from legacy_opt.core.gradient_values import values_of, with_values
from legacy_opt.core.types import Gradient, KerasOptimizer, KerasVariable, TensorLike

Gradients = List[Optional[Gradient]]


class DivisibleRows(tf.IndexedSlices):
    """A sparse gradient that supports division, because Keras divides gradients by a loss scale."""

    def __truediv__(self, divisor: TensorLike) -> Gradient:
        return with_values(self, self.values / tf.cast(divisor, self.values.dtype))


def as_gradient(grad: Any) -> Optional[Gradient]:
    """Converts a gradient to a type that Keras can compute with."""
    if isinstance(grad, tf.IndexedSlices):
        return DivisibleRows(grad.values, grad.indices, grad.dense_shape)
    if grad is None or hasattr(grad, "dtype"):
        return grad
    return tf.convert_to_tensor(grad)


def of_dtype(grad: Optional[Gradient], variable: KerasVariable) -> Optional[Gradient]:
    """Casts a gradient to its variable's dtype, as Keras 3's own optimizers do."""
    if grad is None or grad.dtype == variable.dtype:
        return grad
    return with_values(grad, tf.cast(values_of(grad), variable.dtype))


def clipped(
    optimizer: KerasOptimizer, grads: Gradients, clip: Callable[[List[Any]], List[Any]]
) -> Gradients:
    """Clips gradients with Keras' own method `clip`, which accepts no sparse gradients."""
    if not (optimizer.clipnorm or optimizer.clipvalue or optimizer.global_clipnorm):
        return grads
    # Keras would clip each occurrence of an id separately, and would raise an error for some
    # sparse gradients.
    pairs = with_summed_duplicates([(grad, None) for grad in grads])
    values = clip([values_of(grad) for grad, _ in pairs])
    return [with_values(grad, each) for (grad, _), each in zip(pairs, values)]

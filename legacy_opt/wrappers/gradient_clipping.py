"""Optimizers that clip gradients before another optimizer applies them."""

from __future__ import annotations

import functools
import math
import numbers
from typing import List, Optional

import tensorflow as tf

from legacy_opt.core import argument_checks, gradient_pairs, gradient_values
from legacy_opt.core.duplicate_ids import with_summed_duplicates
from legacy_opt.core.hyperparameters import current_value
from legacy_opt.core.types import (
    GradAndVar,
    GradsAndVars,
    Hyperparameter,
    Operation,
    Tensor,
    V1Optimizer,
    Variable,
)
from legacy_opt.wrappers.base import OptimizerWrapper, name_of


class GradientClipping(OptimizerWrapper):
    """Base class of the optimizers that clip gradients.

    By default, the name is the class name (without "Optimizer"), followed by that of `optimizer`.
    With `sum_duplicates`, the rows of duplicate ids are summed before clipping.
    """

    def __init__(
        self, optimizer: V1Optimizer, name: Optional[str], sum_duplicates: bool = True
    ) -> None:
        if name is None:
            name = f"{type(self).__name__.replace('Optimizer', '')}{name_of(optimizer)}"
        super().__init__([optimizer], name=name)
        self._sum_duplicates = argument_checks.boolean("sum_duplicates", sum_duplicates)

    def clip(self, grads_and_vars: List[GradAndVar]) -> List[GradAndVar]:
        """Returns the pairs with clipped gradients. Called only if there is a gradient."""
        raise NotImplementedError

    def apply_gradients(
        self,
        grads_and_vars: GradsAndVars,
        global_step: Optional[Variable] = None,
        name: Optional[str] = None,
    ) -> Optional[Operation]:
        """Clips the gradients, then applies them with the wrapped optimizer."""
        with gradient_pairs.protected(type(self).__name__, grads_and_vars) as pairs:
            if self._sum_duplicates:
                pairs = with_summed_duplicates(pairs)
            if any(grad is not None for grad, _ in pairs):
                pairs = self.clip(pairs)
            return super().apply_gradients(pairs, global_step=global_step, name=name)


class ClipByValueOptimizer(GradientClipping):
    """Clips each element of the gradients with `tf.clip_by_value` before they are applied.

    Rows of a sparse gradient that have the same id are summed first. Zeros in a sparse gradient are
    not clipped, so they stay zero even if `clip_value_min` is above zero.

    Example::

        with tf.Graph().as_default(), tf.compat.v1.Session() as session:
            w = tf.compat.v1.get_variable("w", initializer=[1.0, 1.0])
            descent = tf.compat.v1.train.GradientDescentOptimizer(1.0)
            optimizer = legacy_opt.ClipByValueOptimizer(descent, -0.5, 0.5)
            train_op = optimizer.apply_gradients([(tf.constant([3.0, -0.25]), w)])
            session.run(tf.compat.v1.global_variables_initializer())
            session.run(train_op)
            print(session.run(w))  # [0.5  1.25]

    Args:
      optimizer: the v1 optimizer that applies the clipped gradients.
      clip_value_min: the smallest value, a number, scalar tensor or variable, or a callable that
        returns one of these.
      clip_value_max: the largest value, of the same types.
      name: the name of the optimizer; None means "ClipByValue" followed by the name of `optimizer`.

    Raises:
      TypeError: `optimizer` is not a v1 optimizer, or a limit is not a number, tensor, variable or
        callable without arguments.
      ValueError: a limit is NaN or infinite, or `clip_value_min` is not below `clip_value_max`.
    """

    _work_without_kernel = "clips values"

    def __init__(
        self,
        optimizer: V1Optimizer,
        clip_value_min: Hyperparameter,
        clip_value_max: Hyperparameter,
        name: Optional[str] = None,
    ) -> None:
        super().__init__(optimizer, name)
        # A number too large for the gradients' dtype has no effect. Infinity itself is refused.
        check = functools.partial(argument_checks.hyperparameter, largest=math.inf)
        low = check("clip_value_min", clip_value_min)
        high = check("clip_value_max", clip_value_max)
        self._clip_value_min, self._clip_value_max = low, high
        are_numbers = isinstance(low, numbers.Real) and isinstance(high, numbers.Real)
        if are_numbers and low >= high:
            raise ValueError(
                f"clip_value_min must be less than clip_value_max, got {low!r} and {high!r}."
            )

    def clip(self, grads_and_vars: List[GradAndVar]) -> List[GradAndVar]:
        low = current_value("clip_value_min", self._clip_value_min)
        high = current_value("clip_value_max", self._clip_value_max)

        def clipped(values: Tensor) -> Tensor:
            low_in_dtype = gradient_values.in_dtype(low, values.dtype)
            high_in_dtype = gradient_values.in_dtype(high, values.dtype)
            return tf.clip_by_value(values, low_in_dtype, high_in_dtype)

        # Rows with the same id have been summed: the first is the sum, the others are zeros.
        def with_clipped_nonzeros(rows: Tensor) -> Tensor:
            return tf.compat.v1.where(tf.equal(rows, 0), rows, clipped(rows))

        pairs = []
        for grad, variable in grads_and_vars:
            is_sparse = isinstance(grad, tf.IndexedSlices)
            clip = with_clipped_nonzeros if is_sparse else clipped
            pairs.append((gradient_values.map_values(clip, grad), variable))
        return pairs


class ClipByNormOptimizer(GradientClipping):
    """Clips each gradient by its own norm with `tf.clip_by_norm` before it is applied.

    Rows of a sparse gradient that have the same id are summed first. The function
    `clip_gradients_by_norm`, whose name comes from tf.contrib, does not use this class. It clips by
    the global norm, see `ClipByGlobalNormOptimizer`.

    Example::

        with tf.Graph().as_default(), tf.compat.v1.Session() as session:
            w = tf.compat.v1.get_variable("w", initializer=[1.0, 1.0])
            descent = tf.compat.v1.train.GradientDescentOptimizer(1.0)
            optimizer = legacy_opt.ClipByNormOptimizer(descent, clip_norm=0.5)
            train_op = optimizer.apply_gradients([(tf.constant([3.0, 4.0]), w)])
            session.run(tf.compat.v1.global_variables_initializer())
            session.run(train_op)
            print(session.run(w).round(3))  # [0.7 0.6]

    Args:
      optimizer: the v1 optimizer that applies the clipped gradients.
      clip_norm: the largest L2 norm of a variable's gradient, above zero: a number, scalar tensor
        or variable, or a callable that returns one of these.
      name: the name of the optimizer; None means "ClipByNorm" followed by the name of `optimizer`.

    Raises:
      TypeError: `optimizer` is not a v1 optimizer, or `clip_norm` is not a number, tensor, variable
        or callable without arguments.
      ValueError: `clip_norm` is NaN, infinite or not above zero.
    """

    _work_without_kernel = "computes the norm of each gradient"

    def __init__(
        self, optimizer: V1Optimizer, clip_norm: Hyperparameter, name: Optional[str] = None
    ) -> None:
        super().__init__(optimizer, name)
        self._clip_norm = argument_checks.positive_hyperparameter("clip_norm", clip_norm)

    def clip(self, grads_and_vars: List[GradAndVar]) -> List[GradAndVar]:
        limit = current_value("clip_norm", self._clip_norm)
        return gradient_values.clip_by_norm(grads_and_vars, limit)


class ClipByGlobalNormOptimizer(GradientClipping):
    """Clips gradients by their global norm with `tf.clip_by_global_norm` before they are applied.

    Gradients may have different dtypes. The norm is then computed in float32, or in float64 if one
    of the gradients is float64.

    Example::

        with tf.Graph().as_default(), tf.compat.v1.Session() as session:
            a, b = (tf.compat.v1.get_variable(name, initializer=[1.0]) for name in "ab")
            descent = tf.compat.v1.train.GradientDescentOptimizer(1.0)
            optimizer = legacy_opt.ClipByGlobalNormOptimizer(descent, clip_norm=0.5)
            train_op = optimizer.apply_gradients([(tf.constant([3.0]), a), (tf.constant([4.0]), b)])
            session.run(tf.compat.v1.global_variables_initializer())
            session.run(train_op)
            print(session.run(tf.concat([a, b], 0)).round(3))  # [0.7 0.6]

    Args:
      optimizer: the v1 optimizer that applies the clipped gradients.
      clip_norm: the largest L2 norm of all gradients taken together, above zero: a number, scalar
        tensor or variable, or a callable that returns one of these.
      name: the name of the optimizer; None means "ClipByGlobalNorm" followed by the name of
        `optimizer`.
      sum_duplicates: whether to first sum the rows of a sparse gradient that have the same id, so
        that the norm equals the norm of the dense gradient. With False, each of these rows
        contributes separately to the norm, like in `tf.clip_by_global_norm`.

    Raises:
      TypeError: `optimizer` is not a v1 optimizer, or `clip_norm` is not a number, tensor, variable
        or callable without arguments.
      ValueError: `clip_norm` is NaN, infinite or not above zero.
    """

    def __init__(
        self,
        optimizer: V1Optimizer,
        clip_norm: Hyperparameter,
        name: Optional[str] = None,
        sum_duplicates: bool = True,
    ) -> None:
        super().__init__(optimizer, name, sum_duplicates)
        self._clip_norm = argument_checks.positive_hyperparameter("clip_norm", clip_norm)

    def clip(self, grads_and_vars: List[GradAndVar]) -> List[GradAndVar]:
        limit = current_value("clip_norm", self._clip_norm)
        return gradient_values.clip_by_global_norm(grads_and_vars, limit, optimizer=self)


def clip_gradients_by_norm(
    optimizer: V1Optimizer, clip_norm: Hyperparameter
) -> ClipByGlobalNormOptimizer:
    """Returns an optimizer that clips gradients by their global norm before it applies them.

    Without native kernels, the results are bit for bit the same as with
    `tf.contrib.estimator.clip_gradients_by_norm`. Despite the function's name, gradients are
    clipped by their global norm, with `tf.clip_by_global_norm`. Rows of a sparse gradient that have
    the same id contribute separately to this norm. The name of the returned optimizer is
    "ClipByNorm", followed by the name of `optimizer`. The optimizer adds no slots.

    Args:
      optimizer: the v1 optimizer that applies the clipped gradients.
      clip_norm: the largest norm; see `ClipByGlobalNormOptimizer`.

    Returns:
      A `ClipByGlobalNormOptimizer` that does not sum duplicates.

    Raises:
      TypeError: see `ClipByGlobalNormOptimizer`.
      ValueError: see `ClipByGlobalNormOptimizer`.
    """
    name = "ClipByNorm" + name_of(optimizer)
    return ClipByGlobalNormOptimizer(optimizer, clip_norm, name, sum_duplicates=False)

"""Matrices for Shampoo: inner products of a tensor's slices, and powers of symmetric matrices.

Powers are computed by singular value decomposition, or by iterated matrix products, which are
faster on accelerators. Sizes are Python integers; exponents are numbers or scalar tensors.

In graphs, TensorFlow's optimizer Grappler combines `tf.transpose` and a following `tf.matmul` into
one operation, which may round differently. Therefore the transposition is an argument of
`tf.matmul` wherever possible.
"""

from __future__ import annotations

import numbers
from typing import Any, Dict, Optional, Sequence

import tensorflow as tf

from legacy_opt.core import norms
from legacy_opt.core.types import Tensor, TensorLike


def products_of_slices(tensor: Tensor, axis: int, size: int) -> Tensor:
    """Returns the inner products of all pairs of slices along an axis, as ``[size, size]``."""
    last = tensor.shape.rank - 1
    if axis == last and axis > 0:
        columns = tensor if last == 1 else tf.reshape(tensor, [-1, size])
        return tf.matmul(columns, columns, transpose_a=True)
    if axis > 0:
        other_axes = [each for each in range(last + 1) if each != axis]
        tensor = tf.transpose(tensor, [axis] + other_axes)
    rows = tensor if last == 1 else tf.reshape(tensor, [size, -1])
    return tf.matmul(rows, rows, transpose_b=True)


def contract_first_axis(tensor: Tensor, matrix: Tensor, size: int) -> Tensor:
    """Returns ``tensor[a, b, …]`` times ``matrix[a, c]``, summed over a, as ``[b, …, c]``."""
    if tensor.shape.rank == 2:
        return tf.matmul(tensor, matrix, transpose_a=True)
    static_shape = tensor.shape[1:].concatenate([size])
    shape = tf.concat([tf.shape(tensor)[1:], [size]], axis=0)
    contracted = tf.matmul(tf.reshape(tensor, [size, -1]), matrix, transpose_a=True)
    contracted = tf.reshape(contracted, shape)
    contracted.set_shape(static_shape)
    return contracted


ITERATIONS = 100
ACCURACY = 1e-6

# In graphs, Grappler replaces tf.pow with these operations if the exponent is one of the keys.
_SPECIAL_POWERS: Dict[Any, Any] = {
    -1.0: tf.math.reciprocal,
    -0.5: tf.math.rsqrt,
    0.5: tf.sqrt,
    1.0: tf.identity,
    2.0: tf.square,
}


def power(value: TensorLike, exponent: TensorLike) -> Tensor:
    """Raises each element to a power, with the same bits in graphs and in eager execution."""
    is_number = isinstance(exponent, numbers.Real)  # a tensor cannot be a key
    special = _SPECIAL_POWERS.get(exponent) if is_number else None
    return tf.pow(value, exponent) if special is None else special(value)


def power_by_svd(matrix: Tensor, size: int, exponent: TensorLike, epsilon: TensorLike) -> Tensor:
    """Returns ``(matrix + epsilon * I) ** exponent`` by singular value decomposition.

    The matrix is symmetric. Singular values below epsilon are set to epsilon.
    """
    if size == 1:
        return power(matrix + epsilon, exponent)
    values, left, right = tf.linalg.svd(
        matrix + epsilon * tf.eye(size, dtype=matrix.dtype), full_matrices=True
    )
    values = power(tf.maximum(values, epsilon), exponent)
    return tf.matmul(right * values, left, transpose_b=True)


def power_by_iteration(matrix: Tensor, size: int, exponent: float, epsilon: TensorLike) -> Tensor:
    """Returns ``(matrix + epsilon * I) ** exponent`` by iterations, from the square root.

    The exponent is a number, and ``2 * exponent`` is -1/p for a positive integer p.
    """
    return _inverse_root(_square_root(matrix, size, epsilon), size, 2 * exponent)


def whole_root(exponent: float) -> Optional[int]:
    """Returns the positive integer p for which ``2 * exponent`` is -1/p, or None."""
    if exponent >= 0:
        return None
    root = -1 / (2 * exponent)
    is_whole = abs(root - round(root)) < 1e-9
    return int(round(root)) if is_whole and root > 0.5 else None


def _square_root(matrix: Tensor, size: int, epsilon: TensorLike) -> Tensor:
    """Returns ``(matrix + epsilon * I) ** 0.5``.

    Source: Higham, "Stable iterations for the matrix square root" (1997), equation 2.6b.
    """
    identity = tf.eye(size, dtype=matrix.dtype)
    matrix += epsilon * identity
    norm = tf.sqrt(tf.reduce_sum(matrix * matrix))

    def continues(
        i: Tensor, y: Tensor, last_y: Tensor, z: Tensor, error: Tensor, last_error: Tensor
    ) -> Tensor:
        return tf.logical_and(i < ITERATIONS, error < last_error)

    def improve(
        i: Tensor, y: Tensor, last_y: Tensor, z: Tensor, error: Tensor, last_error: Tensor
    ) -> Sequence[Tensor]:
        factor = 0.5 * (3.0 * identity - tf.matmul(z, y))
        next_y = tf.matmul(y, factor)
        root = next_y * tf.sqrt(norm)
        residual = matrix - tf.matmul(root, root)
        next_error = tf.sqrt(tf.reduce_sum(residual * residual)) / norm
        return i + 1, next_y, y, tf.matmul(factor, z), next_error, error

    # The loop ends when the error stops decreasing. Then the iterate before the last one has the
    # smallest error, and is the result.
    y = matrix / norm
    start = [tf.constant(0), y, y, identity, norm, norm + 1.0]
    _, _, before_last, *_ = tf.while_loop(continues, improve, start)
    return before_last * tf.sqrt(norm)


def _inverse_root(matrix: Tensor, size: int, exponent: float) -> Tensor:
    """Returns ``matrix ** exponent`` for an exponent of -1/p.

    Source: Guo and Higham, "A Schur-Newton method for the matrix p-th root" (2006), equation 3.2.
    """
    if size == 1:
        return power(matrix, exponent)
    identity = tf.eye(size, dtype=matrix.dtype)
    scale = (1 - 1 / exponent) / (2 * norms.euclidean(matrix))

    def continues(i: Tensor, m: Tensor, _: Tensor) -> Tensor:
        return tf.logical_and(i < ITERATIONS, tf.reduce_max(tf.abs(m - identity)) > ACCURACY)

    def improve(i: Tensor, m: Tensor, x: Tensor) -> Sequence[Tensor]:
        factor = (1 - exponent) * identity + exponent * m
        next_m = tf.matmul(_whole_power(factor, -1.0 / exponent), m)
        return i + 1, next_m, tf.matmul(x, factor)

    start = [tf.constant(0), matrix * scale, identity * power(scale, -exponent)]
    _, _, root = tf.while_loop(continues, improve, start)
    return root


def _whole_power(matrix: Tensor, exponent: float) -> Any:
    """Raises a matrix to a positive integer power by repeated squaring."""
    result = None
    exponent = int(round(exponent))
    while exponent > 0:
        if exponent % 2:
            result = matrix if result is None else tf.matmul(matrix, result)
        exponent //= 2
        if exponent:
            matrix = tf.matmul(matrix, matrix)
    return result

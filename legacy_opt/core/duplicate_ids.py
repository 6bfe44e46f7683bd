"""Sums the rows of duplicate ids (row indices) in sparse gradients."""

from __future__ import annotations

from typing import Any, Iterable, List, Optional, Tuple

import tensorflow as tf

from legacy_opt.core.types import Gradient


def summed(slices: tf.IndexedSlices) -> tf.IndexedSlices:
    """Returns a sparse gradient in which each id occurs once, with the sum of its rows."""
    ids, positions = tf.unique(slices.indices)
    values = tf.math.unsorted_segment_sum(slices.values, positions, tf.shape(ids)[0])
    return tf.IndexedSlices(values, ids, slices.dense_shape)


def with_summed_duplicates(
    grads_and_vars: Iterable[Tuple[Optional[Gradient], Any]],
) -> List[Tuple[Any, Any]]:
    """Moves the sum of an id's rows to the id's first row, and sets the id's other rows to zero.

    Optimizers that clip gradients need this function. If the rows of an id were clipped one by one,
    the sum of the rows, which is the gradient of the variable's row, could exceed the limit.
    Duplicate ids are not removed, because the optimizer calls tf.unique later. XLA pads the result
    of tf.unique with zeros, and a second call would treat the padding as rows of id 0.
    """
    return [(_sum_duplicates(grad), variable) for grad, variable in grads_and_vars]


def _sum_duplicates(slices: Optional[Gradient]) -> Optional[Gradient]:
    if not isinstance(slices, tf.IndexedSlices):
        return slices  # a dense gradient, or None
    _, positions = tf.unique(slices.indices)
    count = tf.shape(positions)[0]
    row_numbers = tf.range(count)
    sums = tf.math.unsorted_segment_sum(slices.values, positions, count)
    first_rows = tf.math.unsorted_segment_min(row_numbers, positions, count)
    is_first = tf.equal(tf.gather(first_rows, positions), row_numbers)
    zeros = tf.zeros_like(slices.values)
    values = tf.compat.v1.where(is_first, tf.gather(sums, positions), zeros)
    return tf.IndexedSlices(values, slices.indices, slices.dense_shape)

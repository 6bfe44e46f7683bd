"""Norms, computed alike on each TensorFlow."""

import tensorflow as tf

from legacy_opt.core.types import Tensor


def euclidean(values: Tensor) -> Tensor:
    """Returns the Euclidean norm, a scalar, as `tf.norm` does up to TensorFlow 2.21.

    From 2.22 on, `tf.norm` of zeros is not 0 but 1e-19, the root of the smallest normal number.
    """
    return tf.squeeze(tf.sqrt(tf.reduce_sum(values * values, keepdims=True)))

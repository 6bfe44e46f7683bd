"""Metrics of `tf.contrib.metrics` that `tf.compat.v1.metrics` lacks.

A streaming metric is a pair of tensors: the value so far, and an update that counts a batch.
"""

from __future__ import annotations

from typing import Any, Optional, Tuple

import tensorflow as tf

__all__ = [
    "accuracy",
    "streaming_false_negative_rate",
    "streaming_false_positive_rate",
    "streaming_recall_at_k",
]

v1 = tf.compat.v1
Metric = Tuple[tf.Tensor, tf.Tensor]


def accuracy(
    predictions: tf.Tensor,
    labels: tf.Tensor,
    weights: Optional[Any] = None,
    name: Optional[str] = None,
) -> tf.Tensor:
    """Returns the share of correct predictions in one batch, a float32 tensor.

    Raises:
      ValueError: predictions and labels are not both integers, booleans or strings.
    """
    dtype = labels.dtype
    if dtype != predictions.dtype or not (dtype.is_integer or dtype in (tf.bool, tf.string)):
        raise ValueError(
            "labels and predictions must have the same bool, integer, or string dtype, "
            f"got {dtype!r} and {predictions.dtype!r}"
        )
    with v1.name_scope(name, "accuracy"):
        correct = tf.cast(tf.equal(predictions, labels), tf.float32)
        if weights is None:
            return tf.reduce_mean(correct)
        return tf.reduce_sum(correct * weights) / tf.reduce_sum(weights * tf.ones_like(correct))


def _share(counted: str, others: str, default_name: str, description: str) -> Any:
    """Returns the metric counted / (counted + others), from two functions of `v1.metrics`."""

    def metric(
        predictions: Any,
        labels: Any,
        weights: Optional[Any] = None,
        metrics_collections: Optional[Any] = None,
        updates_collections: Optional[Any] = None,
        name: Optional[str] = None,
    ) -> Metric:
        with v1.variable_scope(name, default_name, (predictions, labels, weights)):
            booleans = tf.cast(labels, tf.bool), tf.cast(predictions, tf.bool)
            counts = getattr(v1.metrics, counted)(*booleans, weights)
            other_counts = getattr(v1.metrics, others)(*booleans, weights)
            value, update = [
                v1.where(count + other > 0, count / (count + other), 0.0, title)
                for count, other, title in zip(counts, other_counts, ("value", "update_op"))
            ]
        v1.add_to_collections(metrics_collections or (), value)
        v1.add_to_collections(updates_collections or (), update)
        return value, update

    metric.__name__ = f"streaming_{default_name}"
    metric.__doc__ = description
    return metric


streaming_false_positive_rate = _share(
    "false_positives",
    "true_negatives",
    default_name="false_positive_rate",
    description="Returns the share of false labels that are predicted to be true. "
    "Labels and predictions are cast to booleans.",
)
streaming_false_negative_rate = _share(
    "false_negatives",
    "true_positives",
    default_name="false_negative_rate",
    description="Returns the share of true labels that are predicted to be false. "
    "Labels and predictions are cast to booleans.",
)


def streaming_recall_at_k(
    predictions: Any,
    labels: Any,
    k: int,
    weights: Optional[Any] = None,
    metrics_collections: Optional[Any] = None,
    updates_collections: Optional[Any] = None,
    name: Optional[str] = None,
) -> Metric:
    """Returns the share of labels that are among the k highest predictions.

    Predictions are floats of shape [batch, classes], labels integers of shape [batch].
    """
    found = tf.cast(v1.nn.in_top_k(predictions, labels, k), tf.float32)
    return v1.metrics.mean(
        found, weights, metrics_collections, updates_collections, name or f"recall_at_{k}"
    )

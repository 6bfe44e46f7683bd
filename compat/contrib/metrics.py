"""Metrics of `tf.contrib.metrics` that `tf.compat.v1.metrics` lacks.

A streaming metric is a pair of tensors: the value so far, and an update that counts a batch.
"""

from __future__ import annotations

from typing import Any, Dict, List, Optional, Tuple

import tensorflow as tf

__all__ = [
    "accuracy",
    "aggregate_metric_map",
    "aggregate_metrics",
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
    """Returns the share of labels in one batch that are predicted, a float32 tensor.

    Args:
      predictions: integers, booleans or strings.
      labels: a tensor with the dtype and the shape of `predictions`.
      weights: the weights of the labels.
      name: the name scope of the operations.

    Raises:
      ValueError: the labels are floats, or dtypes differ.
    """
    if not (labels.dtype.is_integer or labels.dtype in (tf.bool, tf.string)):
        raise ValueError(f"Labels should have bool, integer, or string dtype, not {labels.dtype!r}")
    if labels.dtype != predictions.dtype:
        raise ValueError(
            "Dtypes of predictions and labels should match. "
            f"Given: predictions ({predictions.dtype!r}) and labels ({labels.dtype!r})"
        )
    with v1.name_scope(name, "accuracy"):
        correct = tf.cast(tf.equal(predictions, labels), tf.float32)
        if weights is None:
            return tf.reduce_mean(correct)
        return tf.reduce_sum(correct * weights) / tf.reduce_sum(weights * tf.ones_like(correct))


def streaming_false_positive_rate(
    predictions: Any,
    labels: Any,
    weights: Optional[Any] = None,
    metrics_collections: Optional[Any] = None,
    updates_collections: Optional[Any] = None,
    name: Optional[str] = None,
) -> Metric:
    """Returns the share of false labels that are predicted to be true.

    Args:
      predictions: a tensor that is cast to booleans.
      labels: a tensor that is cast to booleans.
      weights: the weights of the labels.
      metrics_collections: the graph collections to which the value is added.
      updates_collections: the graph collections to which the update is added.
      name: the variable scope.
    """
    with v1.variable_scope(name, "false_positive_rate", (predictions, labels, weights)):
        share = _share("false_positives", "true_negatives", predictions, labels, weights)
    return _collected(share, metrics_collections, updates_collections)


def streaming_false_negative_rate(
    predictions: Any,
    labels: Any,
    weights: Optional[Any] = None,
    metrics_collections: Optional[Any] = None,
    updates_collections: Optional[Any] = None,
    name: Optional[str] = None,
) -> Metric:
    """Returns the share of true labels that are predicted to be false.

    The arguments are those of `streaming_false_positive_rate`.
    """
    with v1.variable_scope(name, "false_negative_rate", (predictions, labels, weights)):
        share = _share("false_negatives", "true_positives", predictions, labels, weights)
    return _collected(share, metrics_collections, updates_collections)


def _share(counted, others, predictions, labels, weights):
    """Returns the metric counted / (counted + others), where both are names of metrics."""
    counts, rests = [
        getattr(v1.metrics, each)(tf.cast(labels, tf.bool), tf.cast(predictions, tf.bool), weights)
        for each in (counted, others)
    ]
    return [
        v1.where(one + rest > 0, one / (one + rest), 0.0, name)
        for one, rest, name in zip(counts, rests, ("value", "update_op"))
    ]


def _collected(metric, *collections):
    for tensor, names in zip(metric, collections):
        v1.add_to_collections(names or (), tensor)
    return tuple(metric)


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

    Args:
      predictions: floats of shape [batch, classes].
      labels: integers of shape [batch].
      k: how many predictions are looked at.
      weights: the weights of the labels.
      metrics_collections: the graph collections to which the value is added.
      updates_collections: the graph collections to which the update is added.
      name: the variable scope.
    """
    found = tf.cast(v1.nn.in_top_k(predictions, labels, k), tf.float32)
    return v1.metrics.mean(
        found, weights, metrics_collections, updates_collections, name or f"recall_at_{k}"
    )


def aggregate_metrics(*value_update_tuples: Metric) -> Tuple[List[tf.Tensor], List[tf.Tensor]]:
    """Returns the list of values and the list of updates of metrics.

    Raises:
      ValueError: there are no metrics.
    """
    if not value_update_tuples:
        raise ValueError("Expected at least one value_tensor/update_op pair")
    return [value for value, _ in value_update_tuples], [each for _, each in value_update_tuples]


def aggregate_metric_map(
    names_to_tuples: Dict[str, Metric],
) -> Tuple[Dict[str, tf.Tensor], Dict[str, tf.Tensor]]:
    """Returns the dict of values and the dict of updates of a dict of metrics."""
    values = {name: value for name, (value, _) in names_to_tuples.items()}
    return values, {name: update for name, (_, update) in names_to_tuples.items()}

"""Decoders, attention and the loss of `tf.contrib.seq2seq`.

From TensorFlow 2.16 on, attention needs the package tf-keras, as TensorFlow's cells do.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Callable, Optional

import tensorflow as tf

from .seq2seq_attention import (
    AttentionMechanism,
    AttentionWrapperState,
    BahdanauAttention,
    LuongAttention,
    hardmax,
    tile_batch,
)
from .seq2seq_decoders import BasicDecoder, BasicDecoderOutput, Decoder, dynamic_decode
from .seq2seq_helpers import (
    GreedyEmbeddingHelper,
    Helper,
    SampleEmbeddingHelper,
    TrainingHelper,
)

if TYPE_CHECKING:
    from .seq2seq_wrapper import AttentionWrapper

__all__ = [
    "AttentionMechanism",
    "AttentionWrapper",
    "AttentionWrapperState",
    "BahdanauAttention",
    "BasicDecoder",
    "BasicDecoderOutput",
    "Decoder",
    "GreedyEmbeddingHelper",
    "Helper",
    "LuongAttention",
    "SampleEmbeddingHelper",
    "TrainingHelper",
    "dynamic_decode",
    "hardmax",
    "sequence_loss",
    "tile_batch",
]


def __getattr__(name: str) -> Any:
    if name == "AttentionWrapper":  # imported on first use, because its base may be missing
        from .seq2seq_wrapper import AttentionWrapper

        return AttentionWrapper
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def sequence_loss(
    logits: tf.Tensor,
    targets: tf.Tensor,
    weights: tf.Tensor,
    average_across_timesteps: bool = True,
    average_across_batch: bool = True,
    sum_over_timesteps: bool = False,
    sum_over_batch: bool = False,
    softmax_loss_function: Optional[Callable[..., Any]] = None,
    name: Optional[str] = None,
) -> tf.Tensor:
    """Returns the weighted cross-entropy of a batch of sequences.

    Args:
      logits: floats of shape [batch, time, classes].
      targets: the classes, integers of shape [batch, time].
      weights: floats of shape [batch, time].
      average_across_timesteps: whether to add up the time steps and divide by their weights.
      average_across_batch: whether to add up the examples and divide by their weights.
      sum_over_timesteps: whether to add up the time steps and divide by the number of weights that
        are not zero.
      sum_over_batch: the same for the examples.
      softmax_loss_function: a function that is called with `labels` [batch * time] and `logits`
        [batch * time, classes], instead of the sparse softmax cross-entropy.
      name: the name scope of the operations.

    Returns:
      A float tensor without the axes that were added up. If one axis is averaged and the other is
      summed, only the average is taken.

    Raises:
      ValueError: a tensor has another rank, or an axis is to be both averaged and summed.
    """
    if len(logits.shape) != 3:
        raise ValueError("Logits must be a [batch_size x sequence_length x logits] tensor")
    for title, tensor in ("Targets", targets), ("Weights", weights):
        if len(tensor.shape) != 2:
            raise ValueError(f"{title} must be a [batch_size x sequence_length] tensor")
    for axis, average, total in (
        ("timesteps", average_across_timesteps, sum_over_timesteps),
        ("batch", average_across_batch, sum_over_batch),
    ):
        if average and total:
            names = f"average_across_{axis} and sum_over_{axis}"
            raise ValueError(f"{names} cannot be set to True at same time.")
    with tf.compat.v1.name_scope(name, "sequence_loss", [logits, targets, weights]):
        entropies = (softmax_loss_function or _cross_entropy)(
            labels=tf.reshape(targets, [-1]), logits=tf.reshape(logits, [-1, tf.shape(logits)[2]])
        )
        losses = tf.reshape(entropies * tf.reshape(weights, [-1]), tf.shape(logits)[:2])
        if average_across_timesteps and average_across_batch:
            return _mean(losses, tf.reduce_sum(weights))
        if sum_over_timesteps and sum_over_batch:
            return _mean(losses, tf.math.count_nonzero(weights))
        if average_across_timesteps or average_across_batch:
            axis = 0 if average_across_batch else 1
            return _mean(losses, tf.reduce_sum(weights, axis), axis)
        if sum_over_timesteps or sum_over_batch:
            axis = 0 if sum_over_batch else 1
            return _mean(losses, tf.math.count_nonzero(weights, axis), axis)
        return losses


def _cross_entropy(labels, logits):
    return tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits)


def _mean(losses, divisors, axis=None):
    return tf.math.divide_no_nan(tf.reduce_sum(losses, axis), tf.cast(divisors, losses.dtype))

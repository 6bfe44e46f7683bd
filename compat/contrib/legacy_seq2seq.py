"""Models, losses and buckets of `tf.contrib.legacy_seq2seq`, for lists of time steps."""

from __future__ import annotations

from typing import Any, Callable, List, Optional, Tuple

import tensorflow as tf

from .legacy_seq2seq_models import (
    attention_decoder,
    embedding_attention_decoder,
    embedding_attention_seq2seq,
    embedding_rnn_decoder,
    embedding_rnn_seq2seq,
    rnn_decoder,
)

__all__ = [
    "attention_decoder",
    "embedding_attention_decoder",
    "embedding_attention_seq2seq",
    "embedding_rnn_decoder",
    "embedding_rnn_seq2seq",
    "model_with_buckets",
    "rnn_decoder",
    "sequence_loss",
    "sequence_loss_by_example",
]

v1 = tf.compat.v1
Tensors = List[tf.Tensor]


def sequence_loss_by_example(
    logits: Tensors,
    targets: Tensors,
    weights: Tensors,
    average_across_timesteps: bool = True,
    softmax_loss_function: Optional[Callable[..., Any]] = None,
    name: Optional[str] = None,
) -> tf.Tensor:
    """Returns the weighted cross-entropy of each sequence.

    Lists have an element for each time step: logits of shape [batch, classes], targets (classes)
    and weights of shape [batch]. `average_across_timesteps` divides by the sum of the weights. The
    loss function is called with `labels` and `logits`; by default sparse softmax cross-entropy.
    """
    if not len(logits) == len(targets) == len(weights):
        raise ValueError(
            "Lengths of logits, weights, and targets must be the same "
            f"{len(logits)}, {len(weights)}, {len(targets)}."
        )
    loss_function = softmax_loss_function or _cross_entropy
    with v1.name_scope(name, "sequence_loss_by_example", [*logits, *targets, *weights]):
        losses = tf.add_n(
            [
                loss_function(labels=target, logits=logit) * weight
                for logit, target, weight in zip(logits, targets, weights)
            ]
        )
        return losses / (tf.add_n(weights) + 1e-12) if average_across_timesteps else losses


def sequence_loss(
    logits: Tensors,
    targets: Tensors,
    weights: Tensors,
    average_across_timesteps: bool = True,
    average_across_batch: bool = True,
    softmax_loss_function: Optional[Callable[..., Any]] = None,
    name: Optional[str] = None,
) -> tf.Tensor:
    """Returns the weighted cross-entropy of all sequences together, or of the mean sequence.

    The other arguments are those of `sequence_loss_by_example`.
    """
    with v1.name_scope(name, "sequence_loss", [*logits, *targets, *weights]):
        loss = tf.reduce_sum(
            sequence_loss_by_example(
                logits, targets, weights, average_across_timesteps, softmax_loss_function
            )
        )
        return loss / tf.cast(tf.shape(targets[0])[0], loss.dtype) if average_across_batch else loss


def model_with_buckets(
    encoder_inputs: Tensors,
    decoder_inputs: Tensors,
    targets: Tensors,
    weights: Tensors,
    buckets: List[Tuple[int, int]],
    seq2seq: Callable[[Tensors, Tensors], Tuple[Tensors, Any]],
    softmax_loss_function: Optional[Callable[..., Any]] = None,
    per_example_loss: bool = False,
    name: Optional[str] = None,
) -> Tuple[List[Tensors], Tensors]:
    """Returns the outputs and the loss of a model for each pair of lengths in `buckets`.

    The last pair is the longest. `seq2seq(encoder_inputs, decoder_inputs)` is the model.
    """
    first, last = buckets[-1]
    if len(encoder_inputs) < first or min(len(targets), len(weights)) < last:
        raise ValueError(f"A list is shorter than the last bucket {buckets[-1]}.")
    loss = sequence_loss_by_example if per_example_loss else sequence_loss
    outputs, losses = [], []
    with v1.name_scope(name, "model_with_buckets"):
        for number, (first, last) in enumerate(buckets):
            with v1.variable_scope(v1.get_variable_scope(), reuse=True if number else None):
                outputs.append(seq2seq(encoder_inputs[:first], decoder_inputs[:last])[0])
                arguments = outputs[-1], targets[:last], weights[:last]
                losses.append(loss(*arguments, softmax_loss_function=softmax_loss_function))
    return outputs, losses


def _cross_entropy(labels, logits):
    labels = tf.reshape(labels, [-1])  # scripts pass labels of shape [batch, 1]
    return tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits)

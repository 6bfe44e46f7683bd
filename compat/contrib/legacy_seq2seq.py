"""A decoder and losses of `tf.contrib.legacy_seq2seq`, which work with lists of time steps."""

from __future__ import annotations

from typing import Any, Callable, List, Optional, Tuple

import tensorflow as tf

__all__ = ["rnn_decoder", "sequence_loss", "sequence_loss_by_example"]

v1 = tf.compat.v1


def rnn_decoder(
    decoder_inputs: List[tf.Tensor],
    initial_state: Any,
    cell: Callable[..., Any],
    loop_function: Optional[Callable[[tf.Tensor, int], tf.Tensor]] = None,
    scope: Optional[Any] = None,
) -> Tuple[List[tf.Tensor], Any]:
    """Runs a cell over a list of inputs, or over its own outputs.

    Args:
      decoder_inputs: a list of tensors of shape [batch, input size].
      initial_state: the state before the first step.
      cell: an RNNCell.
      loop_function: a function of the last output and the number of the step, which returns the
        input. If given, only the first of `decoder_inputs` is read.
      scope: the variable scope, or its name; "rnn_decoder" by default.

    Returns:
      A pair: the list of outputs, and the last state.
    """
    state, outputs = initial_state, []
    with v1.variable_scope(scope or "rnn_decoder"):
        for step, inputs in enumerate(decoder_inputs):
            if step:
                v1.get_variable_scope().reuse_variables()
                if loop_function is not None:
                    with v1.variable_scope("loop_function", reuse=True):
                        inputs = loop_function(outputs[-1], step)
            output, state = cell(inputs, state)
            outputs.append(output)
    return outputs, state


def sequence_loss_by_example(
    logits: List[tf.Tensor],
    targets: List[tf.Tensor],
    weights: List[tf.Tensor],
    average_across_timesteps: bool = True,
    softmax_loss_function: Optional[Callable[..., Any]] = None,
    name: Optional[str] = None,
) -> tf.Tensor:
    """Returns the weighted cross-entropy of each sequence.

    Args:
      logits: a list with a tensor of shape [batch, classes] for each time step.
      targets: a list with the classes, integers of shape [batch], for each time step.
      weights: a list with a float tensor of shape [batch] for each time step.
      average_across_timesteps: whether to divide by the sum of the weights.
      softmax_loss_function: a function that is called with `labels` and `logits`, instead of the
        sparse softmax cross-entropy.
      name: the name scope of the operations.

    Returns:
      A float tensor of shape [batch].

    Raises:
      ValueError: the lists have different lengths.
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
    logits: List[tf.Tensor],
    targets: List[tf.Tensor],
    weights: List[tf.Tensor],
    average_across_timesteps: bool = True,
    average_across_batch: bool = True,
    softmax_loss_function: Optional[Callable[..., Any]] = None,
    name: Optional[str] = None,
) -> tf.Tensor:
    """Returns the weighted cross-entropy of all sequences together.

    `average_across_batch` says whether to divide by the number of sequences. The other arguments
    are those of `sequence_loss_by_example`.

    Returns:
      A float tensor without axes.

    Raises:
      ValueError: the lists have different lengths.
    """
    with v1.name_scope(name, "sequence_loss", [*logits, *targets, *weights]):
        loss = tf.reduce_sum(
            sequence_loss_by_example(
                logits, targets, weights, average_across_timesteps, softmax_loss_function
            )
        )
        return loss / tf.cast(tf.shape(targets[0])[0], loss.dtype) if average_across_batch else loss


def _cross_entropy(labels, logits):
    labels = tf.reshape(labels, [-1])  # scripts pass labels of shape [batch, 1]
    return tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits)

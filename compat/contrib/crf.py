"""Linear-chain conditional random fields of `tf.contrib.crf`.

The score of a sequence of tags is the sum of its unary potentials ``inputs[t, tag[t]]`` and of its
transitions ``transition_params[tag[t - 1], tag[t]]``. The likelihood of a sequence is the
exponential of its score, divided by the sum of these exponentials over all sequences.

Arguments with the same name are the same in all functions: `inputs` are unary potentials of shape
[batch, time, tags]; `tag_indices` int32 or int64 tags [batch, time]; `sequence_lengths` integers
[batch]; and `transition_params` potentials [tags, tags].
"""

from __future__ import annotations

from typing import Any, List, Optional, Tuple

import numpy as np
import tensorflow as tf

__all__ = [
    "crf_binary_score",
    "crf_decode",
    "crf_log_likelihood",
    "crf_log_norm",
    "crf_multitag_sequence_score",
    "crf_sequence_score",
    "crf_unary_score",
    "viterbi_decode",
]

_where = tf.compat.v2.where  # broadcasts on TensorFlow 1.15, too


def crf_log_likelihood(
    inputs: Any, tag_indices: Any, sequence_lengths: Any, transition_params: Optional[Any] = None
) -> Tuple[tf.Tensor, Any]:
    """Returns the log-likelihood of each sequence of tags, and `transition_params`.

    If `transition_params` is None, it is the variable `transitions`, created if necessary.
    """
    inputs = tf.convert_to_tensor(inputs)
    if transition_params is None:
        tags = int(inputs.shape[2])
        transition_params = tf.compat.v1.get_variable("transitions", [tags, tags])
    scores = crf_sequence_score(inputs, tag_indices, sequence_lengths, transition_params)
    return scores - crf_log_norm(inputs, sequence_lengths, transition_params), transition_params


def crf_sequence_score(
    inputs: Any, tag_indices: Any, sequence_lengths: Any, transition_params: Any
) -> tf.Tensor:
    """Returns the score of each sequence of tags, of shape [batch]."""
    unary = crf_unary_score(tag_indices, sequence_lengths, inputs)
    return unary + crf_binary_score(tag_indices, sequence_lengths, transition_params)


def crf_multitag_sequence_score(
    inputs: Any, tag_bitmap: Any, sequence_lengths: Any, transition_params: Any
) -> tf.Tensor:
    """Returns the log of the sum of exp(score) over sequences of allowed tags, of shape [batch].

    `tag_bitmap`, of shape [batch, time, tags], is true for the allowed tags. The result is zero for
    a length that is not positive, unless there is a single time step.
    """
    inputs = tf.convert_to_tensor(inputs)
    allowed = _where(tag_bitmap, inputs, tf.constant(-np.inf, inputs.dtype))
    lengths = tf.convert_to_tensor(sequence_lengths)
    # As in tf.contrib, a single time step counts whatever the lengths are.
    is_single = tf.cast(tf.equal(tf.shape(inputs)[1], 1), lengths.dtype)  # 1 or 0
    lengths = tf.maximum(lengths, is_single)
    return crf_log_norm(allowed, lengths, transition_params)


def crf_unary_score(tag_indices: Any, sequence_lengths: Any, inputs: Any) -> tf.Tensor:
    """Returns the sum of the unary potentials of each sequence of tags, of shape [batch]."""
    tags = tf.convert_to_tensor(tag_indices)
    # The row number of each tag in a table of the `inputs`, of shape [batch * time, tags].
    rows = tf.reshape(tf.range(tf.size(tags)), tf.shape(tags))
    mask = tf.sequence_mask(sequence_lengths, tf.shape(tags)[1])
    return _masked_sum(_elements(inputs, tf.cast(rows, tags.dtype), tags), mask)


def crf_binary_score(tag_indices: Any, sequence_lengths: Any, transition_params: Any) -> tf.Tensor:
    """Returns the sum of the transitions of each sequence of tags, of shape [batch]."""
    tags = tf.convert_to_tensor(tag_indices)
    mask = tf.sequence_mask(sequence_lengths, tf.shape(tags)[1])
    return _masked_sum(_elements(transition_params, tags[:, :-1], tags[:, 1:]), mask[:, 1:])


def crf_log_norm(inputs: Any, sequence_lengths: Any, transition_params: Any) -> tf.Tensor:
    """Returns the log of the sum of exp(score) over all sequences of tags, of shape [batch].

    The result is zero for a length that is not positive.
    """
    inputs = tf.convert_to_tensor(inputs)

    def step(alphas: tf.Tensor, step_inputs: Tuple[tf.Tensor, tf.Tensor]) -> tf.Tensor:
        potentials, is_transition = step_inputs
        paths = alphas[:, :, None] + transition_params
        return _where(is_transition, potentials + tf.reduce_logsumexp(paths, 1), alphas)

    alphas = tf.foldl(step, _by_step(inputs, sequence_lengths), inputs[:, 0])
    norms = tf.reduce_logsumexp(alphas, 1)
    return _where(tf.convert_to_tensor(sequence_lengths) > 0, norms, tf.zeros_like(norms))


def crf_decode(
    potentials: Any, transition_params: Any, sequence_length: Any
) -> Tuple[tf.Tensor, tf.Tensor]:
    """Returns the sequences of tags with the highest scores, and these scores, of shape [batch].

    The tags are int32 of shape [batch, time], and zero after the end of a sequence. `potentials`
    are the unary potentials, and a `sequence_length` below 1 means 1.
    """
    potentials = tf.convert_to_tensor(potentials)
    first = potentials[:, 0]
    same_tag = tf.range(tf.shape(first)[1])  # the pointers of steps without a transition

    def forward(
        state: Tuple[tf.Tensor, ...], step_inputs: Tuple[tf.Tensor, tf.Tensor]
    ) -> Tuple[tf.Tensor, tf.Tensor]:
        scores, _ = state
        unary, is_transition = step_inputs
        paths = scores[:, :, None] + transition_params
        pointers = tf.cast(tf.argmax(paths, 1), tf.int32)
        return (
            _where(is_transition, unary + tf.reduce_max(paths, 1), scores),
            tf.ensure_shape(_where(is_transition, pointers, same_tag), first.shape),
        )

    start = first, tf.zeros_like(first, tf.int32)  # `forward` does not read the zeros
    scores, pointers = tf.scan(forward, _by_step(potentials, sequence_length), start)
    last = tf.cast(tf.argmax(scores[-1], 1), tf.int32)

    def backward(tags: tf.Tensor, pointers_of_step: tf.Tensor) -> tf.Tensor:
        return _elements(pointers_of_step, tf.range(tf.size(tags)), tags)

    # previous[t] is the tag of step t - 1.
    previous = tf.scan(backward, pointers, last, reverse=True)
    tags = tf.transpose(tf.concat([previous[1:], last[None]], 0))
    mask = tf.sequence_mask(tf.maximum(sequence_length, 1), tf.shape(potentials)[1])
    tags = tf.ensure_shape(_where(mask, tags, 0), potentials.shape[:2])
    return tags, tf.reduce_max(scores[-1], 1)


def viterbi_decode(score: Any, transition_params: Any) -> Tuple[List[Any], Any]:
    """Returns the list of tags with the highest score, and this score, computed by NumPy.

    `score` is an array of unary potentials of shape [time, tags].
    """
    score = np.asarray(score)
    best = score[0]
    pointers = []
    for unary in score[1:]:
        paths = best[:, None] + transition_params
        pointers.append(np.argmax(paths, 0))
        best = (unary + np.max(paths, 0)).astype(score.dtype)
    tags = [np.argmax(best)]
    for pointer in reversed(pointers):
        tags.append(pointer[tags[-1]])
    return tags[::-1], np.max(best)


def _by_step(inputs: tf.Tensor, lengths: Any) -> Tuple[tf.Tensor, tf.Tensor]:
    """Returns the inputs of each step, and whether a transition leads to the step.

    The shapes are [time, batch, tags] and [time, batch, 1].
    """
    steps = tf.shape(inputs)[1]
    # Loops need the static size of the batch, which the lengths may lack.
    lengths = tf.ensure_shape(tf.convert_to_tensor(lengths), inputs.shape[:1])
    is_transition = tf.sequence_mask(lengths, steps) & (tf.range(steps) > 0)
    return tf.transpose(inputs, [1, 0, 2]), tf.transpose(is_transition)[:, :, None]


def _elements(table: Any, rows: tf.Tensor, columns: tf.Tensor) -> tf.Tensor:
    """Returns table[row, column]. Rows are numbered through all axes of the table but the last."""
    # On TensorFlow 1.15, tf.gather with batch_dims fails, or has no gradient.
    table = tf.convert_to_tensor(table)
    width = tf.cast(tf.shape(table)[-1], rows.dtype)
    return tf.gather(tf.reshape(table, [-1]), rows * width + columns)


def _masked_sum(values: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
    return tf.reduce_sum(values * tf.cast(mask, values.dtype), 1)

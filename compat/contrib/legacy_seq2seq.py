"""Models, losses and buckets of `tf.contrib.legacy_seq2seq`, for lists of time steps.

Inputs are lists with a tensor for each step: vectors of shape [batch, size]; or symbols, integers
of shape [batch], if the model embeds them. Logits come from a layer of the model, or from the
weights and biases of `output_projection`. With `feed_previous`, a decoder reads its first input,
and then the most likely symbols of its last output. In models with an encoder, `feed_previous` may
be a tensor. From TensorFlow 2.16 on, models that embed symbols need the package tf-keras.
"""

from __future__ import annotations

import copy
import functools
from typing import Any, Callable, Iterable, Iterator, List, Optional, Sequence, Tuple

import tensorflow as tf

from . import rnn
from .rnn_linear import linear

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
Decoded = Tuple[Tensors, Any]
Loop = Callable[[tf.Tensor, int], tf.Tensor]


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
    and weights of shape [batch]. `average_across_timesteps` divides by the sum of the weights.
    `softmax_loss_function(labels=…, logits=…)` replaces the sparse softmax cross-entropy.
    """
    if not len(logits) == len(targets) == len(weights):
        raise ValueError(
            "Lengths of logits, weights, and targets must be the same "
            f"{len(logits)}, {len(weights)}, {len(targets)}."
        )
    loss_function = softmax_loss_function or _cross_entropy
    with v1.name_scope(name, "sequence_loss_by_example", [*logits, *targets, *weights]):
        losses_of_steps = [
            loss_function(labels=target, logits=logit) * weight
            for logit, target, weight in zip(logits, targets, weights)
        ]
        losses = tf.add_n(losses_of_steps)
        if not average_across_timesteps:
            return losses
        return losses / (tf.add_n(weights) + 1e-12)


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

    Arguments other than `average_across_batch` are those of `sequence_loss_by_example`.
    """
    with v1.name_scope(name, "sequence_loss", [*logits, *targets, *weights]):
        losses = sequence_loss_by_example(
            logits, targets, weights, average_across_timesteps, softmax_loss_function
        )
        loss = tf.reduce_sum(losses)
        if not average_across_batch:
            return loss
        return loss / tf.cast(tf.shape(targets[0])[0], loss.dtype)


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
    steps, decoder_steps = buckets[-1]
    if len(encoder_inputs) < steps or min(len(targets), len(weights)) < decoder_steps:
        raise ValueError(f"A list is shorter than the last bucket {buckets[-1]}.")
    loss = sequence_loss_by_example if per_example_loss else sequence_loss
    outputs, losses = [], []
    with v1.name_scope(name, "model_with_buckets"):
        for number, (steps, decoder_steps) in enumerate(buckets):
            reuse = True if number else None  # the buckets share variables
            with v1.variable_scope(v1.get_variable_scope(), reuse=reuse):
                results = seq2seq(encoder_inputs[:steps], decoder_inputs[:decoder_steps])
                outputs.append(results[0])
                lists = results[0], targets[:decoder_steps], weights[:decoder_steps]
                losses.append(loss(*lists, softmax_loss_function=softmax_loss_function))
    return outputs, losses


def _cross_entropy(labels: tf.Tensor, logits: tf.Tensor) -> tf.Tensor:
    labels = tf.reshape(labels, [-1])  # scripts pass labels of shape [batch, 1]
    return tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits)


def rnn_decoder(
    decoder_inputs: Tensors,
    initial_state: Any,
    cell: Callable[..., Any],
    loop_function: Optional[Loop] = None,
    scope: Optional[Any] = None,
) -> Decoded:
    """Runs a cell over a list of inputs, and returns the outputs and the last state.

    With `loop_function`, only the first of `decoder_inputs` is read. Other inputs are
    `loop_function(last output, number of the step)`.
    """
    state = initial_state
    outputs = []
    with v1.variable_scope(scope or "rnn_decoder"):
        for inputs in _steps(decoder_inputs, outputs, loop_function):
            output, state = cell(inputs, state)
            outputs.append(output)
    return outputs, state


def _steps(
    decoder_inputs: Iterable[tf.Tensor], outputs: List[tf.Tensor], loop_function: Optional[Callable]
) -> Iterator[tf.Tensor]:
    """Yields the input of each step. The caller appends the output of the step to `outputs`."""
    for step, inputs in enumerate(decoder_inputs):
        if step:
            v1.get_variable_scope().reuse_variables()  # of the first step
            if loop_function is not None:
                with v1.variable_scope("loop_function", reuse=True):
                    inputs = loop_function(outputs[-1], step)
        yield inputs


def attention_decoder(
    decoder_inputs: Tensors,
    initial_state: Any,
    attention_states: tf.Tensor,
    cell: Any,
    output_size: Optional[int] = None,
    num_heads: int = 1,
    loop_function: Optional[Loop] = None,
    dtype: Optional[Any] = None,
    scope: Optional[Any] = None,
    initial_state_attention: bool = False,
) -> Decoded:
    """Runs a cell like `rnn_decoder`, with attention (Vinyals et al., 2014)."""
    if not decoder_inputs or num_heads < 1:
        raise ValueError(f"Needs an input and a head, got {len(decoder_inputs)} and {num_heads}.")
    with v1.variable_scope(scope or "attention_decoder", dtype=dtype) as scope:
        attend = _attention(attention_states, num_heads, scope.dtype)
        state = initial_state
        outputs = []
        if initial_state_attention:
            means = attend(state)
        else:
            shape = [tf.shape(decoder_inputs[0])[0], attention_states.shape[2]]
            means = [tf.zeros(shape, scope.dtype)] * num_heads
        for inputs in _steps(decoder_inputs, outputs, loop_function):
            size: Any = inputs.shape.as_list()[1]
            merged = [tf.cast(inputs, scope.dtype), *means]
            output, state = cell(linear(merged, size, bias=True), state)
            means = attend(state)
            with v1.variable_scope("AttnOutputProjection"):
                merged = [tf.cast(output, scope.dtype), *means]
                outputs.append(linear(merged, output_size or cell.output_size, bias=True))
    return outputs, state


def _attention(states: Any, num_heads: int, dtype: tf.DType) -> Callable[[Any], List[tf.Tensor]]:
    """Returns a function of a cell's state, which returns weighted means of `states`."""
    size = states.shape.as_list()[2]
    states = states[:, :, None]  # conv2d needs the shape [batch, time, 1, size]
    heads = []
    for head in range(num_heads):
        kernel = v1.get_variable(f"AttnW_{head}", [1, 1, size, size], dtype)
        keys = tf.nn.conv2d(states, kernel, [1, 1, 1, 1], "SAME")
        heads.append((keys, v1.get_variable(f"AttnV_{head}", [size], dtype)))

    def attend(state: Any) -> List[tf.Tensor]:
        query = tf.concat(tf.nest.flatten(state), 1)
        means = []
        for head, (keys, weights) in enumerate(heads):
            # With `initial_state_attention`, the first step calls this function twice.
            with v1.variable_scope(f"Attention_{head}", reuse=v1.AUTO_REUSE):
                projected = tf.cast(linear(query, size, bias=True), dtype)[:, None, None]
            hidden = tf.reduce_sum(weights * tf.tanh(keys + projected), [2, 3])
            shares = tf.cast(tf.nn.softmax(tf.cast(hidden, tf.float32)), dtype)
            means.append(tf.reduce_sum(shares[:, :, None, None] * states, [1, 2]))
        return means

    return attend


def embedding_rnn_decoder(
    decoder_inputs: Tensors,
    initial_state: Any,
    cell: Any,
    num_symbols: int,
    embedding_size: int,
    output_projection: Optional[Any] = None,
    feed_previous: bool = False,
    update_embedding_for_previous: bool = True,
    scope: Optional[Any] = None,
) -> Decoded:
    """Runs `rnn_decoder` with the embeddings of symbols."""
    shape = [num_symbols, embedding_size]
    with v1.variable_scope(scope or "embedding_rnn_decoder"):
        inputs, best = _embedded(
            decoder_inputs, shape, output_projection, update_embedding_for_previous
        )
        return rnn_decoder(inputs, initial_state, cell, best if feed_previous else None)


def embedding_attention_decoder(
    decoder_inputs: Tensors,
    initial_state: Any,
    attention_states: tf.Tensor,
    cell: Any,
    num_symbols: int,
    embedding_size: int,
    num_heads: int = 1,
    output_size: Optional[int] = None,
    output_projection: Optional[Any] = None,
    feed_previous: bool = False,
    update_embedding_for_previous: bool = True,
    dtype: Optional[Any] = None,
    scope: Optional[Any] = None,
    initial_state_attention: bool = False,
) -> Decoded:
    """Runs `attention_decoder` with the embeddings of symbols."""
    shape = [num_symbols, embedding_size]
    with v1.variable_scope(scope or "embedding_attention_decoder", dtype=dtype):
        inputs, best = _embedded(
            decoder_inputs, shape, output_projection, update_embedding_for_previous
        )
        return attention_decoder(
            inputs,
            initial_state,
            attention_states,
            cell,
            output_size=output_size,
            num_heads=num_heads,
            loop_function=best if feed_previous else None,
            initial_state_attention=initial_state_attention,
        )


def _embedded(
    symbols: Iterable[tf.Tensor], shape: Sequence[int], projection: Any, is_updated: bool
) -> Tuple[List[tf.Tensor], Callable]:
    """Returns the embeddings of symbols, and a `loop_function` for the most likely symbols."""
    embedding = v1.get_variable("embedding", shape)

    def best(output: tf.Tensor, _: Any) -> tf.Tensor:
        logits = output if projection is None else v1.nn.xw_plus_b(output, *projection)
        embedded = v1.nn.embedding_lookup(embedding, tf.argmax(logits, 1))
        return embedded if is_updated else tf.stop_gradient(embedded)

    return [v1.nn.embedding_lookup(embedding, each) for each in symbols], best


def embedding_rnn_seq2seq(
    encoder_inputs: Tensors,
    decoder_inputs: Tensors,
    cell: Any,
    num_encoder_symbols: int,
    num_decoder_symbols: int,
    embedding_size: int,
    output_projection: Optional[Any] = None,
    feed_previous: Any = False,
    dtype: Optional[Any] = None,
    scope: Optional[Any] = None,
) -> Decoded:
    """Encodes symbols, and runs `embedding_rnn_decoder` from the last state on."""
    with v1.variable_scope(scope or "embedding_rnn_seq2seq", dtype=dtype) as scope:
        _, start = _encoded(encoder_inputs, cell, num_encoder_symbols, embedding_size, scope)
        if output_projection is None:
            cell = rnn.OutputProjectionWrapper(cell, num_decoder_symbols)
        decode = functools.partial(
            embedding_rnn_decoder,
            decoder_inputs,
            start,
            cell,
            num_decoder_symbols,
            embedding_size,
            output_projection=output_projection,
        )
        return _decoded(decode, feed_previous, cell)


def embedding_attention_seq2seq(
    encoder_inputs: Tensors,
    decoder_inputs: Tensors,
    cell: Any,
    num_encoder_symbols: int,
    num_decoder_symbols: int,
    embedding_size: int,
    num_heads: int = 1,
    output_projection: Optional[Any] = None,
    feed_previous: Any = False,
    dtype: Optional[Any] = None,
    scope: Optional[Any] = None,
    initial_state_attention: bool = False,
) -> Decoded:
    """Encodes symbols, and runs `embedding_attention_decoder` from the last state on."""
    with v1.variable_scope(scope or "embedding_attention_seq2seq", dtype=dtype) as scope:
        encoded, start = _encoded(encoder_inputs, cell, num_encoder_symbols, embedding_size, scope)
        output_size = None
        if output_projection is None:
            output_size = num_decoder_symbols
            cell = rnn.OutputProjectionWrapper(cell, output_size)
        decode = functools.partial(
            embedding_attention_decoder,
            decoder_inputs,
            start,
            tf.stack(encoded, 1),
            cell,
            num_decoder_symbols,
            embedding_size,
            num_heads=num_heads,
            output_size=output_size,
            output_projection=output_projection,
            initial_state_attention=initial_state_attention,
        )
        return _decoded(decode, feed_previous, cell)


def _encoded(
    symbols: Sequence[tf.Tensor], cell: Any, num_symbols: int, embedding_size: int, scope: Any
) -> Tuple[List[tf.Tensor], Any]:
    """Embeds symbols, runs a copy of a cell, and returns the outputs and the last state."""
    encoder = rnn.EmbeddingWrapper(copy.deepcopy(cell), num_symbols, embedding_size)
    return v1.nn.static_rnn(encoder, symbols, dtype=scope.dtype)


def _decoded(decode: Callable, feed_previous: Any, cell: Any) -> Tuple[List[tf.Tensor], Any]:
    """Calls `decode`: in both branches of a condition if `feed_previous` is a tensor."""
    if isinstance(feed_previous, bool):
        return decode(feed_previous=feed_previous)

    def branch(feed: bool) -> List[tf.Tensor]:
        # The branch with True creates the variables, the other branch uses them, too.
        with v1.variable_scope(v1.get_variable_scope(), reuse=None if feed else True):
            outputs, state = decode(feed_previous=feed, update_embedding_for_previous=False)
        return [*outputs, *tf.nest.flatten(state)]

    values = v1.cond(feed_previous, lambda: branch(True), lambda: branch(False))
    count = len(values) - len(tf.nest.flatten(cell.state_size))
    return values[:count], tf.nest.pack_sequence_as(cell.state_size, values[count:])

"""Decoders, attention and the loss of `tf.contrib.seq2seq`.

From TensorFlow 2.16 on, attention needs the package tf-keras, as TensorFlow's cells do.
"""

from __future__ import annotations

import abc
import collections
import contextlib
from typing import TYPE_CHECKING, Any, Callable, Optional, Tuple

import tensorflow as tf

from legacy_opt import versions

from .rnn_linear import check_cell
from .seq2seq_helpers import GreedyEmbeddingHelper, Helper, TrainingHelper, swap_batch_and_time

if TYPE_CHECKING:
    from .seq2seq_attention import (
        AttentionMechanism,
        AttentionWrapper,
        AttentionWrapperState,
        BahdanauAttention,
        LuongAttention,
    )

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
    "TrainingHelper",
    "dynamic_decode",
    "sequence_loss",
]

v1 = tf.compat.v1
_map = tf.nest.map_structure


def __getattr__(name: str) -> Any:
    if name in __all__:  # attention: it is imported on first use, because its base may be missing
        from . import seq2seq_attention

        return getattr(seq2seq_attention, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


class Decoder(abc.ABC):
    """The base class of decoders, which `dynamic_decode` runs.

    Attributes:
      batch_size: the number of sequences.
      output_size: the size of an output, an integer or a TensorShape without the batch; like
        outputs, inputs and states, it may be nested.
      output_dtype: the dtype of outputs.
      tracks_own_finished: whether `step` knows which sequences were finished before.
    """

    batch_size: Any
    output_size: Any
    output_dtype: Any
    tracks_own_finished = False

    @abc.abstractmethod
    def initialize(self, name: Optional[str] = None) -> Any:
        """Returns which sequences are finished, the first inputs, and the first state."""

    @abc.abstractmethod
    def step(self, time: Any, inputs: Any, state: Any, name: Optional[str] = None) -> Any:
        """Returns outputs, the next state, the next inputs, and which sequences are finished."""

    def finalize(self, outputs: Any, final_state: Any, sequence_lengths: Any) -> Any:
        """Returns changed outputs, whose first axis is the time, and a changed last state."""
        raise NotImplementedError


def dynamic_decode(
    decoder: Decoder,
    output_time_major: bool = False,
    impute_finished: bool = False,
    maximum_iterations: Optional[Any] = None,
    parallel_iterations: int = 32,
    swap_memory: bool = False,
    scope: Optional[Any] = None,
) -> Tuple[Any, Any, tf.Tensor]:
    """Runs a decoder until all sequences are finished.

    Args:
      decoder: a `Decoder`.
      output_time_major: whether the outputs have the shape [time, batch, ...] instead of
        [batch, time, ...].
      impute_finished: whether finished sequences keep their state, and get zeros as outputs.
      maximum_iterations: the largest number of steps.
      parallel_iterations: how many iterations may run at the same time.
      swap_memory: whether tensors may be moved from the GPU to the memory of the CPU.
      scope: the variable scope, or its name; "decoder" by default.

    Returns:
      The outputs, the last state, and the lengths of the sequences, of shape [batch].
    """
    if not isinstance(decoder, Decoder):
        raise TypeError(f"decoder must be a Decoder, got {decoder!r}")
    with v1.variable_scope(scope, "decoder") as own_scope:
        # A cached variable is read once, which is wrong in a loop that trains the variable.
        in_graph = versions.building() not in (versions.EAGER, versions.CONTROL_FLOW)
        if in_graph and own_scope.caching_device is None:
            own_scope.set_caching_device(lambda operation: operation.device)
        limit = maximum_iterations
        if limit is not None:
            limit = tf.convert_to_tensor(limit, tf.int32, name="maximum_iterations")
            if limit.shape.rank != 0:
                raise ValueError(f"maximum_iterations must be a scalar, got {limit}")
        finished, inputs, state = decoder.initialize()
        time = tf.constant(0)
        arrays = _output_arrays(decoder)
        lengths = tf.zeros_like(finished, tf.int32)
        _, arrays, state, _, _, lengths = v1.while_loop(
            lambda *variables: tf.logical_not(tf.reduce_all(variables[4])),  # `finished`
            _body(decoder, impute_finished),
            (time, arrays, state, inputs, finished, lengths),
            parallel_iterations=parallel_iterations,
            maximum_iterations=limit,
            swap_memory=swap_memory,
        )
        outputs = _map(lambda array: array.stack(), arrays)
        with contextlib.suppress(NotImplementedError):
            outputs, state = decoder.finalize(outputs, state, lengths)
        if not output_time_major:
            outputs = _map(swap_batch_and_time, outputs)
    return outputs, state, lengths


def _output_arrays(decoder: Any) -> Any:
    batch = tf.TensorShape([v1.get_static_value(tf.convert_to_tensor(decoder.batch_size))])

    def array(size: Any, dtype: Any) -> tf.TensorArray:
        has_shape = isinstance(size, tf.TensorShape) and size.rank != 0
        shape = batch.concatenate(size) if has_shape else None
        return tf.TensorArray(dtype, 0, dynamic_size=True, element_shape=shape)

    return _map(array, decoder.output_size, decoder.output_dtype)


def _body(decoder: Any, impute_finished: bool) -> Callable:
    """Returns the body of the loop, a function that runs one step."""

    def body(
        time: tf.Tensor,
        arrays: Any,
        state: Any,
        inputs: Any,
        finished: tf.Tensor,
        lengths: tf.Tensor,
    ) -> Tuple[Any, ...]:
        outputs, next_state, next_inputs, now_finished = decoder.step(time, inputs, state)
        if not decoder.tracks_own_finished:
            now_finished = tf.logical_or(now_finished, finished)
        lengths = v1.where(finished, lengths, tf.fill(tf.shape(lengths), time + 1))
        for old, new in (state, next_state), (arrays, outputs), (inputs, next_inputs):
            tf.nest.assert_same_structure(old, new)

        def zeros_if_finished(output: tf.Tensor, size: Any) -> tf.Tensor:
            shape = [decoder.batch_size, *tf.TensorShape(size).as_list()]
            return v1.where(finished, tf.zeros(shape, output.dtype), output)

        def old_if_finished(new: Any, old: Any) -> Any:
            if isinstance(old, tf.TensorArray):
                return new
            new.set_shape(old.shape)
            return v1.where(finished, old, new) if new.shape.rank != 0 else new

        if impute_finished:
            outputs = _map(zeros_if_finished, outputs, decoder.output_size)
            next_state = _map(old_if_finished, next_state, state)
        arrays = _map(lambda array, output: array.write(time, output), arrays, outputs)
        return time + 1, arrays, next_state, next_inputs, now_finished, lengths

    return body


class BasicDecoderOutput(collections.namedtuple("BasicDecoderOutput", "rnn_output sample_id")):
    """The outputs of a cell, and the samples that a helper has taken from these."""


class BasicDecoder(Decoder):
    """A decoder that runs a cell, and gets its inputs from a helper.

    Args:
      initial_state: the first state of `cell`, an RNNCell.
      output_layer: a layer for the outputs, such as `tf.compat.v1.layers.Dense`.
    """

    def __init__(
        self, cell: Any, helper: Helper, initial_state: Any, output_layer: Optional[Any] = None
    ) -> None:
        check_cell(cell)
        if not isinstance(helper, Helper):
            raise TypeError(f"helper must be a Helper, got {helper!r}")
        if not hasattr(output_layer, "compute_output_shape") and output_layer is not None:
            raise TypeError(f"output_layer must be a Layer, got {output_layer!r}")
        self._cell, self._helper, self._output_layer = cell, helper, output_layer
        self._initial_state = initial_state

    @property
    def batch_size(self) -> Any:
        return self._helper.batch_size

    @property
    def output_size(self) -> BasicDecoderOutput:
        size = self._cell.output_size
        if self._output_layer is not None:
            shapes = _map(tf.TensorShape([None]).concatenate, size)
            shapes = self._output_layer.compute_output_shape(shapes)
            size = _map(lambda shape: shape[1:], shapes)
        return BasicDecoderOutput(size, self._helper.sample_ids_shape)

    @property
    def output_dtype(self) -> BasicDecoderOutput:
        dtype = tf.nest.flatten(self._initial_state)[0].dtype
        dtypes = _map(lambda _: dtype, self.output_size.rnn_output)
        return BasicDecoderOutput(dtypes, self._helper.sample_ids_dtype)

    def initialize(self, name: Optional[str] = None) -> Any:
        return (*self._helper.initialize(), self._initial_state)

    def step(self, time: Any, inputs: Any, state: Any, name: Optional[str] = None) -> Any:
        with v1.name_scope(name, "BasicDecoderStep"):
            outputs, state = self._cell(inputs, state)
            if self._output_layer is not None:
                outputs = self._output_layer(outputs)
            ids = self._helper.sample(time=time, outputs=outputs, state=state)
            finished, inputs, state = self._helper.next_inputs(
                time=time, outputs=outputs, state=state, sample_ids=ids
            )
        return BasicDecoderOutput(outputs, ids), state, inputs, finished


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
    """
    if [len(each.shape) for each in (logits, targets, weights)] != [3, 2, 2]:
        raise ValueError(
            "logits must be a [batch, time, classes] tensor, targets and weights [batch, time] "
            f"tensors, got {logits}, {targets} and {weights}"
        )
    both_of_time = average_across_timesteps and sum_over_timesteps
    both_of_batch = average_across_batch and sum_over_batch
    if both_of_time or both_of_batch:
        raise ValueError("average_across_… and sum_over_… of the same axis cannot both be True.")
    with v1.name_scope(name, "sequence_loss", [logits, targets, weights]):
        loss_function = softmax_loss_function or tf.nn.sparse_softmax_cross_entropy_with_logits
        entropies = loss_function(
            labels=tf.reshape(targets, [-1]), logits=tf.reshape(logits, [-1, tf.shape(logits)[2]])
        )
        losses = tf.reshape(entropies * tf.reshape(weights, [-1]), tf.shape(logits)[:2])
        for divisor_of, over_time, over_batch in (
            (tf.reduce_sum, average_across_timesteps, average_across_batch),
            (tf.math.count_nonzero, sum_over_timesteps, sum_over_batch),
        ):
            axes = ([0] if over_batch else []) + ([1] if over_time else [])
            if axes:
                divisor = tf.cast(divisor_of(weights, axes), losses.dtype)
                return tf.math.divide_no_nan(tf.reduce_sum(losses, axes), divisor)
        return losses

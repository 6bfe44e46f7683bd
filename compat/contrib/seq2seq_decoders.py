"""The decoders of `contrib.seq2seq`, and the loop that runs them."""

from __future__ import annotations

import abc
import collections
import contextlib
from typing import Any, Optional, Tuple

import tensorflow as tf

from legacy_opt import versions

from .seq2seq_helpers import Helper, swap_batch_and_time

v1 = tf.compat.v1
map_structure = tf.nest.map_structure


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
    def initialize(self, name: Optional[str] = None) -> Tuple[Any, Any, Any]:
        """Returns which sequences are finished, the first inputs, and the first state."""

    @abc.abstractmethod
    def step(
        self, time: Any, inputs: Any, state: Any, name: Optional[str] = None
    ) -> Tuple[Any, Any, Any, Any]:
        """Returns outputs, the next state, the next inputs, and which sequences are finished."""

    def finalize(self, outputs: Any, final_state: Any, sequence_lengths: Any) -> Tuple[Any, Any]:
        """Returns other outputs, whose first axis is the time, and another last state."""
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

    Raises:
      TypeError: `decoder` is no `Decoder`.
      ValueError: `maximum_iterations` is no scalar.
    """
    if not isinstance(decoder, Decoder):
        raise TypeError(f"decoder must be a Decoder, got {decoder!r}")
    with v1.variable_scope(scope, "decoder") as variables:
        # The loop reads each variable once. An outer loop may train them: then it must not.
        if versions.building() != versions.CONTROL_FLOW and variables.caching_device is None:
            variables.set_caching_device(lambda operation: operation.device)
        limit = maximum_iterations
        if limit is not None:
            limit = tf.convert_to_tensor(limit, tf.int32, name="maximum_iterations")
            if limit.shape.rank != 0:
                raise ValueError(f"maximum_iterations must be a scalar, got {limit}")
        finished, inputs, state = decoder.initialize()
        if limit is not None:
            finished = tf.logical_or(finished, limit <= 0)
        _, arrays, state, _, _, lengths = v1.while_loop(
            lambda *loop_variables: tf.logical_not(tf.reduce_all(loop_variables[4])),
            _body(decoder, impute_finished),
            (
                *(tf.constant(0), _output_arrays(decoder), state, inputs),
                *(finished, tf.zeros_like(finished, tf.int32)),
            ),
            parallel_iterations=parallel_iterations,
            maximum_iterations=limit,
            swap_memory=swap_memory,
        )
        outputs = map_structure(lambda array: array.stack(), arrays)
        with contextlib.suppress(NotImplementedError):
            outputs, state = decoder.finalize(outputs, state, lengths)
        if not output_time_major:
            outputs = map_structure(swap_batch_and_time, outputs)
    return outputs, state, lengths


def _output_arrays(decoder):
    batch = tf.TensorShape([v1.get_static_value(tf.convert_to_tensor(decoder.batch_size))])

    def array(size, dtype):
        has_shape = isinstance(size, tf.TensorShape) and size.rank != 0
        shape = batch.concatenate(size) if has_shape else None
        return tf.TensorArray(dtype, 0, dynamic_size=True, element_shape=shape)

    return map_structure(array, decoder.output_size, decoder.output_dtype)


def _body(decoder, impute_finished):
    """Returns the function of the loop variables that runs one step."""

    def zeros(size, dtype):
        return tf.zeros([decoder.batch_size, *tf.TensorShape(size).as_list()], dtype)

    def body(time, arrays, state, inputs, finished, lengths):
        outputs, next_state, next_inputs, now_finished = decoder.step(time, inputs, state)
        if not decoder.tracks_own_finished:
            now_finished = tf.logical_or(now_finished, finished)
        lengths = v1.where(finished, lengths, tf.fill(tf.shape(lengths), time + 1))
        for old, new in (state, next_state), (arrays, outputs), (inputs, next_inputs):
            tf.nest.assert_same_structure(old, new)

        def unless_finished(new, old):
            if isinstance(old, tf.TensorArray):
                return new
            new.set_shape(old.shape)
            return v1.where(finished, old, new) if new.shape.rank != 0 else new

        if impute_finished:
            outputs = map_structure(
                lambda output, size: v1.where(finished, zeros(size, output.dtype), output),
                *(outputs, decoder.output_size),
            )
            next_state = map_structure(unless_finished, next_state, state)
        arrays = map_structure(lambda array, output: array.write(time, output), arrays, outputs)
        return time + 1, arrays, next_state, next_inputs, now_finished, lengths

    return body


class BasicDecoderOutput(collections.namedtuple("BasicDecoderOutput", "rnn_output sample_id")):
    """The outputs of a cell, and what a helper has sampled from them."""


class BasicDecoder(Decoder):
    """A decoder that runs a cell, and gets its inputs from a helper.

    Args:
      cell: an RNNCell.
      helper: a `Helper`.
      initial_state: the first state of the cell.
      output_layer: a layer of the outputs, such as `tf.compat.v1.layers.Dense`.

    Raises:
      TypeError: an argument is not what it should be.
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
            shapes = map_structure(tf.TensorShape([None]).concatenate, size)
            shapes = self._output_layer.compute_output_shape(shapes)
            size = map_structure(lambda shape: shape[1:], shapes)
        return BasicDecoderOutput(size, self._helper.sample_ids_shape)

    @property
    def output_dtype(self) -> BasicDecoderOutput:
        dtype = tf.nest.flatten(self._initial_state)[0].dtype
        dtypes = map_structure(lambda _: dtype, self.output_size.rnn_output)
        return BasicDecoderOutput(dtypes, self._helper.sample_ids_dtype)

    def initialize(self, name: Optional[str] = None) -> Tuple[Any, Any, Any]:
        return (*self._helper.initialize(), self._initial_state)

    def step(
        self, time: Any, inputs: Any, state: Any, name: Optional[str] = None
    ) -> Tuple[BasicDecoderOutput, Any, Any, Any]:
        with v1.name_scope(name, "BasicDecoderStep"):
            outputs, state = self._cell(inputs, state)
            if self._output_layer is not None:
                outputs = self._output_layer(outputs)
            ids = self._helper.sample(time=time, outputs=outputs, state=state)
            finished, inputs, state = self._helper.next_inputs(
                time=time, outputs=outputs, state=state, sample_ids=ids
            )
        return BasicDecoderOutput(outputs, ids), state, inputs, finished


def check_cell(cell: Any) -> None:
    """Raises a TypeError if an object cannot be used like an RNNCell."""
    if not (callable(cell) and hasattr(cell, "output_size") and hasattr(cell, "state_size")):
        raise TypeError(f"cell must be an RNNCell, got {cell!r}")

"""The helpers of `contrib.seq2seq`: they choose the inputs of a decoder."""

from __future__ import annotations

import abc
import operator
from typing import Any, Iterator, Optional, Tuple

import tensorflow as tf

v1 = tf.compat.v1


def stored_privately(names: str) -> Iterator[Any]:
    """Yields a property for each name, which reads the attribute "_" + name."""
    return (property(operator.attrgetter("_" + name)) for name in names.split())


class Helper(abc.ABC):
    """The base class of helpers, which sample from outputs and choose the next inputs.

    Attributes:
      batch_size: the number of sequences.
      sample_ids_shape: the shape of a sample, without the batch.
      sample_ids_dtype: the dtype of samples.
    """

    batch_size: Any
    sample_ids_shape: Any = tf.TensorShape([])
    sample_ids_dtype: Any = tf.int32

    @abc.abstractmethod
    def initialize(self, name: Optional[str] = None) -> Any:
        """Returns which sequences are finished, and the first inputs."""

    @abc.abstractmethod
    def sample(self, time: Any, outputs: Any, state: Any, name: Optional[str] = None) -> Any:
        """Returns samples from the outputs of a step."""

    @abc.abstractmethod
    def next_inputs(
        self, time: Any, outputs: Any, state: Any, sample_ids: Any, name: Optional[str] = None
    ) -> Any:
        """Returns which sequences are finished, the next inputs, and the next state."""


class TrainingHelper(Helper):
    """A helper whose inputs are known, and whose samples are the ids of the largest outputs.

    Args:
      inputs: the inputs, of shape [batch, time, ...].
      sequence_length: the lengths of the sequences, of shape [batch].
      time_major: whether `inputs` has the shape [time, batch, ...].
      name: the name scope of the operations.
    """

    batch_size, inputs, sequence_length = stored_privately("batch_size inputs sequence_length")

    def __init__(
        self,
        inputs: Any,
        sequence_length: Any,
        time_major: bool = False,
        name: Optional[str] = None,
    ) -> None:
        with v1.name_scope(name, "TrainingHelper", [inputs, sequence_length]):
            self._inputs = tf.convert_to_tensor(inputs, name="inputs")
            self._sequence_length = tf.convert_to_tensor(sequence_length, name="sequence_length")
            if self._sequence_length.shape.rank != 1:
                raise ValueError(f"sequence_length must be a vector, got {self._sequence_length}")
            self._batch_size = tf.size(self._sequence_length)
            steps = self._inputs if time_major else swap_batch_and_time(self._inputs)
            self._zero_inputs = tf.zeros_like(steps[0])
            # The gradient of `steps[time]` would be as large as all inputs: read an array instead.
            array = tf.TensorArray(steps.dtype, tf.shape(steps)[0], element_shape=steps.shape[1:])
            self._steps = array.unstack(steps)

    def initialize(self, name: Optional[str] = None) -> Any:
        # As in `tf.contrib`, a sequence of negative length is not finished before its first step.
        return self._inputs_at(0, tf.equal(self._sequence_length, 0))

    def sample(self, time: Any, outputs: Any, name: Optional[str] = None, **unused: Any) -> Any:
        return tf.argmax(outputs, -1, output_type=tf.int32)

    def next_inputs(
        self, time: Any, outputs: Any, state: Any, name: Optional[str] = None, **unused: Any
    ) -> Any:
        finished, inputs = self._inputs_at(time + 1, time + 1 >= self._sequence_length)
        return finished, inputs, state

    def _inputs_at(self, time: Any, finished: tf.Tensor) -> Tuple[tf.Tensor, Any]:
        inputs = v1.cond(
            tf.reduce_all(finished), lambda: self._zero_inputs, lambda: self._steps.read(time)
        )
        return finished, inputs


class GreedyEmbeddingHelper(Helper):
    """A helper that samples the ids of the largest outputs, and looks up the next inputs.

    Args:
      embedding: a function of a vector of ids, or the tensors for `embedding_lookup`.
      start_tokens: the first id of each sequence, of shape [batch].
      end_token: the id that ends a sequence.
    """

    (batch_size,) = stored_privately("batch_size")

    def __init__(self, embedding: Any, start_tokens: Any, end_token: Any) -> None:
        self._embedding = embedding
        starts = tf.convert_to_tensor(start_tokens, tf.int32, name="start_tokens")
        self._end_token = tf.convert_to_tensor(end_token, tf.int32, name="end_token")
        for name, value, rank in ("start_tokens", starts, 1), ("end_token", self._end_token, 0):
            if value.shape.rank != rank:
                raise ValueError(f"{name} must have the rank {rank}, got {value}")
        self._batch_size = tf.size(starts)
        self._start_inputs = self._look_up(starts)

    def _look_up(self, ids: tf.Tensor) -> Any:
        embedding = self._embedding
        return embedding(ids) if callable(embedding) else v1.nn.embedding_lookup(embedding, ids)

    def initialize(self, name: Optional[str] = None) -> Any:
        return tf.fill([self.batch_size], False), self._start_inputs

    def sample(self, time: Any, outputs: Any, state: Any, name: Optional[str] = None) -> Any:
        if not tf.is_tensor(outputs):
            raise TypeError(f"outputs must be a single tensor, got {outputs!r}")
        return tf.argmax(outputs, -1, output_type=tf.int32)

    def next_inputs(
        self, time: Any, outputs: Any, state: Any, sample_ids: Any, name: Optional[str] = None
    ) -> Any:
        finished = tf.equal(sample_ids, self._end_token)
        is_last = tf.reduce_all(finished)
        inputs = v1.cond(is_last, lambda: self._start_inputs, lambda: self._look_up(sample_ids))
        return finished, inputs, state


def swap_batch_and_time(tensor: tf.Tensor) -> tf.Tensor:
    """Returns a tensor with its first two axes swapped, if it has two."""
    if tensor.shape.rank is not None and tensor.shape.rank < 2:
        return tensor
    axes: Any = tf.concat([[1, 0], tf.range(2, tf.rank(tensor))], 0)
    return tf.transpose(tensor, axes)

"""The attention mechanisms of `contrib.seq2seq`, and functions for them."""

from __future__ import annotations

import collections
from typing import Any, Callable, List, Optional, Tuple

import numpy as np
import tensorflow as tf

from legacy_opt import versions

v1 = tf.compat.v1
Function = Callable[..., Any]


class AttentionMechanism:
    """The base class of attention mechanisms.

    Attributes:
      alignments_size: the number of steps in the memory.
      state_size: the size of the mechanism's state.
    """

    alignments_size: Any
    state_size: Any


class _Mechanism(AttentionMechanism):
    """A mechanism that compares a query with keys, which a linear layer makes of the memory."""

    query_layer: Any = None

    def __init__(self, units, memory, lengths, probability, mask_value, dtype, key_value_fn, name):
        self._num_units, self._lengths, self._mask_value = units, lengths, mask_value
        self._probability = probability or tf.nn.softmax
        self.dtype = tf.as_dtype(dtype or tf.float32).name
        self.memory_layer = self._layer("memory_layer")
        with v1.name_scope(name, "BaseAttentionMechanismInit", [memory]):
            self.values = self._without_padding(tf.convert_to_tensor(memory, name="memory"))
            self.keys = self.memory_layer(self.values)
            if key_value_fn is not None:
                self.keys, self.values = key_value_fn(self.keys, self.values)
            self.batch_size, self.alignments_size = known_shape(self.keys)[:2]
        self.state_size = self.alignments_size

    def _layer(self, name):
        dense = versions.layers().Dense
        return dense(self._num_units, use_bias=False, dtype=self.dtype, name=name)

    def _without_padding(self, memory):
        if not memory.shape[2:].is_fully_defined():
            raise ValueError(f"only batch and time of the memory may be unknown, got {memory}")
        if self._lengths is None:
            return memory
        mask = tf.sequence_mask(self._lengths, tf.shape(memory)[1], memory.dtype)
        return memory * mask[(..., *[None] * (memory.shape.rank - 2))]

    def _probability_fn(self, score, _):
        """Returns the alignments for scores. Users' subclasses call it, as in `tf.contrib`."""
        if self._lengths is not None:
            message = "memory_sequence_length must be positive."
            with tf.control_dependencies([v1.assert_positive(self._lengths, message=message)]):
                mask = tf.sequence_mask(self._lengths, tf.shape(score)[1])
            least = -np.inf if self._mask_value is None else self._mask_value
            score = v1.where(mask, score, least * tf.ones_like(score))
        return self._probability(score)

    def initial_alignments(self, batch_size: Any, dtype: Any) -> tf.Tensor:
        """Returns zeros, the alignments before the first step."""
        return tf.zeros([batch_size, self.alignments_size], dtype)

    def initial_state(self, batch_size: Any, dtype: Any) -> Any:
        """Returns the first state of the mechanism."""
        return self.initial_alignments(batch_size, dtype)


class LuongAttention(_Mechanism):
    """Attention whose scores are products of query and keys (Luong et al., 2015).

    Args:
      num_units: the size of the keys, which must be that of queries.
      memory: the memory, of shape [batch, time, size].
      memory_sequence_length: the lengths of the sequences in the memory, of shape [batch].
      scale: whether scores are multiplied by the variable `attention_g`.
      probability_fn: a function that makes alignments of scores; softmax by default.
      score_mask_value: the score of steps after the end of a sequence; minus infinity by default.
      dtype: the dtype of the layers; float32 by default.
      custom_key_value_fn: a function of keys and values that returns others.
      name: the name scope of the keys.

    Raises:
      ValueError: the size of the memory is unknown.
    """

    def __init__(
        self,
        num_units: int,
        memory: Any,
        memory_sequence_length: Optional[Any] = None,
        scale: bool = False,
        probability_fn: Optional[Function] = None,
        score_mask_value: Optional[Any] = None,
        dtype: Optional[Any] = None,
        custom_key_value_fn: Optional[Function] = None,
        name: str = "LuongAttention",
    ) -> None:
        common = probability_fn, score_mask_value, dtype, custom_key_value_fn, name
        super().__init__(num_units, memory, memory_sequence_length, *common)
        self._scale = scale

    def __call__(self, query: tf.Tensor, state: Any) -> Tuple[tf.Tensor, Any]:
        if not query.shape[-1:].is_compatible_with(self.keys.shape[-1:]):
            raise ValueError(f"num_units must be the size of {query}, got {self._num_units}")
        with v1.variable_scope(None, "luong_attention", [query]):
            score = tf.squeeze(tf.matmul(query[:, None], self.keys, transpose_b=True), [1])
            if self._scale:
                ones = v1.ones_initializer()
                score = v1.get_variable("attention_g", [], query.dtype, ones) * score
        alignments = self._probability_fn(score, state)
        return alignments, alignments


class BahdanauAttention(_Mechanism):
    """Attention whose scores are a layer over the sum of query and keys (Bahdanau et al., 2014).

    The arguments are those of `LuongAttention`, except for `normalize`: whether the weights of the
    layer are normalized, with the variables `attention_g` and `attention_b`. Queries may have
    another size than `num_units`.
    """

    def __init__(
        self,
        num_units: int,
        memory: Any,
        memory_sequence_length: Optional[Any] = None,
        normalize: bool = False,
        probability_fn: Optional[Function] = None,
        score_mask_value: Optional[Any] = None,
        dtype: Optional[Any] = None,
        custom_key_value_fn: Optional[Function] = None,
        name: str = "BahdanauAttention",
    ) -> None:
        common = probability_fn, score_mask_value, dtype, custom_key_value_fn, name
        super().__init__(num_units, memory, memory_sequence_length, *common)
        self._normalize, self.query_layer = normalize, self._layer("query_layer")

    def __call__(self, query: tf.Tensor, state: Any) -> Tuple[tf.Tensor, Any]:
        units, dtype = self._num_units, query.dtype
        with v1.variable_scope(None, "bahdanau_attention", [query]):
            hidden = self.keys + self.query_layer(query)[:, None]
            weights = v1.get_variable("attention_v", [units], dtype)
            if self._normalize:
                start = v1.constant_initializer(units**-0.5)
                scale = v1.get_variable("attention_g", [], dtype, start)
                weights = scale * weights * tf.math.rsqrt(tf.reduce_sum(tf.square(weights)))
                hidden += v1.get_variable("attention_b", [units], dtype, v1.zeros_initializer())
            score = tf.reduce_sum(weights * tf.tanh(hidden), [2])
        alignments = self._probability_fn(score, state)
        return alignments, alignments


class AttentionWrapperState(
    collections.namedtuple(
        "AttentionWrapperState",
        "cell_state attention time alignments alignment_history attention_state",
    )
):
    """The state of an `AttentionWrapper`; the last three are tuples if it has several mechanisms.

    Attributes:
      cell_state: the state of the cell.
      attention: the last attention.
      time: the number of steps.
      alignments: the last alignments.
      alignment_history: all alignments in a TensorArray, or ().
      attention_state: the state of the mechanism.
    """

    def clone(self, **kwargs: Any) -> AttentionWrapperState:
        """Returns a copy with other values for some attributes.

        Raises:
          ValueError: a value has another shape. If the shapes are not known yet, `session.run`
            raises an InvalidArgumentError instead.
        """
        return tf.nest.map_structure(_with_shape_of, self, self._replace(**kwargs))


def _with_shape_of(old, new):
    if not (tf.is_tensor(old) and tf.is_tensor(new)):
        return new
    if old.shape.is_fully_defined() and new.shape.is_fully_defined():
        if old.shape.as_list() != new.shape.as_list():
            raise ValueError(f"the new value must have the shape {old.shape}, got {new}")
        return new
    with tf.control_dependencies([v1.assert_equal(tf.shape(new), tf.shape(old))]):
        new = tf.identity(new)
    if old.shape.is_fully_defined():
        new.set_shape(old.shape)
    return new


def hardmax(logits: Any, name: Optional[str] = None) -> tf.Tensor:
    """Returns 1 for the largest value of the last axis, and 0 for the others."""
    with v1.name_scope(name, "Hardmax", [logits]):
        logits = tf.convert_to_tensor(logits, name="logits")
        return tf.one_hot(tf.argmax(logits, -1), known_shape(logits)[-1], dtype=logits.dtype)


def tile_batch(t: Any, multiplier: int, name: Optional[str] = None) -> Any:
    """Repeats each example of tensors of shape [batch, ...], as beam search needs it.

    Raises:
      ValueError: a tensor has an unknown rank, or the rank 0.
    """

    def tiled(tensor):
        tensor = tf.convert_to_tensor(tensor, name="t")
        if not tensor.shape.rank:
            raise ValueError(f"t must have a known rank of at least 1, got {tensor}")
        return tf.repeat(tensor, multiplier, axis=0)

    with v1.name_scope(name, "tile_batch", [*tf.nest.flatten(t), multiplier]):
        return tf.nest.map_structure(tiled, t)


def known_shape(tensor: Any) -> List[Any]:
    """Returns the sizes of a tensor of known rank, as numbers where they are known."""
    tensor = tf.convert_to_tensor(tensor)
    sizes = enumerate(tensor.shape.as_list())
    return [tf.shape(tensor)[axis] if size is None else size for axis, size in sizes]

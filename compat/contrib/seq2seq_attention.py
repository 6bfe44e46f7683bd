"""The attention of `contrib.seq2seq`.

The import fails on TensorFlow 2.16 and newer without tf-keras.
"""

from __future__ import annotations

import collections
import functools
from typing import Any, Callable, List, Optional, Tuple

import numpy as np
import tensorflow as tf

from legacy_opt import versions

from .rnn_linear import check_cell
from .seq2seq_helpers import stored_privately

v1 = tf.compat.v1
Function = Callable[..., Any]


def _dense(units: int, dtype: Any, name: str) -> Any:
    return versions.layers().Dense(units, use_bias=False, dtype=dtype, name=name)


class AttentionMechanism:
    """The base class of attention mechanisms.

    Attributes:
      alignments_size: the number of steps in the memory.
      state_size: the size of the mechanism's state.
    """

    alignments_size: Any
    state_size: Any


class _Mechanism(AttentionMechanism):
    """A mechanism that compares a query with keys, the results of a linear layer on the memory."""

    # Users' subclasses read and set the private names, and override the public names.
    keys, values, batch_size, alignments_size, memory_layer, query_layer = stored_privately(
        "keys values batch_size alignments_size memory_layer query_layer"
    )
    _query_layer: Any = None

    @property
    def state_size(self) -> Any:
        return self.alignments_size

    def __init__(
        self,
        units: int,
        memory: Any,
        lengths: Any,
        probability: Optional[Callable[[tf.Tensor], tf.Tensor]],
        mask_value: Optional[float],
        dtype: Any,
        key_value_fn: Optional[Callable],
        name: str,
    ):
        self._num_units, self._lengths, self._mask_value = units, lengths, mask_value
        self._probability = probability or tf.nn.softmax
        self.dtype = tf.as_dtype(dtype or tf.float32).name
        self._memory_layer = _dense(units, self.dtype, "memory_layer")
        with v1.name_scope(name, "BaseAttentionMechanismInit", [memory]):
            self._values = self._without_padding(tf.convert_to_tensor(memory, name="memory"))
            self._keys = self._memory_layer(self._values)
            if key_value_fn is not None:
                self._keys, self._values = key_value_fn(self._keys, self._values)
            self._batch_size, self._alignments_size = known_shape(self._keys)[:2]

    def _without_padding(self, memory: tf.Tensor) -> tf.Tensor:
        if not memory.shape[2:].is_fully_defined():
            raise ValueError(f"only batch and time of the memory may be unknown, got {memory}")
        if self._lengths is None:
            return memory
        mask = tf.sequence_mask(self._lengths, tf.shape(memory)[1], memory.dtype)
        new_axes = [None] * (memory.shape.rank - 2)
        return memory * mask[(..., *new_axes)]

    def _probability_fn(self, score: tf.Tensor, _: Any) -> tf.Tensor:
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
        return tf.zeros([batch_size, self._alignments_size], dtype)

    def initial_state(self, batch_size: Any, dtype: Any) -> Any:
        """Returns the first state of the mechanism."""
        return self.initial_alignments(batch_size, dtype)


class LuongAttention(_Mechanism):
    """Attention whose scores are products of query and keys (Luong et al., 2015).

    Args:
      num_units: the size of the keys and of the queries.
      memory: the memory, of shape [batch, time, size].
      memory_sequence_length: the lengths of the sequences in the memory, of shape [batch].
      scale: whether scores are multiplied by the variable `attention_g`.
      probability_fn: a function from scores to alignments; softmax by default.
      score_mask_value: the score of steps after the end of a sequence; minus infinity by default.
      dtype: the dtype of the layers; float32 by default.
      custom_key_value_fn: a function of keys and values that returns other keys and values.
      name: the name scope of the keys.
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
        others = probability_fn, score_mask_value, dtype, custom_key_value_fn, name
        super().__init__(num_units, memory, memory_sequence_length, *others)
        self._scale = scale

    def __call__(self, query: tf.Tensor, state: Any) -> Tuple[tf.Tensor, Any]:
        if not query.shape[-1:].is_compatible_with(self._keys.shape[-1:]):
            raise ValueError(f"num_units must be the size of {query}, got {self._num_units}")
        with v1.variable_scope(None, "luong_attention", [query]):
            score = tf.squeeze(tf.matmul(query[:, None], self._keys, transpose_b=True), [1])
            if self._scale:
                ones = v1.ones_initializer()
                score = v1.get_variable("attention_g", [], query.dtype, ones) * score
        alignments = self._probability_fn(score, state)
        return alignments, alignments


class BahdanauAttention(_Mechanism):
    """Attention whose scores are a layer over the sum of query and keys (Bahdanau et al., 2014).

    The arguments are those of `LuongAttention`, except that `normalize` replaces `scale`: whether
    the weights of the layer are normalized, with the variables `attention_g` and `attention_b`.
    Queries may have another size than `num_units`.
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
        others = probability_fn, score_mask_value, dtype, custom_key_value_fn, name
        super().__init__(num_units, memory, memory_sequence_length, *others)
        self._normalize = normalize
        self._query_layer = _dense(num_units, self.dtype, "query_layer")

    def __call__(self, query: tf.Tensor, state: Any) -> Tuple[tf.Tensor, Any]:
        units, dtype = self._num_units, query.dtype
        with v1.variable_scope(None, "bahdanau_attention", [query]):
            hidden = self._keys + self.query_layer(query)[:, None]
            weights = v1.get_variable("attention_v", [units], dtype)
            if self._normalize:
                start = v1.constant_initializer(units**-0.5)
                scale = v1.get_variable("attention_g", [], dtype, start)
                weights = scale * weights * tf.math.rsqrt(tf.reduce_sum(tf.square(weights)))
                hidden += v1.get_variable("attention_b", [units], dtype, v1.zeros_initializer())
            score = tf.reduce_sum(weights * tf.tanh(hidden), [2])
        alignments = self._probability_fn(score, state)
        return alignments, alignments


_FIELDS = "cell_state attention time alignments alignment_history attention_state"


class AttentionWrapperState(collections.namedtuple("AttentionWrapperState", _FIELDS)):
    """The state of an `AttentionWrapper`.

    If there is a list of mechanisms, the last three fields are tuples. A history of alignments is a
    TensorArray, or () if it is not kept.
    """

    def clone(self, **kwargs: Any) -> AttentionWrapperState:
        """Returns a copy with other values of the same shapes."""
        return tf.nest.map_structure(_with_shape_of, self, self._replace(**kwargs))


def _with_shape_of(old: Any, new: Any) -> Any:
    if tf.is_tensor(old) and tf.is_tensor(new):
        old.shape.assert_is_compatible_with(new.shape)
        with tf.control_dependencies([v1.assert_equal(tf.shape(new), tf.shape(old))]):
            new = tf.identity(new)
        new.set_shape(old.shape)
    return new


def known_shape(tensor: Any) -> List[Any]:
    """Returns the sizes of a tensor of known rank: numbers, or tensors if they are unknown."""
    tensor = tf.convert_to_tensor(tensor)
    sizes = enumerate(tensor.shape.as_list())
    return [tf.shape(tensor)[axis] if size is None else size for axis, size in sizes]


class AttentionWrapper(versions.rnn_cell().RNNCell):
    """A cell whose input contains the last attention, and whose output attends to a memory.

    Args:
      cell: an RNNCell.
      attention_mechanism: an `AttentionMechanism`, or a list of these. If it is a list, the
        arguments `attention_layer_size` and `attention_layer` are lists, too.
      attention_layer_size: the size of a linear layer from the cell's output and the weighted mean
        of the memory to the attention; by default this mean is the attention.
      alignment_history: whether the state contains all alignments, in a TensorArray.
      cell_input_fn: a function of input and attention, instead of `tf.concat`.
      output_attention: whether the attention is the output, instead of the output of `cell`.
      initial_cell_state: the state of the cell in `zero_state`.
      name: the name of this layer.
      attention_layer: a layer instead of `attention_layer_size`.
      attention_fn: a function of mechanism, output, the mechanism's state and the layer, which
        returns attention, alignments and the next state.
      dtype: the dtype of this layer.
    """

    def __init__(
        self,
        cell: Any,
        attention_mechanism: Any,
        attention_layer_size: Optional[Any] = None,
        alignment_history: bool = False,
        cell_input_fn: Optional[Function] = None,
        output_attention: bool = True,
        initial_cell_state: Optional[Any] = None,
        name: Optional[str] = None,
        attention_layer: Optional[Any] = None,
        attention_fn: Optional[Function] = None,
        dtype: Optional[Any] = None,
    ) -> None:
        super().__init__(name=name, dtype=dtype)
        check_cell(cell)
        self._is_multi = isinstance(attention_mechanism, (list, tuple))
        self._attention_mechanisms = _as_tuple(attention_mechanism)
        for each in self._attention_mechanisms:
            if not isinstance(each, AttentionMechanism):
                raise TypeError(f"attention_mechanism must be an AttentionMechanism, got {each!r}")
        self._cell = cell
        self._cell_input_fn = cell_input_fn or (lambda *inputs: tf.concat(inputs, -1))
        if not callable(self._cell_input_fn):
            raise TypeError(f"cell_input_fn must be callable, got {cell_input_fn!r}")
        self._output_attention, self._alignment_history = output_attention, alignment_history
        self._attention_fn = attention_fn or _attention
        self._set_layers(attention_layer_size, attention_layer)
        self._initial_cell_state = initial_cell_state
        if initial_cell_state is not None:
            batch_size = known_shape(tf.nest.flatten(initial_cell_state)[-1])[0]
            self._initial_cell_state = self._checked(initial_cell_state, batch_size)

    def _set_layers(self, sizes: Any, layers: Any):
        """Sets the attention layers, and the sum of their sizes."""
        mechanisms = self._attention_mechanisms
        if sizes is not None and layers is not None:
            raise ValueError("attention_layer_size and attention_layer cannot both be given.")
        for given in sizes, layers:
            if given is not None and len(_as_tuple(given)) != len(mechanisms):
                raise ValueError(f"there are {len(mechanisms)} attention mechanisms, got {given}")
        if sizes is not None:
            layers = [
                _dense(size, mechanism.dtype, "attention_layer")
                for size, mechanism in zip(_as_tuple(sizes), mechanisms)
            ]
        self._attention_layers = _as_tuple(layers or [None] * len(mechanisms))
        self._attention_layer_size = 0
        for layer, mechanism in zip(self._attention_layers, mechanisms):
            shape = mechanism.values.shape
            if layer is not None:
                columns = self._cell.output_size + tf.compat.dimension_value(shape[-1])
                shape = layer.compute_output_shape([None, columns])
            self._attention_layer_size += tf.compat.dimension_value(shape[-1])

    def _checked(self, values: Any, batch_size: Any) -> Any:
        """Returns tensors, after a check that their batch size is that of the memory."""
        message = (
            f"{self.name}: the batch of the memory (the encoder's outputs) must be that of the "
            "decoder and of its first state."
        )
        checks = [
            v1.assert_equal(batch_size, each.batch_size, message=message)
            for each in self._attention_mechanisms
        ]
        with tf.control_dependencies(checks):
            return tf.nest.map_structure(tf.identity, values)

    def _state_of(
        self, cell_state: Any, attention: Any, time: Any, *lists: Any
    ) -> AttentionWrapperState:
        """Returns a state; the lists have an item for each mechanism."""
        items = [tuple(each) if self._is_multi else each[0] for each in lists]
        return AttentionWrapperState(cell_state, attention, time, *items)

    @property
    def output_size(self) -> Any:
        return self._attention_layer_size if self._output_attention else self._cell.output_size

    @property
    def state_size(self) -> AttentionWrapperState:
        sizes = [each.alignments_size for each in self._attention_mechanisms]
        histories = sizes if self._alignment_history else [()] * len(sizes)
        states = [each.state_size for each in self._attention_mechanisms]
        time = tf.TensorShape([])
        cell_size, attention_size = self._cell.state_size, self._attention_layer_size
        return self._state_of(cell_size, attention_size, time, sizes, histories, states)

    def zero_state(self, batch_size: Any, dtype: Any) -> AttentionWrapperState:
        mechanisms = self._attention_mechanisms
        with v1.name_scope(type(self).__name__ + "ZeroState"):
            state = self._initial_cell_state
            if state is None:
                state = self._cell.get_initial_state(batch_size=batch_size, dtype=dtype)
            state = self._checked(state, batch_size)
            attention = tf.zeros([batch_size, self._attention_layer_size], dtype)
            alignments = [each.initial_alignments(batch_size, dtype) for each in mechanisms]
            histories = [()] * len(mechanisms)
            if self._alignment_history:
                array = functools.partial(tf.TensorArray, dtype, 0, dynamic_size=True)
                histories = [array(element_shape=each.shape) for each in alignments]
            states = [each.initial_state(batch_size, dtype) for each in mechanisms]
            return self._state_of(state, attention, tf.constant(0), alignments, histories, states)

    def call(self, inputs: Any, state: AttentionWrapperState) -> Tuple[Any, AttentionWrapperState]:
        if not isinstance(state, AttentionWrapperState):
            raise TypeError(f"state must be an AttentionWrapperState, got {state!r}")
        cell_inputs = self._cell_input_fn(inputs, state.attention)
        output, cell_state = self._cell(cell_inputs, state.cell_state)
        output = self._checked(output, known_shape(output)[0])
        states, histories = state.attention_state, state.alignment_history
        if not self._is_multi:
            states, histories = [states], [histories]
        by_mechanism = zip(self._attention_mechanisms, states, self._attention_layers)
        results = [self._attention_fn(one, output, old, layer) for one, old, layer in by_mechanism]
        attentions, alignments, states = zip(*results)
        if self._alignment_history:
            pairs = zip(histories, alignments)
            histories = [history.write(state.time, each) for history, each in pairs]
        attention = tf.concat(attentions, 1)
        state = self._state_of(cell_state, attention, state.time + 1, alignments, histories, states)
        if self._output_attention:
            output = attention
        return output, state


def _as_tuple(given: Any) -> Tuple[Any, ...]:
    return tuple(given) if isinstance(given, (list, tuple)) else (given,)


def _attention(
    mechanism: Any, output: tf.Tensor, state: Any, layer: Any
) -> Tuple[tf.Tensor, tf.Tensor, Any]:
    alignments, state = mechanism(output, state=state)
    context = tf.squeeze(tf.matmul(alignments[:, None], mechanism.values), [1])
    attention = context if layer is None else layer(tf.concat([output, context], 1))
    return attention, alignments, state

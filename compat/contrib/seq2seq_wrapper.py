"""The cell of `contrib.seq2seq` that wraps another cell with attention.

The import fails on TensorFlow 2.16 and newer without tf-keras.
"""

from __future__ import annotations

import functools
from typing import Any, Callable, Optional, Tuple

import tensorflow as tf

from legacy_opt import versions

from .seq2seq_attention import AttentionMechanism, AttentionWrapperState, known_shape
from .seq2seq_decoders import check_cell

v1 = tf.compat.v1


class AttentionWrapper(versions.rnn_cell().RNNCell):
    """A cell that gets the last attention with its input, and attends to a memory by its output.

    Args:
      cell: an RNNCell.
      attention_mechanism: an `AttentionMechanism`, or a list of them.
      attention_layer_size: the size of a linear layer that makes the attention of the cell's output
        and the context, the mean of the memory; a list if there are several mechanisms. By default
        the attention is the context.
      alignment_history: whether the state contains all alignments, in a TensorArray.
      cell_input_fn: a function of input and attention that returns the cell's input; by default
        `tf.concat`.
      output_attention: whether the output is the attention, and not that of the cell.
      initial_cell_state: the state of the cell in `zero_state`.
      name: the name of this layer.
      attention_layer: a layer instead of `attention_layer_size`.
      attention_fn: a function of mechanism, output of the cell, the mechanism's state and the
        layer, which returns attention, alignments and the mechanism's next state.
      dtype: the dtype of this layer.

    Raises:
      TypeError: an argument is not what it should be.
      ValueError: there are not as many layers as mechanisms, or both `attention_layer_size` and
        `attention_layer` are given.
    """

    def __init__(
        self,
        cell: Any,
        attention_mechanism: Any,
        attention_layer_size: Optional[Any] = None,
        alignment_history: bool = False,
        cell_input_fn: Optional[Callable[..., Any]] = None,
        output_attention: bool = True,
        initial_cell_state: Optional[Any] = None,
        name: Optional[str] = None,
        attention_layer: Optional[Any] = None,
        attention_fn: Optional[Callable[..., Any]] = None,
        dtype: Optional[Any] = None,
    ) -> None:
        super().__init__(name=name, dtype=dtype)
        check_cell(cell)
        self._is_multi = isinstance(attention_mechanism, (list, tuple))
        self._attention_mechanisms = _as_tuple(attention_mechanism)
        for each in self._attention_mechanisms:
            if not isinstance(each, AttentionMechanism):
                raise TypeError(f"attention_mechanism must be an AttentionMechanism, got {each!r}")
        self._cell, self._cell_input_fn = cell, cell_input_fn or _concatenated
        if not callable(self._cell_input_fn):
            raise TypeError(f"cell_input_fn must be callable, got {cell_input_fn!r}")
        self._output_attention, self._alignment_history = output_attention, alignment_history
        self._attention_fn = attention_fn or _attention
        self._set_layers(attention_layer_size, attention_layer)
        self._initial_cell_state = initial_cell_state
        if initial_cell_state is not None:
            batch_size = known_shape(tf.nest.flatten(initial_cell_state)[-1])[0]
            self._initial_cell_state = self._checked(initial_cell_state, batch_size)

    def _set_layers(self, sizes, layers):
        """Sets the attention layers, and the sum of their sizes."""
        mechanisms = self._attention_mechanisms
        if sizes is not None and layers is not None:
            raise ValueError("attention_layer_size and attention_layer cannot both be given.")
        given = _as_tuple(layers if sizes is None else sizes)
        if given == (None,):
            given *= len(mechanisms)
        if len(given) != len(mechanisms):
            raise ValueError(
                "attention_layer_size and attention_layer must have one item for each of the "
                f"{len(mechanisms)} attention mechanisms, got {given}"
            )
        if sizes is not None:
            dense = functools.partial(
                versions.layers().Dense, use_bias=False, name="attention_layer"
            )
            given = [dense(size, dtype=each.dtype) for size, each in zip(given, mechanisms)]
        self._attention_layers, self._attention_layer_size = given, 0
        for layer, mechanism in zip(given, mechanisms):
            shape = mechanism.values.shape
            if layer is not None:
                columns = self._cell.output_size + tf.compat.dimension_value(shape[-1])
                shape = layer.compute_output_shape([None, columns])
            self._attention_layer_size += tf.compat.dimension_value(shape[-1])

    def _checked(self, values, batch_size):
        """Returns tensors, after a check that their batch is that of the memory."""
        message = (
            f"{self.name}: the batch of the memory (the encoder's outputs) must be that of the "
            "decoder and of its first state. For beam search, use tile_batch for all of them."
        )
        checks = [
            v1.assert_equal(batch_size, each.batch_size, message=message)
            for each in self._attention_mechanisms
        ]
        with tf.control_dependencies(checks):
            return tf.nest.map_structure(tf.identity, values)

    def _as_given(self, items):
        return tuple(items) if self._is_multi else next(iter(items))

    @property
    def output_size(self) -> Any:
        return self._attention_layer_size if self._output_attention else self._cell.output_size

    @property
    def state_size(self) -> AttentionWrapperState:
        mechanisms = self._attention_mechanisms
        sizes = [each.alignments_size for each in mechanisms]
        return AttentionWrapperState(
            cell_state=self._cell.state_size,
            attention=self._attention_layer_size,
            time=tf.TensorShape([]),
            alignments=self._as_given(sizes),
            alignment_history=self._as_given(
                sizes if self._alignment_history else [()] * len(sizes)
            ),
            attention_state=self._as_given(each.state_size for each in mechanisms),
        )

    def zero_state(self, batch_size: Any, dtype: Any) -> AttentionWrapperState:
        mechanisms = self._attention_mechanisms

        def history(alignments):
            shape = alignments.shape
            return tf.TensorArray(dtype, 0, dynamic_size=True, element_shape=shape)

        with v1.name_scope(type(self).__name__ + "ZeroState"):
            state = self._initial_cell_state
            if state is None:
                state = self._cell.get_initial_state(batch_size=batch_size, dtype=dtype)
            alignments = [each.initial_alignments(batch_size, dtype) for each in mechanisms]
            return AttentionWrapperState(
                cell_state=self._checked(state, batch_size),
                attention=tf.zeros([batch_size, self._attention_layer_size], dtype),
                time=tf.zeros([], tf.int32),
                alignments=self._as_given(alignments),
                alignment_history=self._as_given(
                    history(each) if self._alignment_history else () for each in alignments
                ),
                attention_state=self._as_given(
                    each.initial_state(batch_size, dtype) for each in mechanisms
                ),
            )

    def call(self, inputs: Any, state: AttentionWrapperState) -> Tuple[Any, AttentionWrapperState]:
        if not isinstance(state, AttentionWrapperState):
            raise TypeError(f"state must be an AttentionWrapperState, got {state!r}")
        cell_inputs = self._cell_input_fn(inputs, state.attention)
        output, cell_state = self._cell(cell_inputs, state.cell_state)
        output = self._checked(output, known_shape(output)[0])
        states, histories = state.attention_state, state.alignment_history
        if not self._is_multi:
            states, histories = [states], [histories]
        attentions, alignments, states = zip(
            *(
                self._attention_fn(mechanism, output, of_mechanism, layer)
                for mechanism, of_mechanism, layer in zip(
                    self._attention_mechanisms, states, self._attention_layers
                )
            )
        )
        if self._alignment_history:
            written = zip(histories, alignments)
            histories = [history.write(state.time, each) for history, each in written]
        attention = tf.concat(attentions, 1)
        next_state = AttentionWrapperState(
            cell_state=cell_state,
            attention=attention,
            time=state.time + 1,
            alignments=self._as_given(alignments),
            alignment_history=self._as_given(histories),
            attention_state=self._as_given(states),
        )
        return attention if self._output_attention else output, next_state


def _as_tuple(given):
    return tuple(given) if isinstance(given, (list, tuple)) else (given,)


def _concatenated(inputs, attention):
    return tf.concat([inputs, attention], -1)


def _attention(mechanism, output, state, layer):
    alignments, state = mechanism(output, state=state)
    context = tf.squeeze(tf.matmul(alignments[:, None], mechanism.values), [1])
    attention = context if layer is None else layer(tf.concat([output, context], 1))
    return attention, alignments, state

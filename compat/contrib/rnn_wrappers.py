"""The cells of `contrib.rnn` that wrap another cell.

Arguments of several cells: `cell` is an RNNCell, `activation` is applied to the result of a linear
layer, and `reuse` says whether the variables exist already. `input_size` is ignored, except by
`AttentionCellWrapper`. The import fails on TensorFlow 2.16 and newer without tf-keras.
"""

from __future__ import annotations

from typing import Any, Optional, Tuple

import tensorflow as tf

from legacy_opt import versions

from .rnn_cells import Activation, last_size
from .rnn_linear import check_cell, linear

v1 = tf.compat.v1
_RNNCell = versions.rnn_cell().RNNCell


class _Wrapper(_RNNCell):
    """A cell that wraps another cell."""

    def __init__(self, cell: Any, reuse: Optional[bool] = None):
        super().__init__(_reuse=reuse)
        check_cell(cell)
        self._cell: Any = cell

    @property
    def state_size(self) -> Any:
        return self._cell.state_size

    @property
    def output_size(self) -> int:
        return self._cell.output_size

    def zero_state(self, batch_size: Any, dtype: Any) -> Any:
        with tf.name_scope(type(self).__name__ + "ZeroState"):
            return self._cell.zero_state(batch_size, dtype)


class AttentionCellWrapper(_Wrapper):
    """A cell with attention to its last outputs (Cheng et al., 2016).

    Args:
      attn_length: the number of last outputs.
      attn_size: the size of the output; by default the output size of `cell`.
      attn_vec_size: the size of the hidden layer of the attention; by default `attn_size`.
      input_size: the size to which inputs are projected for `cell`; by default it does not change.
      state_is_tuple: whether states are tuples and not one tensor. The state of `cell` may be a
        tuple only if this is True.
    """

    def __init__(
        self,
        cell: Any,
        attn_length: int,
        attn_size: Optional[int] = None,
        attn_vec_size: Optional[int] = None,
        input_size: Optional[int] = None,
        state_is_tuple: bool = True,
        reuse: Optional[bool] = None,
    ) -> None:
        super().__init__(cell, reuse)
        if isinstance(cell.state_size, (list, tuple)) and not state_is_tuple:
            raise ValueError(
                "Cell returns tuple of states, but the flag state_is_tuple is not set. "
                f"State size is: {cell.state_size}"
            )
        if attn_length <= 0:
            raise ValueError(f"attn_length should be greater than zero, got {attn_length}")
        self._length, self._input_size = attn_length, input_size
        self._is_tuple = state_is_tuple
        self._size = cell.output_size if attn_size is None else attn_size
        self._vec_size = self._size if attn_vec_size is None else attn_vec_size
        self._sizes: Any = (cell.state_size, self._size, self._size * attn_length)

    @property
    def state_size(self) -> Any:
        return self._sizes if self._is_tuple else sum(self._sizes)

    @property
    def output_size(self) -> int:
        return self._size

    # As in tf.contrib, the state of `cell` begins with zeros, too, whatever its `zero_state` is.
    zero_state = _RNNCell.zero_state

    def call(self, inputs: tf.Tensor, state: Any) -> Tuple[tf.Tensor, Any]:
        parts = state if self._is_tuple else tf.split(state, self._sizes, 1)
        cell_state, attention, window = parts
        window = tf.reshape(window, [-1, self._length, self._size])
        size = self._input_size or last_size(inputs.shape)
        projected = linear([inputs, attention], size, bias=True)
        output, cell_state = self._cell(projected, cell_state)
        attention = self._attention(tf.concat(tf.nest.flatten(cell_state), 1), window)
        with v1.variable_scope("attn_output_projection"):
            output = linear([output, attention], self._size, bias=True)
        window = tf.concat([window[:, 1:], output[:, None]], 1)
        state = cell_state, attention, tf.reshape(window, [-1, self._length * self._size])
        if not self._is_tuple:
            state = tf.concat(state, 1)
        return output, state

    def _attention(self, query: tf.Tensor, window: tf.Tensor) -> tf.Tensor:
        """Returns the mean of the outputs in the window, weighted by a softmax of their scores."""
        with v1.variable_scope("attention"):
            kernel = v1.get_variable("attn_w", [1, 1, self._size, self._vec_size])
            scores = v1.get_variable("attn_v", [self._vec_size])
            outputs = window[:, :, None]  # of the shape [batch, length, 1, size]
            # A convolution of one by one multiplies each output by the matrix `kernel`.
            projected_outputs = tf.nn.conv2d(outputs, kernel, [1, 1, 1, 1], "SAME")
            projected_query = linear([query], self._vec_size, bias=True)[:, None, None]
            hidden = tf.tanh(projected_outputs + projected_query)
            shares = tf.nn.softmax(tf.reduce_sum(scores * hidden, [2, 3]))
            return tf.reduce_sum(shares[:, :, None, None] * outputs, [1, 2])


class InputProjectionWrapper(_Wrapper):
    """A cell after a linear layer, which makes inputs of size `num_proj`."""

    def __init__(
        self,
        cell: Any,
        num_proj: int,
        activation: Optional[Activation] = None,
        input_size: Optional[Any] = None,
        reuse: Optional[bool] = None,
    ) -> None:
        super().__init__(cell, reuse)
        self._num_proj, self._activation = num_proj, activation or tf.identity

    def call(self, inputs: tf.Tensor, state: Any) -> Tuple[tf.Tensor, Any]:
        projected = linear([inputs], self._num_proj, bias=True)
        return self._cell(self._activation(projected), state)


class OutputProjectionWrapper(_Wrapper):
    """A cell before a linear layer, which makes outputs of size `output_size`."""

    def __init__(
        self,
        cell: Any,
        output_size: int,
        activation: Optional[Activation] = None,
        reuse: Optional[bool] = None,
    ) -> None:
        super().__init__(cell, reuse)
        if output_size < 1:
            raise ValueError(f"Parameter output_size must be > 0: {output_size}.")
        self._output_size, self._activation = output_size, activation or tf.identity

    @property
    def output_size(self) -> int:
        return self._output_size

    def call(self, inputs: tf.Tensor, state: Any) -> Tuple[tf.Tensor, Any]:
        output, state = self._cell(inputs, state)
        return self._activation(linear([output], self._output_size, bias=True)), state


class EmbeddingWrapper(_Wrapper):
    """A cell whose inputs are ids, from 0 to `embedding_classes` - 1.

    `initializer` initializes the variable `embedding` of shape [embedding_classes, embedding_size].
    By default, it is the initializer of the scope, or draws uniform numbers with variance 1.
    """

    def __init__(
        self,
        cell: Any,
        embedding_classes: int,
        embedding_size: int,
        initializer: Optional[Any] = None,
        reuse: Optional[bool] = None,
    ) -> None:
        super().__init__(cell, reuse)
        if embedding_classes <= 0 or embedding_size <= 0:
            raise ValueError(
                "Both embedding_classes and embedding_size must be > 0: "
                f"{embedding_classes}, {embedding_size}."
            )
        self._shape, self._initializer = [embedding_classes, embedding_size], initializer

    def call(self, inputs: tf.Tensor, state: Any) -> Tuple[tf.Tensor, Any]:
        initializer = self._initializer or v1.get_variable_scope().initializer
        bound = 3**0.5  # uniform random numbers between -bound and bound have the variance 1
        with tf.device("/cpu:0"):
            embedding = v1.get_variable(
                "embedding",
                self._shape,
                tf.nest.flatten(state)[0].dtype,
                initializer or v1.random_uniform_initializer(-bound, bound),
            )
            embedded = v1.nn.embedding_lookup(embedding, tf.reshape(inputs, [-1]))
            return self._cell(embedded, state)


class HighwayWrapper(_Wrapper):
    """A cell whose outputs are mixed with its inputs (Srivastava et al., 2015).

    Input and output of `cell` have the same size.

    Args:
      couple_carry_transform_gates: if True, the gates of the input and of the output add up to 1;
        otherwise the output has a gate with its own variables.
      carry_bias_init: the initial bias of the gate of the input.
    """

    def __init__(
        self, cell: Any, couple_carry_transform_gates: bool = True, carry_bias_init: float = 1.0
    ) -> None:
        super().__init__(cell)
        self._is_coupled, self._bias_start = couple_carry_transform_gates, carry_bias_init

    # As in tf.contrib, this is not `call`, which would put the variables into a scope of their own.
    def __call__(self, inputs: Any, state: Any, scope: Optional[Any] = None) -> Tuple[Any, Any]:
        outputs, state = self._cell(inputs, state, scope=scope)
        return tf.nest.map_structure(self._mixed, inputs, outputs), state

    def _mixed(self, inputs: tf.Tensor, outputs: tf.Tensor) -> tf.Tensor:
        inputs.shape.assert_is_compatible_with(outputs.shape)
        carry = self._gate(inputs, "carry", self._bias_start)
        if self._is_coupled:
            transform = 1 - carry
        else:  # first, the gates add up to about 1, because sigmoid(-x) is 1 - sigmoid(x)
            transform = self._gate(inputs, "transform", -self._bias_start)
        return inputs * carry + outputs * transform

    def _gate(self, inputs: tf.Tensor, name: str, bias_start: float) -> tf.Tensor:
        size = last_size(inputs.shape)
        start = v1.constant_initializer(bias_start)
        weights = v1.get_variable(name + "_w", [size, size])
        bias = v1.get_variable(name + "_b", [size], initializer=start)
        return tf.sigmoid(v1.nn.xw_plus_b(inputs, weights, bias))

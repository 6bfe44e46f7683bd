"""The cells of `contrib.rnn` that are one operation of TensorFlow, and cells that run over time.

The import fails on TensorFlow 2.16 and newer without tf-keras.
"""

from __future__ import annotations

from typing import Any, Dict, Optional, Tuple

import tensorflow as tf

from legacy_opt import versions

from .rnn_cells import LayerRNNCell, LSTMCell, LSTMStateTuple, last_size

v1 = tf.compat.v1
_Layer = versions.rnn_cell().RNNCell.__base__


class _BlockLSTM(_Layer):
    """The variables of an LSTM whose gates are one operation: input, new value, forget, output."""

    def __init__(
        self,
        num_units: int,
        forget_bias: float = 1.0,
        cell_clip: Optional[float] = None,
        use_peephole: bool = False,
        dtype: Optional[Any] = None,
        reuse: Optional[bool] = None,
        name: str = "lstm_cell",
    ) -> None:
        super().__init__(_reuse=reuse, dtype=dtype, name=name)
        self.num_units = num_units
        self._num_units = num_units  # for the methods of `LSTMCell`
        self._attributes = {"forget_bias": forget_bias, "use_peephole": use_peephole}
        self._attributes["cell_clip"] = -1 if cell_clip is None else cell_clip  # -1: no clipping

    def build(self, inputs_shape: Any) -> None:
        units = self._num_units
        shape = [last_size(inputs_shape) + units, 4 * units]
        self._kernel = self.add_weight("kernel", shape)
        self._bias = self.add_weight("bias", shape[1:], initializer=v1.zeros_initializer())
        names = "w_i_diag w_f_diag w_o_diag" if self._attributes["use_peephole"] else ""
        self._peepholes = [self.add_weight(name, [units]) for name in names.split()]
        self.built = True

    def _weights(self, dtype: tf.DType) -> Dict[str, tf.Tensor]:
        zeros = tf.zeros([self._num_units], dtype)
        wci, wcf, wco = self._peepholes or [zeros] * 3
        weights = {"w": self._kernel, "wci": wci, "wcf": wcf, "wco": wco, "b": self._bias}
        return {name: tf.convert_to_tensor(value) for name, value in weights.items()}


class LSTMBlockCell(LSTMCell, _BlockLSTM, LayerRNNCell):
    """An LSTM cell that is one operation, with the variables of `LSTMCell`.

    The state c is clipped to absolute values up to `cell_clip`, unless this is None. With
    `use_peephole`, the gates depend on c, too. `dtype` is the dtype of the variables, float32 or
    float16; by default that of the inputs. The other arguments are those of `LSTMCell`.
    """

    def call(self, inputs: tf.Tensor, state: Any) -> Tuple[tf.Tensor, Any]:
        c, h = state
        weights = self._weights(inputs.dtype).values()
        c, h = tf.custom_gradient(self._step)(inputs, c, h, *weights)
        return h, LSTMStateTuple(c, h)

    def _step(self, *tensors: tf.Tensor) -> Any:
        """Returns the next state, and its gradient function, because TensorFlow 2 has none."""
        inputs = dict(zip(["x", "cs_prev", "h_prev", "w", "wci", "wcf", "wco", "b"], tensors))
        i, cs, f, o, ci, co, h = tf.raw_ops.LSTMBlockCell(**inputs, **self._attributes)

        def gradient(cs_grad: tf.Tensor, h_grad: tf.Tensor) -> Tuple[tf.Tensor, ...]:
            cs_prev_grad, gates, *peepholes = tf.raw_ops.LSTMBlockCellGrad(
                **inputs, i=i, cs=cs, f=f, o=o, ci=ci, co=co, cs_grad=cs_grad, h_grad=h_grad,
                use_peephole=self._attributes["use_peephole"],
            )  # fmt: skip
            xh_grad = tf.matmul(gates, inputs["w"], transpose_b=True)
            xh = tf.concat([inputs["x"], inputs["h_prev"]], 1)
            w_grad = tf.matmul(xh, gates, transpose_a=True)
            b_grad = tf.raw_ops.BiasAddGrad(out_backprop=gates)
            x_grad, h_prev_grad = xh_grad[:, : -self._num_units], xh_grad[:, -self._num_units :]
            return (x_grad, cs_prev_grad, h_prev_grad, w_grad, *peepholes, b_grad)

        return (cs, h), gradient


class LSTMBlockFusedCell(_BlockLSTM):
    """An LSTM over all time steps that is one operation, with the variables of `LSTMCell`.

    A call takes `inputs` of shape [time, batch, size]; `initial_state`, a pair of tensors of shape
    [batch, num_units], or the `dtype` of zeros; and `sequence_length`, of shape [batch]. A call
    returns outputs of shape [time, batch, num_units], and the last state, an `LSTMStateTuple`.

    The arguments of the constructor are those of `LSTMBlockCell`, in another order.
    """

    def __init__(
        self,
        num_units: int,
        forget_bias: float = 1.0,
        cell_clip: Optional[float] = None,
        use_peephole: bool = False,
        reuse: Optional[bool] = None,
        dtype: Optional[Any] = None,
        name: str = "lstm_fused_cell",
    ) -> None:
        super().__init__(num_units, forget_bias, cell_clip, use_peephole, dtype, reuse, name)

    def build(self, inputs_shape: Any) -> None:
        if isinstance(inputs_shape, list) or inputs_shape.ndims != 3:
            raise ValueError(f"inputs must be a tensor [time, batch, size], got {inputs_shape}")
        super().build(inputs_shape)

    def call(
        self,
        inputs: tf.Tensor,
        initial_state: Optional[Any] = None,
        dtype: Optional[Any] = None,
        sequence_length: Optional[Any] = None,
    ) -> Tuple[tf.Tensor, Any]:
        time, batch, _ = tf.unstack(tf.shape(inputs))
        if initial_state is None:
            if dtype is None:
                raise ValueError("Either initial_state or dtype needs to be specified")
            initial_state = [tf.zeros([batch, self._num_units], dtype)] * 2
        c, h = initial_state
        lengths = None if sequence_length is None else tf.cast(sequence_length, tf.int32)
        longest = time if lengths is None else tf.reduce_max(lengths)
        _, cells, _, _, _, _, outputs = tf.raw_ops.BlockLSTM(
            seq_len_max=tf.cast(longest, tf.int64), x=inputs, cs_prev=c, h_prev=h,
            **self._weights(inputs.dtype), **self._attributes,
        )  # fmt: skip
        if lengths is None:
            return outputs, LSTMStateTuple(cells[-1], outputs[-1])
        mask = tf.transpose(tf.sequence_mask(lengths, time, outputs.dtype))
        outputs *= mask[:, :, None]
        last = tf.stack([lengths, tf.range(batch)], 1)

        def last_of(first: tf.Tensor, others: tf.Tensor) -> tf.Tensor:
            # The first state is the last one where the length is 0.
            return tf.gather_nd(tf.concat([first[None], others], 0), last)

        return outputs, LSTMStateTuple(last_of(c, cells), last_of(h, outputs))


class TimeReversedFusedRNN:
    """A cell like `LSTMBlockFusedCell` that runs from the last step to the first."""

    def __init__(self, cell: Any) -> None:
        self._cell = cell

    def __call__(
        self,
        inputs: Any,
        initial_state: Optional[Any] = None,
        dtype: Optional[Any] = None,
        sequence_length: Optional[Any] = None,
        scope: Optional[Any] = None,
    ) -> Tuple[Any, Any]:
        inputs = _reversed(inputs, sequence_length)
        arguments = {"initial_state": initial_state, "sequence_length": sequence_length}
        outputs, state = self._cell(inputs, dtype=dtype, scope=scope, **arguments)
        return _reversed(outputs, sequence_length), state


def _reversed(values: Any, lengths: Optional[tf.Tensor]) -> Any:
    if isinstance(values, list):
        return values[::-1]  # with `lengths`, too, as in tf.contrib
    if lengths is None:
        return tf.reverse(values, [0])
    return tf.reverse_sequence(values, lengths, 0, 1)

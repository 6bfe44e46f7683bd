"""LSTM cells of `contrib.rnn`. The import fails on TensorFlow 2.16 and newer without tf-keras.

Arguments of several cells: `num_units` is the size of the state c, and `num_proj` the size of the
output if it is projected; `forget_bias` is added to the forget gate; `activation` is applied to new
values and to the output; `reuse` says whether the variables exist already. With `layer_norm`,
gates, new values and the state are normalized. `norm_gain` and `norm_shift` are the initial values
of the variables `gamma` and `beta`.
"""

from __future__ import annotations

from typing import Any, Callable, List, Optional, Sequence, Tuple

import tensorflow as tf

from legacy_opt import versions

v1 = tf.compat.v1
_RNN_CELL = versions.rnn_cell()
LSTMStateTuple = _RNN_CELL.LSTMStateTuple
# The base of cells that create their variables in `build`; TensorFlow does not export it.
LayerRNNCell = _RNN_CELL.BasicRNNCell.__base__
Activation = Callable[[tf.Tensor], tf.Tensor]


class LSTMCell(_RNN_CELL.RNNCell):
    """A cell with the sizes of an LSTM, whose output may be a projection."""

    _num_units: int
    _num_proj: Optional[int] = None
    _state_is_tuple: bool = True
    _layer_norm: bool = False
    _norm_start: Tuple[float, float]

    @property
    def state_size(self) -> Any:
        sizes = self._num_units, self.output_size
        return LSTMStateTuple(*sizes) if self._state_is_tuple else sum(sizes)

    @property
    def output_size(self) -> int:
        return self._num_proj or self._num_units

    def _norm(self, value: tf.Tensor, scope: str) -> tf.Tensor:
        return _layer_norm(value, scope, *self._norm_start) if self._layer_norm else value


class LayerNormBasicLSTMCell(LSTMCell):
    """An LSTM cell with layer normalization (Ba et al., 2016) and dropout of new values.

    `dropout_keep_prob`, a float or a tensor, is the share of new values that is kept. `input_size`
    is ignored.
    """

    def __init__(
        self,
        num_units: int,
        forget_bias: float = 1.0,
        input_size: Optional[Any] = None,
        activation: Activation = tf.tanh,
        layer_norm: bool = True,
        norm_gain: float = 1.0,
        norm_shift: float = 0.0,
        dropout_keep_prob: Any = 1.0,
        dropout_prob_seed: Optional[int] = None,
        reuse: Optional[bool] = None,
    ) -> None:
        super().__init__(_reuse=reuse)
        self._num_units, self._forget_bias, self._activation = num_units, forget_bias, activation
        self._layer_norm = layer_norm
        self._norm_start = norm_gain, norm_shift
        self._keep_prob, self._seed = dropout_keep_prob, dropout_prob_seed

    def call(self, inputs: tf.Tensor, state: Any) -> Tuple[tf.Tensor, Any]:
        c, h = state
        gates = tf.split(self._gates(tf.concat([inputs, h], 1)), 4, 1)
        scopes = "input", "transform", "forget", "output"
        i, j, f, o = [self._norm(value, scope) for value, scope in zip(gates, scopes)]
        new = self._activation(j)
        if not isinstance(self._keep_prob, float) or self._keep_prob < 1:
            new = v1.nn.dropout(new, rate=1 - self._keep_prob, seed=self._seed)
        c = c * tf.sigmoid(f + self._forget_bias) + tf.sigmoid(i) * new
        c = self._norm(c, "state")
        h = self._activation(c) * tf.sigmoid(o)
        return h, LSTMStateTuple(c, h)

    def _gates(self, inputs: tf.Tensor) -> tf.Tensor:
        size = 4 * self._num_units
        kernel = v1.get_variable("kernel", [last_size(inputs.shape), size], inputs.dtype)
        gates = tf.matmul(inputs, kernel)
        if self._layer_norm:
            return gates
        # As in tf.contrib, the initializer of the scope gives the bias random start values.
        return tf.nn.bias_add(gates, v1.get_variable("bias", [size], inputs.dtype))


class CoupledInputForgetGateLSTMCell(LSTMCell):
    """An LSTM cell whose input gate is 1 - forget gate (Greff et al., 2015).

    Args:
      use_peepholes: whether the gates depend on c, too.
      initializer: ignored, as in `tf.contrib`: the initializer of the scope is used.
      proj_clip: the largest absolute value of a projected output.
      num_unit_shards: the number of variables that store the weights.
      num_proj_shards: the number of variables that store the weights of the projection.
      state_is_tuple: whether states are an `LSTMStateTuple` instead of one tensor.
    """

    def __init__(
        self,
        num_units: int,
        use_peepholes: bool = False,
        initializer: Optional[Any] = None,
        num_proj: Optional[int] = None,
        proj_clip: Optional[float] = None,
        num_unit_shards: int = 1,
        num_proj_shards: int = 1,
        forget_bias: float = 1.0,
        state_is_tuple: bool = True,
        activation: Activation = tf.tanh,
        reuse: Optional[bool] = None,
        layer_norm: bool = False,
        norm_gain: float = 1.0,
        norm_shift: float = 0.0,
    ) -> None:
        super().__init__(_reuse=reuse)
        self._num_units, self._forget_bias, self._activation = num_units, forget_bias, activation
        self._use_peepholes, self._state_is_tuple = use_peepholes, state_is_tuple
        self._num_proj, self._proj_clip = num_proj, proj_clip
        self._unit_shards, self._proj_shards = num_unit_shards, num_proj_shards
        self._layer_norm = layer_norm
        self._norm_start = norm_gain, norm_shift

    def call(self, inputs: tf.Tensor, state: Any) -> Tuple[tf.Tensor, Any]:
        if not self._state_is_tuple:
            state = tf.split(state, [self._num_units, self.output_size], 1)
        c, m = state
        gates = zip(self._gates(inputs, m), ("transform", "forget", "output"))
        j, f, o = [self._norm(value, scope) for value, scope in gates]
        peepholes = self._peepholes(c.dtype)
        f = f + self._forget_bias
        forget = tf.sigmoid((f + peepholes[0] * c) if peepholes else f)
        c = forget * c + (1 - forget) * self._activation(j)
        c = self._norm(c, "state")
        m = tf.sigmoid((o + peepholes[1] * c) if peepholes else o) * self._activation(c)
        if self._num_proj is not None:
            shape = [self._num_units, self._num_proj]
            m = tf.matmul(m, _sharded("W_P", shape, m, self._proj_shards))
            if self._proj_clip is not None:
                m = tf.clip_by_value(m, -self._proj_clip, self._proj_clip)
        state = LSTMStateTuple(c, m) if self._state_is_tuple else tf.concat([c, m], 1)
        return m, state

    def _gates(self, inputs: tf.Tensor, m: tf.Tensor) -> List[tf.Tensor]:
        shape = [last_size(inputs.shape) + self.output_size, 3 * self._num_units]
        weights = _sharded("W", shape, inputs, self._unit_shards)
        # As in tf.contrib, the bias is created with layer normalization, too, which ignores it.
        bias = v1.get_variable("B", shape[1:], inputs.dtype, v1.zeros_initializer())
        gates = tf.matmul(tf.concat([inputs, m], 1), weights)
        if not self._layer_norm:
            gates = tf.nn.bias_add(gates, bias)
        return tf.split(gates, 3, 1)

    def _peepholes(self, dtype: tf.DType) -> List[tf.Variable]:
        names = ("W_F_diag", "W_O_diag") if self._use_peepholes else ()
        return [v1.get_variable(name, [self._num_units], dtype) for name in names]


class NASCell(LSTMCell, LayerRNNCell):
    """The cell that an architecture search found (Zoph and Le, 2017); `kwargs` are a layer's."""

    def __init__(
        self,
        num_units: int,
        num_proj: Optional[int] = None,
        use_bias: bool = False,
        reuse: Optional[bool] = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(_reuse=reuse, **kwargs)
        self._num_units, self._num_proj, self._use_bias = num_units, num_proj, use_bias

    def build(self, inputs_shape: Any) -> None:
        size = 8 * self._num_units
        self.recurrent_kernel = self.add_weight("recurrent_kernel", [self.output_size, size])
        self.kernel = self.add_weight("kernel", [last_size(inputs_shape), size])
        if self._use_bias:
            self.bias = self.add_weight("bias", [size], initializer=v1.zeros_initializer())
        if self._num_proj is not None:
            shape = [self._num_units, self._num_proj]
            self.projection_weights = self.add_weight("projection_weights", shape)
        self.built = True

    def call(self, inputs: tf.Tensor, state: Any) -> Tuple[tf.Tensor, Any]:
        c, m = state
        from_state = tf.matmul(m, self.recurrent_kernel)
        if self._use_bias:
            from_state = tf.nn.bias_add(from_state, self.bias)
        from_inputs = tf.split(tf.matmul(inputs, self.kernel), 8, 1)
        pairs = zip(from_inputs, tf.split(from_state, 8, 1))
        # Pair 3 is multiplied, the others are added.
        sums = [one * two if n == 3 else one + two for n, (one, two) in enumerate(pairs)]
        c = tf.tanh(tf.tanh(tf.sigmoid(sums[0]) * tf.nn.relu(sums[1])) + c)
        c = c * tf.tanh(tf.sigmoid(sums[2]) + tf.nn.relu(sums[3]))
        gate = tf.tanh(tf.tanh(sums[4]) * tf.sigmoid(sums[5]))
        gate = tf.tanh(gate + tf.sigmoid(tf.tanh(sums[6]) + tf.sigmoid(sums[7])))
        m = tf.tanh(c * gate)
        if self._num_proj is not None:
            m = tf.matmul(m, self.projection_weights)
        return m, LSTMStateTuple(c, m)


def last_size(shape: tf.TensorShape) -> int:
    """Returns the size of the last axis, which must be known when the graph is built."""
    size = tf.compat.dimension_value(shape[-1])
    if size is None:
        raise ValueError(f"Could not infer input size from the shape {shape}")
    return size


def _layer_norm(value: tf.Tensor, scope: str, gain: float, shift: float) -> tf.Tensor:
    with v1.variable_scope(scope):
        shape = [last_size(value.shape)]
        gamma = v1.get_variable("gamma", shape, value.dtype, v1.constant_initializer(gain))
        beta = v1.get_variable("beta", shape, value.dtype, v1.constant_initializer(shift))
    mean, variance = tf.nn.moments(value, [1], keepdims=True)
    epsilon = 1e-3 if value.dtype == tf.float16 else 1e-12
    return tf.nn.batch_normalization(value, mean, variance, beta, gamma, epsilon)


def _sharded(name: str, shape: Sequence[int], like: tf.Tensor, shards: int) -> tf.Tensor:
    """Returns a matrix whose rows are stored in `shards` variables of about the same size."""
    if shards > shape[0]:
        raise ValueError(f"Too many shards: shape={shape}, num_shards={shards}")
    rows, larger = divmod(shape[0], shards)
    sizes = [rows + 1] * larger + [rows] * (shards - larger)
    parts = [
        v1.get_variable(f"{name}_{number}", [size, shape[1]], like.dtype)
        for number, size in enumerate(sizes)
    ]
    if shards == 1:
        return parts[0]
    # A matrix is concatenated once: the next call of the cell finds it in the collection.
    known = {each.name: each for each in v1.get_collection("concatenated_variables")}
    full_name = f"{v1.get_variable_scope().name}/{name}/concat:0"
    if full_name not in known:
        known[full_name] = tf.concat(parts, 0, f"{name}/concat")
        v1.add_to_collection("concatenated_variables", known[full_name])
    return known[full_name]

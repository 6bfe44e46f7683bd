"""Tests of `contrib.rnn`."""

import collections

import numpy as np
import pytest
import tensorflow as tf

from legacy_opt import versions
from legacy_opt.compat.contrib import rnn
from tests.contrib.pieces import ORIGINS, OURS, piece, run

# tf_keras warns of its own cells, which are the base class and the cells that are wrapped.
pytestmark = [
    pytest.mark.keras2,
    pytest.mark.filterwarnings("ignore:.tf.nn.rnn_cell.* is deprecated:UserWarning"),
]
v1 = tf.compat.v1
RANDOM = np.random.RandomState(0)
INPUTS = RANDOM.normal(size=[2, 4, 3]).astype(np.float32)
LENGTHS = np.array([4, 2])
IDS = np.array([[0, 3, 1, 3], [2, 2, 1, 0]])[..., None]

# Grappler may add up three numbers in another order, which depends on the names of operations.
AS_WRITTEN = v1.ConfigProto()
AS_WRITTEN.graph_options.rewrite_options.arithmetic_optimization = 2  # off


def basic(units):
    return versions.rnn_cell().BasicRNNCell(units)


def gru(units):
    return versions.rnn_cell().GRUCell(units)


# {name of a test: (name of the cell, its arguments)}. Functions are called with no arguments.
CELLS = {
    "layer norm": ("LayerNormBasicLSTMCell", lambda: {"num_units": 5}),
    "layer norm, start": (
        "LayerNormBasicLSTMCell",
        lambda: {"num_units": 5, "norm_gain": 2.0, "norm_shift": 0.5, "forget_bias": 0.3},
    ),
    "no layer norm": (
        "LayerNormBasicLSTMCell",
        lambda: {"num_units": 5, "layer_norm": False, "activation": tf.nn.relu},
    ),
    "dropout": (
        "LayerNormBasicLSTMCell",
        lambda: {"num_units": 5, "dropout_keep_prob": 0.6, "dropout_prob_seed": 3},
    ),
    "coupled": ("CoupledInputForgetGateLSTMCell", lambda: {"num_units": 5}),
    "coupled, all": (
        "CoupledInputForgetGateLSTMCell",
        lambda: {
            "num_units": 5,
            "use_peepholes": True,
            "num_proj": 4,
            "proj_clip": 0.2,
            "num_unit_shards": 2,
            "num_proj_shards": 3,
            "forget_bias": 0.5,
            "state_is_tuple": False,
            "layer_norm": True,
            "activation": tf.nn.relu,
        },
    ),
    "NAS": ("NASCell", lambda: {"num_units": 5}),
    "NAS, all": ("NASCell", lambda: {"num_units": 5, "num_proj": 5, "use_bias": True}),
    "block": ("LSTMBlockCell", lambda: {"num_units": 5}),
    "block, all": (
        "LSTMBlockCell",
        lambda: {"num_units": 5, "forget_bias": 0.5, "cell_clip": 0.3, "use_peephole": True},
    ),
    "attention": ("AttentionCellWrapper", lambda: {"cell": gru(5), "attn_length": 3}),
    "attention, all": (
        "AttentionCellWrapper",
        lambda: {
            "cell": gru(5),
            "attn_length": 2,
            "attn_size": 4,
            "attn_vec_size": 6,
            "input_size": 7,
            "state_is_tuple": False,
        },
    ),
    "input projection": (
        "InputProjectionWrapper",
        lambda: {"cell": basic(5), "num_proj": 7, "activation": tf.nn.relu},
    ),
    "output projection": (
        "OutputProjectionWrapper",
        lambda: {"cell": basic(5), "output_size": 7, "activation": tf.nn.relu},
    ),
    "highway": ("HighwayWrapper", lambda: {"cell": basic(3)}),
    "highway, not coupled": (
        "HighwayWrapper",
        lambda: {"cell": basic(3), "couple_carry_transform_gates": False, "carry_bias_init": 0.5},
    ),
    "embedding": (
        "EmbeddingWrapper",
        lambda: {"cell": basic(5), "embedding_classes": 4, "embedding_size": 3},
    ),
}


Unrolled = collections.namedtuple("Unrolled", "names starts values outputs state gradients")


RARE = ("layer norm, start", "coupled", "NAS", "block", "attention, all", "highway")


def unrolled(origin, case, has_gradients=False):
    """Runs a cell over sequences, after random values have been assigned to its variables."""
    name, arguments = CELLS[case]
    with tf.Graph().as_default(), v1.Session(config=AS_WRITTEN) as session:
        v1.set_random_seed(1)
        inputs = tf.constant(IDS if case == "embedding" else INPUTS)
        cell = piece(origin, "rnn." + name)(**arguments())
        # Dropout draws its numbers in the order of the steps only if they do not run in parallel.
        tensors = v1.nn.dynamic_rnn(cell, inputs, LENGTHS, dtype=tf.float32, parallel_iterations=1)
        variables = v1.global_variables()
        gradients = []
        if has_gradients:
            gradients = v1.gradients(tensors[0], variables, unconnected_gradients="zero")
        session.run(v1.global_variables_initializer())
        starts = session.run(variables)
        random = np.random.RandomState(4)
        values = [random.normal(size=each.shape, scale=0.7).astype(np.float32) for each in starts]
        for variable, value in zip(variables, values):
            variable.load(value, session)
        names = [each.name for each in variables]
        return Unrolled(names, starts, values, *session.run([*tensors, gradients]))


@pytest.mark.contrib
@pytest.mark.parametrize(
    "case", [pytest.param(each, marks=pytest.mark.full if each in RARE else ()) for each in CELLS]
)
def test_the_bits_of_contrib(case):
    found, original = [unrolled(origin, case, has_gradients=True) for origin in (OURS, "tf")]
    assert found.names == original.names
    for one, other in zip(tf.nest.flatten(found[2:]), tf.nest.flatten(original[2:])):
        assert np.array_equal(one, other)
    # Random numbers depend on the number of operations that exist already.
    if case not in ("attention", "attention, all", "coupled, all"):
        assert all(map(np.array_equal, found.starts, original.starts))


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def normalized(x, gamma, beta):
    deviations = x - x.mean(1, keepdims=True)
    return gamma * deviations / np.sqrt((deviations**2).mean(1, keepdims=True) + 1e-12) + beta


def layer_norm_lstm(values, inputs, c, h):
    kernel, *norms = values
    gates = np.split(np.concatenate([inputs, h], 1) @ kernel, 4, 1)
    i, j, f, o = [normalized(gate, *norms[2 * n : 2 * n + 2]) for n, gate in enumerate(gates)]
    c = normalized(c * sigmoid(f + 1) + sigmoid(i) * np.tanh(j), *norms[8:])
    return np.tanh(c) * sigmoid(o), c


def coupled_lstm(values, inputs, c, h):
    kernel, bias = values
    j, f, o = np.split(np.concatenate([inputs, h], 1) @ kernel + bias, 3, 1)
    c = sigmoid(f + 1) * c + (1 - sigmoid(f + 1)) * np.tanh(j)
    return sigmoid(o) * np.tanh(c), c


def nas(values, inputs, c, h):
    recurrent, kernel, bias, projection = values
    x, h = [np.split(each, 8, 1) for each in (inputs @ kernel, h @ recurrent + bias)]
    relu = lambda values: np.maximum(values, 0)  # noqa: E731
    two = sigmoid(x[0] + h[0]) * relu(x[1] + h[1]), sigmoid(x[2] + h[2]) + relu(x[3] * h[3])
    c = np.tanh(np.tanh(two[0]) + c) * np.tanh(two[1])
    one = sigmoid(np.tanh(x[6] + h[6]) + sigmoid(x[7] + h[7]))
    one += np.tanh(np.tanh(x[4] + h[4]) * sigmoid(x[5] + h[5]))
    return np.tanh(c * np.tanh(one)) @ projection, c


def highway(values, inputs, c, h):
    kernel, bias, carry_w, carry_b = values
    h = np.tanh(np.concatenate([inputs, h], 1) @ kernel + bias)
    carry = sigmoid(inputs @ carry_w + carry_b)
    return inputs * carry + h * (1 - carry), h


@pytest.mark.parametrize("origin", ORIGINS)
@pytest.mark.parametrize(
    "case, step",
    [("layer norm", layer_norm_lstm), ("coupled", coupled_lstm), ("NAS, all", nas)],
)
def test_numpy(origin, case, step):
    _, _, values, outputs, (c, h), _ = unrolled(origin, case)
    own_c = own_h = np.zeros([2, 5])
    for number in range(4):
        new_h, new_c = step([np.float64(each) for each in values], INPUTS[:, number], own_c, own_h)
        is_running = (number < LENGTHS)[:, None]
        np.testing.assert_allclose(outputs[:, number], new_h * is_running, rtol=1e-3, atol=1e-5)
        own_c, own_h = np.where(is_running, new_c, own_c), np.where(is_running, new_h, own_h)
    np.testing.assert_allclose([c, h], [own_c, own_h], rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("origin", ORIGINS)
def test_numpy_with_wrappers(origin):
    def one_step(case, inputs):
        """Returns the output of one step from zeros, and the values of the variables."""
        name, arguments = CELLS[case]

        def build():
            cell = piece(origin, "rnn." + name)(**arguments())
            state = cell.zero_state(2, tf.float32)
            output, _ = cell(tf.constant(inputs), state)
            return output, v1.global_variables()

        output, values = run(build, seed=2)
        return output, [np.float64(value) for value in values]

    inputs = INPUTS[:, 0]
    output, (kernel, bias, cell_kernel, cell_bias) = one_step("input projection", inputs)
    projected = np.maximum(inputs @ kernel + bias, 0)
    plain = lambda inputs, kernel, bias: np.tanh(inputs @ kernel[: inputs.shape[1]] + bias)  # noqa: E731
    np.testing.assert_allclose(output, plain(projected, cell_kernel, cell_bias), atol=1e-5)

    output, (cell_kernel, cell_bias, kernel, bias) = one_step("output projection", inputs)
    hidden = plain(inputs, cell_kernel, cell_bias)
    np.testing.assert_allclose(output, np.maximum(hidden @ kernel + bias, 0), atol=1e-5)

    output, (table, cell_kernel, cell_bias) = one_step("embedding", np.array([3, 1]))
    np.testing.assert_allclose(output, plain(table[[3, 1]], cell_kernel, cell_bias), atol=1e-5)
    assert np.all(np.abs(table) <= 3**0.5) and np.max(np.abs(table)) > 1

    output, values = one_step("highway", inputs)
    np.testing.assert_allclose(output, highway(values, inputs, 0, np.zeros([2, 3]))[0], atol=1e-5)

    output, (*cell, carry_w, carry_b, other_w, other_b) = one_step("highway, not coupled", inputs)
    assert carry_b.tolist() == [0.5] * 3 and other_b.tolist() == [-0.5] * 3
    mixed = inputs * sigmoid(inputs @ carry_w + carry_b)
    mixed += plain(inputs, *cell) * sigmoid(inputs @ other_w + other_b)
    np.testing.assert_allclose(output, mixed, atol=1e-5)


@pytest.mark.parametrize("origin", ORIGINS)
def test_attention_to_the_last_outputs(origin):
    names, _, values, outputs, states, _ = unrolled(origin, "attention")
    state, attention, window = states
    by_name = {name.split("attention_cell_wrapper/")[1]: each for name, each in zip(names, values)}
    window = window.reshape(2, 3, 5)
    # The first sequence has 4 steps, so that its window contains the last 3 outputs.
    np.testing.assert_allclose(window[0], outputs[0, 1:], rtol=1e-6)
    np.testing.assert_allclose(window[1], [[0] * 5, *outputs[1, :2]], rtol=1e-6)
    hidden = np.concatenate([outputs[:1, :1] * 0, outputs[:1]], 1)[0, 1:4]  # before the last step
    features = hidden @ by_name["attention/attn_w:0"][0, 0]
    query = state[:1] @ by_name["attention/kernel:0"] + by_name["attention/bias:0"]
    scores = np.sum(by_name["attention/attn_v:0"] * np.tanh(features + query), 1)
    shares = np.exp(scores) / np.exp(scores).sum()
    np.testing.assert_allclose(attention[0], shares @ hidden, rtol=1e-4, atol=1e-6)


class Learned(versions.rnn_cell().RNNCell):
    """A cell whose first state is not zero."""

    state_size = output_size = 3

    def zero_state(self, batch_size, dtype):
        return tf.fill([batch_size, 3], tf.constant(0.5, dtype))

    def call(self, inputs, state):
        return state, state


class Echo(Learned):
    """A cell whose output is its input."""

    def call(self, inputs, state):
        return inputs, state


@pytest.mark.parametrize("origin", ORIGINS)
def test_wrappers_begin_with_the_state_of_the_cell(origin):
    cells = piece(origin, "rnn")

    def build():
        wrapped = [
            cells.InputProjectionWrapper(Learned(), 3),
            cells.OutputProjectionWrapper(Learned(), 3),
            cells.EmbeddingWrapper(Learned(), 3, 3),
            cells.HighwayWrapper(Learned()),
            cells.AttentionCellWrapper(Learned(), 1),
        ]
        states = [each.zero_state(2, tf.float64) for each in wrapped]
        names = [tf.nest.flatten(each)[0].name.split("/")[0] for each in states]
        assert names == [type(each).__name__ + "ZeroState" for each in wrapped]
        return states

    *states, (of_attention, _, _) = run(build)
    np.testing.assert_array_equal(states, np.full([4, 2, 3], 0.5))
    np.testing.assert_array_equal(of_attention, np.zeros([2, 3]))  # tf.contrib forgot this wrapper


@pytest.mark.parametrize("origin", ORIGINS)
def test_the_rows_of_a_partitioned_embedding_alternate(origin):
    def build():
        with v1.variable_scope("parts", partitioner=v1.fixed_size_partitioner(2)):
            cell = piece(origin, "rnn.EmbeddingWrapper")(Echo(), 4, 3)
            found, _ = cell(tf.constant([0, 1, 2, 3]), tf.zeros([4, 3]))
        return found, v1.global_variables()

    found, parts = run(build)
    np.testing.assert_array_equal(found, np.stack(parts, 1).reshape(4, 3))


@pytest.mark.parametrize("origin", ORIGINS)
def test_weights_in_shards_are_in_a_collection(origin):
    def build():
        arguments = {"num_unit_shards": 2, "num_proj": 4, "num_proj_shards": 3}
        cell = piece(origin, "rnn.CoupledInputForgetGateLSTMCell")(5, **arguments)
        state = cell.zero_state(2, tf.float32)
        for _ in range(2):  # the second step finds the tensors of the first
            _, state = cell(tf.constant(INPUTS[:, 0]), state)
        scope = "coupled_input_forget_gate_lstm_cell/"
        tensors = v1.get_collection("concatenated_variables")
        assert [each.name for each in tensors] == [scope + "W/concat:0", scope + "W_P/concat:0"]
        return tensors, v1.global_variables()

    (kernel, projection), (w_0, w_1, _, *shards) = run(build)
    np.testing.assert_array_equal(kernel, np.concatenate([w_0, w_1]))
    np.testing.assert_array_equal(projection, np.concatenate(shards))


def stacked(origin, with_states=False, lengths=LENGTHS):
    """Returns names of variables, outputs, and last states of two layers."""
    with tf.Graph().as_default(), v1.Session() as session:
        cells = [[gru(units) for units in (3, 4)] for _ in range(2)]
        states = [tf.fill([2, units], 0.5) for units in (3, 4)] if with_states else None
        arguments = {"initial_states_fw": states, "initial_states_bw": states}
        arguments.update(dtype=tf.float32, sequence_length=tf.constant(lengths))
        call = piece(origin, "rnn.stack_bidirectional_dynamic_rnn")
        outputs, *states = call(*cells, tf.constant(INPUTS), **arguments)
        random = np.random.RandomState(5)
        session.run(v1.global_variables_initializer())
        for each in v1.global_variables():
            each.load(random.normal(size=each.shape.as_list()).astype(np.float32), session)
        names = [each.name for each in v1.global_variables()]
        return [names, *session.run([outputs, *states])]


@pytest.mark.contrib
@pytest.mark.parametrize("with_states", [True, pytest.param(False, marks=pytest.mark.full)])
def test_stacks_have_the_bits_of_contrib(with_states):
    found, original = [stacked(each, with_states) for each in (OURS, "tf")]
    assert found[0] == original[0]
    for one, other in zip(tf.nest.flatten(found[1:]), tf.nest.flatten(original[1:])):
        assert np.array_equal(one, other)


@pytest.mark.parametrize("origin", ORIGINS)
def test_stacks(origin):
    names, outputs, forward, backward = stacked(origin)
    scopes = [f"stack_bidirectional_rnn/cell_{n}/bidirectional_rnn/{w}/gru_cell/gates/kernel:0"
              for n in range(2) for w in ("fw", "bw")]  # fmt: skip
    assert names[::4] == scopes
    assert [each.shape for each in (*forward, *backward)] == [(2, 3), (2, 4)] * 2
    # The forward half of the last output is the forward state, the backward half of the first
    # output the backward state.
    np.testing.assert_array_equal(outputs[0, 3, :4], forward[1][0])
    np.testing.assert_array_equal(outputs[1, 1, :4], forward[1][1])
    np.testing.assert_array_equal(outputs[:, 0, 4:], backward[1])
    assert not np.any(outputs[1, 2:])


@pytest.mark.parametrize("origin", ORIGINS)
def test_stacks_begin_with_the_given_states(origin):
    _, _, *states = stacked(origin, with_states=True, lengths=np.array([0, 4]))
    for forward, backward in zip(*states):  # the first sequence has no steps
        assert np.all(forward[0] == 0.5) and np.all(backward[0] == 0.5)
        assert np.all(forward[1] != 0.5)


@pytest.mark.parametrize("origin", ORIGINS)
def test_stacks_refuse(origin):
    call = piece(origin, "rnn.stack_bidirectional_dynamic_rnn")
    for cells, states in (
        *((([], [1]), None), (([1], []), None), (((1,), [1]), None), (([1], (1,)), None)),
        *((([1], [1, 2]), None), (([1], [1]), 3), (([1], [1]), [1, 2])),
    ):
        with pytest.raises(ValueError, match="cell|state"):
            call(*cells, None, states)


@pytest.mark.parametrize("origin", ORIGINS)
def test_cells_refuse(origin):
    cells = piece(origin, "rnn")
    lstm = versions.rnn_cell().LSTMCell(3)
    for call, error, message in (
        (lambda: cells.AttentionCellWrapper(None, 3), TypeError, "cell"),
        (lambda: cells.AttentionCellWrapper(lstm, 0), ValueError, "attn_length should be greater"),
        (
            lambda: cells.AttentionCellWrapper(lstm, 3, state_is_tuple=False),
            *(ValueError, "Cell returns tuple of states"),
        ),
        (lambda: cells.InputProjectionWrapper(3, 3), TypeError, "cell"),
        (lambda: cells.OutputProjectionWrapper(lstm, 0), ValueError, "output_size must be > 0: 0."),
        (lambda: cells.EmbeddingWrapper(lstm, 0, 3), ValueError, "must be > 0: 0, 3."),
    ):
        with tf.Graph().as_default(), pytest.raises(error, match=message):
            call()


def test_unknown_names():
    with pytest.raises(AttributeError, match="Did you mean 'AttentionCellWrapper'?"):
        rnn.AttentionCellWraper  # noqa: B018

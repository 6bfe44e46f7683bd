"""Tests of the cells of `contrib.rnn` that are one operation, or that run over all time steps."""

import numpy as np
import pytest
import tensorflow as tf

from legacy_opt import versions
from legacy_opt.compat.contrib import rnn
from tests.contrib.pieces import ORIGINS, OURS, piece

pytestmark = [
    pytest.mark.keras2,
    pytest.mark.filterwarnings("ignore:.tf.nn.rnn_cell.* is deprecated:UserWarning"),
]
v1 = tf.compat.v1
INPUTS = np.random.RandomState(0).normal(size=[4, 3, 2]).astype(np.float32)
LENGTHS = np.array([4, 0, 2], np.int32)
BLOCK_CELLS = "LSTMBlockCell", "LSTMBlockFusedCell"


def assert_close(found, expected):
    assert len(found) == len(expected)
    for one, other in zip(found, expected):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)


def first_state(start):
    """Returns the argument `initial_state` with the value `start`, or `dtype` for zeros."""
    if start is None:
        return {"dtype": tf.float32}
    state = versions.rnn_cell().LSTMStateTuple(*[tf.fill([3, 4], start)] * 2)
    return {"initial_state": state}


def over_time(cell, inputs, **arguments):
    """Runs a cell over sequences of shape [time, batch, size]."""
    if isinstance(cell, versions.rnn_cell().RNNCell):
        return v1.nn.dynamic_rnn(cell, inputs, LENGTHS, time_major=True, **arguments)
    return cell(inputs, sequence_length=LENGTHS, **arguments)


def in_a_session(build):
    """Returns the variables' names, and the values and gradients of what `build` returns.

    A variable's value depends only on the last part of its name.
    """
    with tf.Graph().as_default(), v1.Session() as session:
        tensors = tf.nest.flatten(build())
        variables = sorted(v1.trainable_variables(), key=lambda each: each.name)
        loss = tf.add_n([tf.reduce_sum(each**2) for each in tensors])
        gradients = v1.gradients(loss, variables)
        for variable in variables:
            seed = sum(map(ord, variable.op.name.split("/")[-1]))
            value = np.random.RandomState(seed).normal(size=variable.shape.as_list(), scale=0.7)
            variable.load(value, session)
        names = [each.op.name for each in variables]
        return [names, *session.run(tensors), *session.run(gradients)]


def block(origin, cell_name, start, **arguments):
    """Runs a block cell over `INPUTS`, in a Session."""

    def build():
        cell = piece(origin, "rnn." + cell_name)(4, **arguments)
        outputs, state = over_time(cell, tf.constant(INPUTS), **first_state(start))
        assert outputs.shape.as_list() == [4, 3, 4] and state.c.shape.as_list() == [3, 4]
        return outputs, state

    return in_a_session(build)


@pytest.mark.parametrize("origin", ORIGINS)
@pytest.mark.parametrize(
    "name, start, use_peephole",
    [
        ("LSTMBlockCell", None, True),
        ("LSTMBlockFusedCell", 0.5, False),
        pytest.param("LSTMBlockCell", 0.5, False, marks=pytest.mark.full),
        pytest.param("LSTMBlockFusedCell", None, True, marks=pytest.mark.full),
    ],
)
def test_block_cells_are_lstm_cells(origin, name, start, use_peephole):
    def plain(**arguments):
        cell = versions.rnn_cell().LSTMCell(4, use_peephole, forget_bias=0.7, **arguments)
        return over_time(cell, tf.constant(INPUTS), **first_state(start))

    same = {"use_peephole": use_peephole, "forget_bias": 0.7}
    (names, *found), (others, *expected) = block(origin, name, start, **same), in_a_session(plain)
    assert [each.split("/")[-1] for each in names] == [each.split("/")[-1] for each in others]
    assert_close(found, expected)
    # LSTMCell has no gradient where it clips, the operations have one: outputs and states only.
    _, *found = block(origin, name, start, **same, cell_clip=0.1)
    _, *expected = in_a_session(lambda: plain(cell_clip=0.1))
    assert_close(found[:3], expected[:3])


@pytest.mark.contrib
def test_the_bits_of_contrib():
    for arguments in {}, {"use_peephole": True, "cell_clip": 0.3, "forget_bias": 0.5, "name": "a"}:
        (names, *found), (others, *original) = [
            block(origin, "LSTMBlockFusedCell", 0.5, **arguments) for origin in (OURS, "tf")
        ]
        assert names == others
        assert all(map(np.array_equal, found, original))


def test_gradients_in_a_function():
    with tf.Graph().as_default(), v1.Session() as session:
        cells = [getattr(rnn, name)(4, use_peephole=True) for name in BLOCK_CELLS]
        gradients = []
        for cell, shape in zip(cells, ([3, 2], [4, 3, 2])):
            cell.build(tf.TensorShape(shape))
            assert len(cell.trainable_weights) == 5

            def outputs(cell=cell):
                return over_time(cell, tf.constant(INPUTS), dtype=tf.float32)[0]

            # The loop of dynamic_rnn is then a function, too. Functions of TensorFlow 1.15 do not
            # have the gradients of a tf.custom_gradient in a loop.
            run = outputs if tf.__version__.startswith("1.") else tf.function(outputs)
            gradients.append(v1.gradients(tf.reduce_sum(run() ** 2), cell.trainable_weights))
        session.run(v1.global_variables_initializer())
        for one, other in zip(*[cell.trainable_weights for cell in cells]):
            other.load(session.run(one), session)
        assert_close(*session.run(gradients))


def turned(values):
    """Reverses the steps of each sequence."""
    values = values.copy()
    for number, length in enumerate(LENGTHS):
        values[:length, number] = values[:length, number][::-1]
    return values


@pytest.mark.parametrize("origin", ORIGINS)
def test_from_the_last_step_to_the_first(origin):
    def run(inputs, is_reversed):
        def build():
            cell = piece(origin, "rnn.LSTMBlockFusedCell")(4)
            cell = piece(origin, "rnn.TimeReversedFusedRNN")(cell) if is_reversed else cell
            return over_time(cell, tf.constant(inputs), dtype=tf.float32, scope="a")

        names, outputs, *others = in_a_session(build)
        assert names == ["a/bias", "a/kernel"]
        return outputs, others

    (found, others), (expected, expected_others) = run(INPUTS, True), run(turned(INPUTS), False)
    assert_close([found, *others], [turned(expected), *expected_others])


@pytest.mark.parametrize("origin", ORIGINS)
def test_lists_are_reversed_whatever_the_lengths_are(origin):
    def cell(inputs, **arguments):
        seen.append(inputs)
        return inputs, arguments

    seen = []
    rest = {"initial_state": 1, "dtype": 2, "sequence_length": [3], "scope": "a"}
    reverse = piece(origin, "rnn.TimeReversedFusedRNN")(cell)
    assert reverse([1, 2, 3], *rest.values()) == ([1, 2, 3], rest)
    assert seen == [[3, 2, 1]]


@pytest.mark.parametrize("origin", ORIGINS)
def test_fused_cells_refuse(origin):
    cell = lambda: piece(origin, "rnn.LSTMBlockFusedCell")(4)  # noqa: E731
    for inputs, arguments in (
        (list(INPUTS), {"dtype": tf.float32}),
        (INPUTS[0], {"dtype": tf.float32}),
        (INPUTS, {}),
    ):
        with tf.Graph().as_default(), pytest.raises(ValueError, match="inputs|dtype|ndim"):
            cell()(tf.nest.map_structure(tf.constant, inputs), **arguments)


# Names and shapes in checkpoints of tf.contrib on TensorFlow 1.15.
IN_CHECKPOINTS = {
    "nas/nas_cell/recurrent_kernel": [3, 40],
    "nas/nas_cell/kernel": [2, 40],
    "nas/nas_cell/bias": [40],
    "nas/nas_cell/projection_weights": [5, 3],
    "block/multi_rnn_cell/cell_0/lstm_cell/kernel": [6, 16],
    "block/multi_rnn_cell/cell_0/lstm_cell/bias": [16],
    "block/multi_rnn_cell/cell_0/lstm_cell/w_i_diag": [4],
    "block/multi_rnn_cell/cell_0/lstm_cell/w_f_diag": [4],
    "block/multi_rnn_cell/cell_0/lstm_cell/w_o_diag": [4],
    "block/multi_rnn_cell/cell_1/lstm_cell/kernel": [7, 12],
    "block/multi_rnn_cell/cell_1/lstm_cell/bias": [12],
    "lstm_fused_cell/kernel": [6, 16],
    "lstm_fused_cell/bias": [16],
    "backward/kernel": [6, 16],
    "backward/bias": [16],
    "backward/w_i_diag": [4],
    "backward/w_f_diag": [4],
    "backward/w_o_diag": [4],
}


@pytest.mark.parametrize("origin", ORIGINS)
def test_checkpoints_of_contrib(origin, tmp_path):
    values = {
        name: np.random.RandomState(number).normal(size=shape).astype(np.float32)
        for number, (name, shape) in enumerate(IN_CHECKPOINTS.items())
    }
    with tf.Graph().as_default(), v1.Session() as session:
        for name, value in values.items():
            v1.get_variable(name, initializer=value)
        session.run(v1.global_variables_initializer())
        path = v1.train.Saver().save(session, str(tmp_path / "model"))
    cells = piece(origin, "rnn")
    with tf.Graph().as_default(), v1.Session() as session:
        inputs = tf.constant(INPUTS)
        over_time(cells.NASCell(5, 3, use_bias=True), inputs, dtype=tf.float32, scope="nas")
        stack = [cells.LSTMBlockCell(4, use_peephole=True), cells.LSTMBlockCell(3)]
        stack = versions.rnn_cell().MultiRNNCell(stack)
        over_time(stack, inputs, dtype=tf.float32, scope="block")
        over_time(cells.LSTMBlockFusedCell(4), inputs, dtype=tf.float32)
        backward = cells.LSTMBlockFusedCell(4, use_peephole=True, name="backward")
        over_time(cells.TimeReversedFusedRNN(backward), inputs, dtype=tf.float32)
        variables = v1.global_variables()
        assert {each.op.name: each.shape.as_list() for each in variables} == IN_CHECKPOINTS
        v1.train.Saver().restore(session, path)
        for variable, value in zip(variables, session.run(variables)):
            np.testing.assert_array_equal(value, values[variable.op.name])

"""Tests of load_v1_checkpoint with models, with AdagradDecay's two layouts, and in graph mode.

The layouts differ in the shape of a variable's decay counts. In the V1 layout, the counts are an
array with the variable's shape. In the V2 layout, there is one count per row.
"""

import numpy as np
import pytest
import tensorflow as tf

from legacy_opt import versions
from legacy_opt.compat import load_v1_checkpoint, save_v1_checkpoint, to_keras
from tests.support.checkpoints.v1_checkpoint_cases import (
    AVERAGES,
    END,
    Net,
    adam,
    layout,
    net_problem,
    training_of,
)
from tests.support.checkpoints.v1_checkpoints import (
    APIS,
    BEFORE,
    EVERY_API,
    KERAS_3,
    KerasTraining,
    assert_equal,
    assert_same_steps,
    continued_in_v1,
    keras_of,
    problem,
    same,
    tensors,
    trained_in_v1,
    write_tensors,
)
from tests.support.keras import keras_ways
from tests.support.problems import Problem

v1 = tf.compat.v1


@pytest.mark.in_turn(kind=["functional", "Sequential", "subclassed"], api=APIS)
def test_models_with_variables_that_are_not_trained(kind, api, tmp_path):
    net = Net(keras_of(api), kind)
    path = trained_in_v1(tmp_path / "model", net_problem(), adam, extra=AVERAGES)
    expected = continued_in_v1(path, net_problem(), adam, extra=AVERAGES)
    training = KerasTraining(net_problem(), adam, api, net.trained())
    report = load_v1_checkpoint(
        path,
        net.model,
        training.optimizer,
        name_map=net.v1_name,
    )
    assert report.complete and len(report.transferred) == len(tensors(path))
    assert_equal(net.averages(), AVERAGES)
    assert_equal(training.state(), expected[0])
    assert_same_steps(training.train(BEFORE, END), expected[1])
    assert_equal(training.state(), expected[2])


@EVERY_API
def test_weights_alone(api, tmp_path):
    path = trained_in_v1(tmp_path / "model", problem(), adam)
    training = KerasTraining(problem(), adam, api)
    rest = [".*/Adam(_1)?", "beta._power", "global_step"]
    report = load_v1_checkpoint(path, training.variables, None, ignore=rest)
    assert len(report.transferred) == 2
    for name, variable in training.variables.items():
        assert np.array_equal(variable.numpy(), tensors(path)[name])
    assert training.optimizer.iterations.numpy() == 0


# AdagradDecay's two layouts.


@pytest.mark.in_turn(layouts=[(1, 2), (2, 1)], api=APIS)
def test_the_counts_of_adagrad_decay_change_their_layout(layouts, api, tmp_path):
    old, new = layouts
    whole = problem(("matrix", "table", "cube", "vector"))
    path = trained_in_v1(tmp_path / "model", whole, layout(old))
    restored, steps, end = continued_in_v1(path, whole, layout(old))
    training = KerasTraining(whole, layout(new), api)
    report = load_v1_checkpoint(path, training.variables, training.optimizer)
    assert report.complete
    assert_equal(*_in_rows(training.state(), restored))
    assert_same_steps(training.train(BEFORE, END), steps)
    assert_equal(*_in_rows(training.state(), end))
    counts = end["table", "accumulator_decay_power"].reshape(-1)[:9]
    assert len(set(counts)) > 1, "the rows must have different counts"
    changed = [each for each in report.transferred if each.note]
    assert len(changed) >= 3  # the vector's counts are equal in both layouts


def _in_rows(*states):
    """Converts the decay counts in states to the V2 layout."""
    for state in states:
        for key, value in state.items():
            if key[1:] == ("accumulator_decay_power",):
                counts = value.reshape(-1)
                rows = value.shape[0]
                assert not counts[rows:].any()
                state[key] = counts[:rows]
    return states


@EVERY_API
def test_counts_of_the_v1_layout_by_hand(api, tmp_path):
    """In the V1 layout, the count of row r is element r of the flattened array."""
    old = np.zeros([4, 3], np.int64)
    old.reshape(-1)[:4] = [7, 5, 3, 1]
    arrays = {
        "table": np.ones([4, 3], "f"),
        "table/AdagradDecay": np.full([4, 3], 0.5, "f"),
        "table/AdagradDecay_1": old,
        "global_step": np.int64(30),
    }
    write_tensors(tmp_path / "old", arrays)
    variable = tf.Variable(np.zeros([4, 3], "f"), name="table")
    tables = Problem({"table": arrays["table"]}, [], ("table",), "float32")
    training = KerasTraining(tables, layout(2), api, {"table": variable})
    load_v1_checkpoint(tmp_path / "old", [variable], training.optimizer)
    assert training.state()["table", "accumulator_decay_power"].tolist() == [7, 5, 3, 1]


# Graph mode.


def test_keras_2_in_graph_mode(tmp_path):
    """Values are read and assigned in the Session that Keras 2 uses in `load_weights`."""
    path = trained_in_v1(tmp_path / "model", problem(), adam)
    restored, steps, end = continued_in_v1(path, problem(), adam)
    with tf.Graph().as_default(), v1.Session() as sess:
        variables = {n: tf.compat.v2.Variable(a * 0, name=n) for n, a in problem().values.items()}
        optimizer = to_keras(adam(), api="optimizer_v2")
        assert load_v1_checkpoint(path, variables, optimizer).complete
        placeholders = keras_ways.running._placeholders(problem())
        pairs = keras_ways.running._as_gradients(problem(), placeholders, variables)
        train_op = optimizer.apply_gradients(pairs)
        slots = keras_ways._slots(optimizer, variables)
        shared = {("shared", name): each for name, each in optimizer.non_slots.items()}
        everything = {**{(n,): v for n, v in variables.items()}, **slots, **shared}
        everything[("step",)] = optimizer.iterations
        assert_equal(sess.run(everything), restored)
        after = []
        for gradients in problem().gradients[BEFORE:]:
            sess.run(train_op, keras_ways.running._feed(placeholders, gradients))
            after.append(sess.run(variables))
        assert_same_steps(after, steps)
        assert_equal(sess.run(everything), end)
        save_v1_checkpoint(tmp_path / "out", variables, optimizer)
        saved = sess.run(everything)
    again = continued_in_v1(tmp_path / "out", problem(), adam)[0]
    assert_equal(again, saved)


def test_keras_3_has_no_graph_mode(tmp_path):
    if not KERAS_3:
        with pytest.raises(ImportError):
            versions.keras_3()
        return
    path = trained_in_v1(tmp_path / "model", problem(), adam)
    training = training_of("trained", "keras3")
    before = training.arrays()
    with tf.Graph().as_default(), v1.Session(), pytest.raises(ValueError, match="graph"):
        load_v1_checkpoint(path, training.variables, training.optimizer)
    assert same(training.arrays(), before)

"""Tests native kernels that find resource variables by their names."""

import numpy as np
import pytest
import tensorflow as tf

import legacy_opt
from legacy_opt.native.updates.one_step import GROUP_BYTES
from tests.native.training import START, Sgd, trained
from tests.support import running

pytestmark = pytest.mark.every_lane  # each TensorFlow has an operations library of its own
v1 = tf.compat.v1
NAMED = "LegacyOptUpdateNamed"


@pytest.fixture
def by_name(fresh):
    legacy_opt.native.enable(require=True, by_name=True)


def loss_of_model():
    """Returns the loss of a model with two resource variables, of which one is partitioned."""
    with v1.variable_scope("model", use_resource=True):
        one = v1.get_variable("one", initializer=START / 8)
        other = v1.get_variable("other", [6, 4], partitioner=v1.fixed_size_partitioner(3))
        total = tf.matmul(one, tf.convert_to_tensor(other), transpose_b=True)
        return tf.reduce_sum(tf.square(total - 1))


def values_after_steps(optimizer, steps=3):
    """Returns all variables by name, after training in a Session, and the operations' types."""
    with tf.Graph().as_default() as graph:
        v1.set_random_seed(1)
        train_op = optimizer.minimize(loss_of_model(), v1.train.get_or_create_global_step())
        values = running.after(train_op, steps=steps)
        return values, [each.type for each in graph.get_operations()]


@pytest.mark.parametrize(
    "make",
    [
        lambda: legacy_opt.LazyAdamOptimizer(0.1),
        lambda: legacy_opt.native.accelerate(v1.train.MomentumOptimizer(0.1, 0.9)),
    ],
    ids=["LazyAdam", "Momentum"],
)
def test_same_bits_as_by_handle(make, fresh):
    undo = legacy_opt.native.enable(require=True)
    expected, types = values_after_steps(make())
    assert NAMED not in types
    undo()
    legacy_opt.native.enable(require=True, by_name=True)
    actual, types = values_after_steps(make())
    assert types.count(NAMED) == 1
    assert "LegacyOptUpdate" not in types
    np.testing.assert_equal(actual, expected)


def test_undo(fresh):
    legacy_opt.native.enable(by_name=True)()
    legacy_opt.native.enable()
    assert NAMED not in trained(Sgd())[2]


def test_ref_variables_have_no_names(by_name):
    value, _, types = trained(Sgd(), use_resource=False)
    assert "LegacyOptUpdateRef" in types
    np.testing.assert_array_equal(value, START - 0.5)


def test_variables_in_a_container(by_name):
    """The names are those of the default container."""
    with tf.Graph().as_default() as graph, graph.container("mine"):
        Sgd().minimize(loss_of_model())
        types = {each.type for each in graph.get_operations()}
    assert "LegacyOptUpdate" in types
    assert NAMED not in types


def test_a_function_in_a_graph(by_name):
    """TensorFlow orders the operations of a function by the handles that they get."""
    with tf.Graph().as_default():
        variable = v1.get_variable("w", initializer=START, use_resource=True)
        optimizer = Sgd()
        optimizer._create_slots([variable])

        @tf.function
        def step():
            before = variable.read_value()
            optimizer.apply_gradients([(tf.ones_like(START), variable)])
            return variable.read_value() - before

        difference = step()
        with running.started() as session:
            np.testing.assert_array_equal(session.run(difference), np.full_like(START, -0.5))


def test_large_variables(by_name):
    """An operation updates one variable that is larger than a group of variables may be."""
    start = np.zeros([GROUP_BYTES // 4 + 1], np.float32)
    with tf.Graph().as_default() as graph:
        pair = [v1.get_variable(name, initializer=start, use_resource=True) for name in "ab"]
        train_op = Sgd().apply_gradients([(tf.ones_like(each), each) for each in pair])
        for each in running.after(train_op, pair):
            np.testing.assert_array_equal(each, start - 0.5)
        assert [each.type for each in graph.get_operations()].count(NAMED) == 2


def test_a_graph_that_was_saved(by_name, tmp_path):
    """The names hold in a process that imports the graph, under another name scope, too."""
    with tf.Graph().as_default():
        variable = v1.get_variable("w", initializer=START, use_resource=True)
        train_op = Sgd().apply_gradients([(tf.ones_like(START), variable)])
        names = train_op.name, v1.global_variables_initializer().name
        read = variable.read_value().name
        definition = v1.get_default_graph().as_graph_def()
    with tf.Graph().as_default() as graph:
        tf.import_graph_def(definition, name="scope")
        with v1.Session() as session:
            for name in reversed(names):
                session.run(graph.get_operation_by_name("scope/" + name))
            np.testing.assert_array_equal(session.run("scope/" + read), START - 0.5)


def test_a_variable_that_is_not_initialized(by_name):
    with tf.Graph().as_default():
        variable = v1.get_variable("weights", initializer=START, use_resource=True)
        train_op = Sgd().apply_gradients([(tf.ones_like(START), variable)])
        with v1.Session() as session, pytest.raises(tf.errors.OpError, match="weights"):
            session.run(train_op)

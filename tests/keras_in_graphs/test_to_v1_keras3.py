"""Tests to_v1 with Keras 3's optimizers, in TF1 graphs and in eager execution."""

import numpy as np
import pytest
import tensorflow as tf

from legacy_opt import versions
from legacy_opt.compat import to_keras, to_v1

from .to_v1_runs import (
    run,
    small_graph,
)

pytestmark = pytest.mark.keras3

v1 = tf.compat.v1
keras = versions.keras_3()
home = keras.optimizers


def test_adafactor():
    """The expected values come from training a keras.Variable.

    Without `to_v1`, Adafactor cannot train a tf.Variable in a tf.function, because the variable's
    name is invalid for slots.
    """
    matrix = np.arange(6, dtype="f").reshape(2, 3)
    variable = tf.Variable(matrix, name="w")
    expected = keras.Variable(matrix, name="w")
    native = home.Adafactor(0.1)

    @tf.function
    def train():
        native.apply_gradients([(tf.convert_to_tensor(expected) * 2, expected)])

    train_eagerly = to_v1(home.Adafactor(0.1))
    for _ in range(3):
        train()
        train_eagerly.apply_gradients([(variable * 2, variable)])
    np.testing.assert_allclose(variable.numpy(), expected.numpy(), rtol=1e-6)
    with tf.Graph().as_default():
        v = v1.get_variable("w", initializer=matrix, use_resource=True)
        train_op = to_v1(lambda: home.Adafactor(0.1)).minimize(tf.reduce_sum(v**2))
        now = run(train_op, 3)
    np.testing.assert_allclose(now["w"], expected.numpy(), rtol=1e-6)


def test_autograph_does_not_warn(caplog):
    caplog.set_level("WARNING", "tensorflow")
    variable, optimizer = tf.Variable([1.0]), to_v1(home.SGD(0.5))

    @tf.function
    def train():
        optimizer.apply_gradients([(variable * 1, variable)])

    train()
    assert variable.numpy() == [0.5]
    assert "report this to the TensorFlow team" not in caplog.text


# Methods and variables of the v1 optimizer.


def test_other_variables_than_it_was_built_for():
    with tf.Graph().as_default():
        optimizer = to_v1(lambda: home.SGD(0.5, 0.9))
        small_graph(optimizer)
        other = v1.get_variable("other", initializer=[1.0], use_resource=True)
        with pytest.raises(ValueError, match="built for 'w'. .* built once.*'other'"):
            optimizer.minimize(other, var_list=[other])


def test_loss_scaling():
    with tf.Graph().as_default():
        optimizer = to_v1(lambda: home.LossScaleOptimizer(home.SGD(0.5), initial_scale=4.0))
        variable = v1.get_variable("w", initializer=[1.0, 2.0], use_resource=True)
        pairs = optimizer.compute_gradients(tf.reduce_sum(variable**2))
        train_op = optimizer.apply_gradients(pairs)
        with v1.Session() as session:
            session.run(v1.global_variables_initializer())
            assert np.array_equal(session.run(pairs[0][0]), [8.0, 16.0])  # still scaled
            scale = optimizer.keras_optimizer.dynamic_scale.value
            session.run(scale.assign(2.0))
            assert np.array_equal(session.run(pairs[0][0]), [4.0, 8.0])
            session.run(train_op)
            assert np.array_equal(session.run(variable), [0.0, 0.0])
            session.run(variable.assign([np.inf, 1.0]))
            session.run(train_op)
            assert session.run(scale) == 1.0


def test_variables_of_keras_and_their_constraints():
    variable = keras.Variable([1.0, -1.0])
    variable.constraint = keras.constraints.NonNeg()
    optimizer = to_v1(home.SGD(0.5))
    optimizer.minimize(lambda: tf.reduce_sum(variable.value * 4), var_list=[variable])
    assert np.array_equal(variable.numpy(), [0.0, 0.0])
    other = keras.Variable([1.0])
    with pytest.raises(ValueError, match="built once"):
        optimizer.apply_gradients([(tf.ones([1]), other)])


def test_an_instance_made_in_a_graph():
    with tf.Graph().as_default():
        for instance in (home.SGD(0.3), home.LossScaleOptimizer(home.SGD(0.3))):
            with pytest.raises(ValueError, match="was made in a TF1 graph.*lambda: "):
                to_v1(instance)


@pytest.mark.parametrize(
    "arguments",
    [{"gradient_accumulation_steps": 2}, {"use_ema": True, "ema_overwrite_frequency": 2}],
)
def test_options_that_work_in_no_graph(arguments):
    optimizer = to_v1(home.SGD(0.5, **arguments))
    with tf.Graph().as_default(), pytest.raises(ValueError, match="does not work in a TF1 graph"):
        small_graph(optimizer)
    native, variables = home.SGD(0.5, **arguments), []
    for train in (native, optimizer):
        variables.append(tf.Variable([1.0]))
        for _ in range(4):
            train.apply_gradients([(tf.ones([1]), variables[-1])])
    assert np.array_equal(variables[0].numpy(), variables[1].numpy())


# Round trips: to_keras(to_v1(x)).


def excluding(optimizer, **which):
    optimizer.exclude_from_weight_decay(**which)
    return optimizer


@pytest.mark.parametrize(
    "make",
    [
        lambda: excluding(home.AdamW(0.1, weight_decay=0.5), var_names=["bias"]),
        lambda: home.LossScaleOptimizer(
            excluding(home.AdamW(0.1, weight_decay=0.5), var_names=["bias"])
        ),
        lambda: excluding(
            to_keras(v1.train.GradientDescentOptimizer(0.1), weight_decay=0.5), var_names=["bias"]
        ),
    ],
    ids=["own", "inner", "bridged"],
)
def test_exclusions_from_weight_decay_by_name_are_kept(make):
    keras_optimizer = make()
    with tf.Graph().as_default():
        both = [
            v1.get_variable(name, initializer=np.ones(1, "f"), use_resource=True)
            for name in ("kernel", "bias")
        ]
        optimizer = to_v1(keras_optimizer)
        now = run(optimizer.apply_gradients([(tf.zeros([1]), each) for each in both]))
    np.testing.assert_allclose([now["kernel"], now["bias"]], [[0.95], [1]], rtol=1e-6)
    bias = tf.Variable([1.0], name="bias")
    to_keras(optimizer).apply_gradients([(tf.zeros([1]), bias)])
    assert np.array_equal(bias.numpy(), [1])


def test_exclusions_from_weight_decay_by_variable_are_refused():
    variable = tf.Variable([1.0])
    optimizer = excluding(home.AdamW(0.1), var_list=[variable])
    for given in (optimizer, home.LossScaleOptimizer(optimizer)):
        with pytest.raises(ValueError, match=r"exclude_from_weight_decay\(var_list.*factory"):
            to_v1(given)

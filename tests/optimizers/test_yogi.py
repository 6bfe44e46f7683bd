"""Tests Yogi: values by hand, slots, activations and regularization."""

import numpy as np
import pytest
import tensorflow as tf

from legacy_opt import YogiOptimizer
from legacy_opt.compat import to_keras
from tests.support import running
from tests.support.running import REF_AND_RESOURCE

v1 = tf.compat.v1


@REF_AND_RESOURCE
def test_two_steps_by_hand(use_resource):
    # Learning rate 0.5, both betas 0.5, epsilon 0, v starts at 1; w 10, gradients 2 and 1.
    # t = 1: m = 1; v = 1 + 0.5 * sign(4 - 1) * 4 = 3
    #        rate = 0.5 * sqrt(0.5) / 0.5 / sqrt(3); w = 10 - rate * 1
    # t = 2: m = 1; v = 3 + 0.5 * sign(1 - 3) * 1 = 2.5
    #        rate = 0.5 * sqrt(0.75) / 0.75 / sqrt(2.5)
    with tf.Graph().as_default():
        w = v1.get_variable("w", initializer=[10.0], use_resource=use_resource)
        grad = v1.placeholder(tf.float32, [1])
        optimizer = YogiOptimizer(0.5, 0.5, 0.5, 0.0, initial_accumulator_value=1.0)
        train_op = optimizer.apply_gradients([(grad, w)])
        names = [variable.op.name for variable in v1.global_variables()]
        assert names == ["w", "step", "w/Yogi", "w/Yogi_1"]
        v, m = (optimizer.get_slot(w, name) for name in ("v", "m"))
        assert [v.op.name, m.op.name] == names[2:]
        with running.started() as session:
            session.run(train_op, {grad: [2.0]})
            first = 10 - np.sqrt(0.5) / np.sqrt(3)
            np.testing.assert_allclose(session.run(w), [first], rtol=1e-6)
            session.run(train_op, {grad: [1.0]})
            second = first - 0.5 * np.sqrt(0.75) / 0.75 / np.sqrt(2.5)
            np.testing.assert_allclose(session.run(w), [second], rtol=1e-6)
            assert session.run([v, m]) == [[2.5], [1.0]]


def test_tanh_replaces_the_sign():
    w = tf.Variable([1.0])
    optimizer = YogiOptimizer(0.5, 0.0, 0.5, activation="tanh", initial_accumulator_value=1.0)
    optimizer.apply_gradients([(tf.constant([0.99]), w)])
    square = 0.99**2
    expected = 1 + 0.5 * np.tanh(10 * (square - 1)) * square
    np.testing.assert_allclose(optimizer.get_slot(w, "v").numpy(), [expected], rtol=1e-5)


def test_no_momentum_has_no_slot():
    w = tf.Variable([1.0])
    optimizer = YogiOptimizer(beta1=0)
    optimizer.apply_gradients([(tf.constant([1.0]), w)])
    assert optimizer.get_slot_names() == ["v"]


@pytest.mark.parametrize(
    "l1, l2, expected",
    [
        # The rate is 1 and w 3 before the proximal step: beta1 = 0, sqrt(1 - beta2) = sqrt(v) / 2.
        (1.0, 0.0, 2.0),
        (4.0, 0.0, 0.0),
        (0.0, 1.0, 1.5),
        (1.0, 1.0, 1.0),
    ],
)
def test_regularization_shrinks(l1, l2, expected):
    # Learning rate 2, beta1 0, beta2 0.75, epsilon 0, v = 0.84 + 0.25 * sign(0.64 - 0.84) * 0.64
    # = 0.68; rate = 2 * 0.5 / sqrt(0.68) = 1.212678; w = 3 + rate * 0.8 before the gradient -0.8.
    rate = 1 / np.sqrt(0.68)
    w = tf.Variable([3 - 0.8 * rate, 0.8 * rate - 3], dtype=tf.float32)
    optimizer = YogiOptimizer(
        *(2.0, 0.0, 0.75, 0.0, l1 / rate, l2 / rate), initial_accumulator_value=0.84
    )
    optimizer.apply_gradients([(tf.constant([-0.8, 0.8]), w)])
    np.testing.assert_allclose(w.numpy(), [expected, -expected], atol=2e-6)


def test_wrong_arguments():
    with pytest.raises(ValueError, match='activation must be "sign" or "tanh", got \'relu\''):
        YogiOptimizer(activation="relu")
    with pytest.raises(ValueError, match="initial_accumulator_value must be positive"):
        YogiOptimizer(initial_accumulator_value=0.0)


def test_defaults():
    optimizer = YogiOptimizer()
    names = ("learning_rate", "beta1", "beta2", "epsilon", "l1_regularization_strength")
    names += ("l2_regularization_strength", "initial_accumulator_value", "activation")
    kept = [getattr(optimizer, "_" + name) for name in names]
    assert kept == [0.01, 0.9, 0.999, 1e-3, 0.0, 0.0, 1e-6, "sign"]
    assert optimizer.get_name() == "Yogi"


def test_regularization_keeps_nan():
    w = tf.Variable([1.0, 1.0])
    optimizer = YogiOptimizer(0.1, l1_regularization_strength=0.1)
    optimizer.apply_gradients([(tf.constant([np.nan, 1.0]), w)])
    assert np.isnan(w.numpy()).tolist() == [True, False]


def test_beta1_of_a_bridge_without_momentum_stays_0():
    optimizer = to_keras(YogiOptimizer(0.1, beta1=0.0))
    w = tf.Variable([1.0])
    optimizer.apply_gradients([(tf.constant([1.0]), w)])
    with pytest.raises(AttributeError, match="beta1"):
        optimizer.beta1 = 0.5

"""Tests Lion: values by hand, weight decay, rows, and the bits of Keras' Lion."""

import numpy as np
import pytest
import tensorflow as tf

from legacy_opt import LionOptimizer, UseLockingWarning
from tests.support import problems, running
from tests.support.running import REF_AND_RESOURCE

v1 = tf.compat.v1


@REF_AND_RESOURCE
def test_two_steps_by_hand(use_resource):
    # Learning rate 0.5, both betas 0.75 and 0.5, weight decay 0.25, w 8, gradients 4 and -8.
    # t = 1: mean = 0.25*4 = 1; w = 8 - 0.5 * (1 + 0.25*8) = 6.5; momentum = 0.5*4 = 2
    # t = 2: mean = 0.75*2 - 0.25*8 = -0.5; w = 6.5 - 0.5 * (-1 + 0.25*6.5) = 6.1875
    #        momentum = 0.5*2 - 0.5*8 = -3
    with tf.Graph().as_default():
        w = v1.get_variable("w", initializer=[8.0], use_resource=use_resource)
        grad = v1.placeholder(tf.float32, [1])
        optimizer = LionOptimizer(0.5, 0.75, 0.5, weight_decay=0.25)
        train_op = optimizer.apply_gradients([(grad, w)])
        assert optimizer.get_slot(w, "momentum").op.name == "w/Lion"
        with running.started() as sess:
            sess.run(train_op, {grad: [4.0]})
            assert sess.run(w) == [6.5]
            sess.run(train_op, {grad: [-8.0]})
            assert sess.run([w, optimizer.get_slot(w, "momentum")]) == [[6.1875], [-3.0]]


def test_defaults_and_wrong_arguments():
    optimizer = LionOptimizer()
    kept = [optimizer._learning_rate, optimizer._beta_1, optimizer._beta_2, optimizer._weight_decay]
    assert kept == [0.001, 0.9, 0.99, 0.0] and optimizer.get_name() == "Lion"
    for wrong in {"beta_1": 1.0}, {"beta_2": -0.1}, {"weight_decay": -1.0}:
        with pytest.raises(ValueError, match=next(iter(wrong))):
            LionOptimizer(**wrong)


def test_rows_without_a_gradient_do_not_move():
    table = tf.Variable(tf.ones([3, 2]))
    optimizer = LionOptimizer(0.5, weight_decay=0.5)
    for ids in [0, 2], [0, 0]:
        rows = tf.IndexedSlices(tf.ones([2, 2]), tf.constant(ids), tf.constant([3, 2]))
        optimizer.apply_gradients([(rows, table)])
    # 1 - 0.5 * (1 + 0.5 * 1) = 0.25; 0.25 - 0.5 * (1 + 0.5 * 0.25) = -0.3125
    np.testing.assert_array_equal(table.numpy()[:, 0], [-0.3125, 1.0, 0.25])


@pytest.mark.every_lane
def test_the_bits_of_keras():
    if not hasattr(tf.keras.optimizers, "Lion"):
        pytest.skip("this Keras has no Lion")
    problem = problems.make("dense")
    variables = {key: tf.Variable(value, name=key) for key, value in problem.values.items()}
    keras = tf.keras.optimizers.Lion(0.05)
    ours = running.eager(problem, lambda _: LionOptimizer(0.05))
    for gradients, expected in zip(problem.gradients, ours.steps):
        keras.apply_gradients([(tf.constant(gradients[key]), variables[key]) for key in variables])
        for key, variable in variables.items():
            np.testing.assert_array_equal(variable.numpy(), expected[key], err_msg=key)


def test_use_locking_warns():
    with pytest.warns(UseLockingWarning, match="LionOptimizer updates"):
        optimizer = LionOptimizer(use_locking=True)
        optimizer.apply_gradients([(tf.constant([1.0]), tf.Variable([1.0]))])

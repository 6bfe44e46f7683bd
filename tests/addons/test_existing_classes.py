"""Tests what docs/from_to.md says of classes that tf.contrib.opt and TensorFlow have, too.

The rules are the same. The last bits differ, because Addons raises beta to the power of the step,
and the optimizers of v1 multiply the powers.
"""

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_addons as tfa

import legacy_opt
from tests.addons import trainings

v1 = tf.compat.v1
THEIRS = tfa.optimizers
CLOSE, BITS = 2e-6, 0
PAIRS = {
    "AdamW": (
        lambda: THEIRS.AdamW(0.01, 0.1, epsilon=1e-8),
        lambda: legacy_opt.AdamWOptimizer(0.01, 0.1),
        CLOSE,
    ),
    "LAMB": (
        lambda: THEIRS.LAMB(0.1, weight_decay=0.01),
        lambda: legacy_opt.LAMBOptimizer(0.1, weight_decay_rate=0.01),
        CLOSE,
    ),
    "LazyAdam": (
        lambda: THEIRS.LazyAdam(0.1, epsilon=1e-8),
        lambda: legacy_opt.LazyAdamOptimizer(0.1),
        CLOSE,
    ),
    "MovingAverage": (
        lambda: THEIRS.MovingAverage(trainings.KERAS.SGD(0.1), average_decay=0.9),
        lambda: legacy_opt.MovingAverageOptimizer(v1.train.GradientDescentOptimizer(0.1), 0.9),
        BITS,
    ),
    "ProximalAdagrad": (
        lambda: THEIRS.ProximalAdagrad(0.1, 0.1, 0.01, 0.02),
        lambda: v1.train.ProximalAdagradOptimizer(0.1, 0.1, 0.01, 0.02),
        BITS,
    ),
    "SGDW": (
        lambda: THEIRS.SGDW(0.01, 0.1, momentum=0.9),
        lambda: legacy_opt.MomentumWOptimizer(0.01, 0.1, 0.9),
        CLOSE,
    ),
    "extend_with_decoupled_weight_decay": (
        lambda: THEIRS.extend_with_decoupled_weight_decay(trainings.KERAS.Adagrad)(
            0.01, learning_rate=0.1, initial_accumulator_value=0.1, epsilon=0.0
        ),
        lambda: legacy_opt.extend_with_decoupled_weight_decay(v1.train.AdagradOptimizer)(0.01, 0.1),
        CLOSE,
    ),
}


@pytest.mark.parametrize("name", PAIRS)
def test_trains_as_addons(name):
    theirs, ours, bound = PAIRS[name]
    expected = trainings.train(theirs(), trainings.new_variables())
    found = trainings.train(ours(), trainings.new_variables())
    difference = trainings.largest_difference(expected, found)
    assert difference <= bound
    moved = trainings.largest_difference(expected[:1], expected[-1:])
    assert moved > 0.1


def test_averages_are_those_of_addons():
    theirs, ours = (make() for make in PAIRS["MovingAverage"][:2])
    variables, copies = trainings.new_variables(), trainings.new_variables()
    trainings.train(theirs, variables)
    trainings.train(ours, copies)
    for name, variable in variables.items():
        expected = theirs.get_slot(variable, "average").numpy()
        np.testing.assert_allclose(ours.average(copies[name]), expected, rtol=0, atol=1e-6)
        assert np.abs(expected - variable.numpy()).max() > 0.01


def test_multi_optimizer_assigns_layers():
    layers = [tf.keras.layers.Dense(2, name=name) for name in ("first", "second")]
    model = tf.keras.Sequential([tf.keras.Input([3]), *layers])
    start = model.get_weights()
    features = np.random.RandomState(0).randn(4, 3).astype("f")

    def trained(optimizer):
        model.set_weights(start)
        for _ in range(5):
            with tf.GradientTape() as tape:
                loss = tf.reduce_sum(tf.square(model(features)))
            grads = tape.gradient(loss, model.trainable_variables)
            optimizer.apply_gradients(zip(grads, model.trainable_variables))
        return model.get_weights()

    slow, fast = trainings.KERAS.SGD(0.01), trainings.KERAS.SGD(0.1)
    expected = trained(THEIRS.MultiOptimizer([(slow, layers[0]), (fast, layers[1])]))
    found = trained(
        legacy_opt.MultiOptimizer(
            [
                (v1.train.GradientDescentOptimizer(0.01), layers[0].trainable_variables),
                (v1.train.GradientDescentOptimizer(0.1), layers[1].trainable_variables),
            ]
        )
    )
    assert all(map(np.array_equal, found, expected))
    assert not np.array_equal(start[2], expected[2])

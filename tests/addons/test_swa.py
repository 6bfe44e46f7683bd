"""Compares SWAOptimizer with SWA of Addons, bit for bit."""

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_addons as tfa

from legacy_opt import SWAOptimizer
from legacy_opt.compat import averages, to_keras
from tests.addons.two_trainings import KERAS, gap, gradients, new_variables

v1 = tf.compat.v1
ARGUMENTS = [{}, {"average_period": 1}, {"start_averaging": 3, "average_period": 4}]


def sgd():
    return v1.train.GradientDescentOptimizer(0.1)


@pytest.mark.parametrize("bridge", [False, True])
@pytest.mark.parametrize("arguments", ARGUMENTS)
def test_averages_as_addons(arguments, bridge):
    theirs = tfa.optimizers.SWA(KERAS.SGD(0.1), **arguments)
    ours = SWAOptimizer(sgd(), **arguments)
    ours = to_keras(ours) if bridge else ours
    one, other = new_variables(), new_variables()
    moved = 0.0
    for step in range(20):
        for optimizer, variables in (theirs, one), (ours, other):
            optimizer.apply_gradients(gradients(step, variables))
        assert gap(one, other) == 0
        for name, variable in one.items():
            average = theirs.get_slot(variable, "average").numpy()
            mine = ours.get_slot(other[name], "average").numpy()
            if step < arguments.get("start_averaging", 0):
                # Differs on purpose: a model of zeros is of no use.
                np.testing.assert_array_equal(average, 0)
                np.testing.assert_array_equal(mine, other[name].numpy())
            else:
                np.testing.assert_array_equal(mine, average)
            moved = max(moved, np.abs(mine - other[name].numpy()).max())
    assert moved > 0.1


def test_averages_of_a_model_equal_assign_average_vars():
    """The scope `averages` does what assign_average_vars does, and undoes it."""
    x, y = np.ones([8, 2], "f"), np.ones([8, 1], "f")
    results = []
    for make in (
        lambda: tfa.optimizers.SWA(KERAS.SGD(0.1), average_period=2),
        lambda: to_keras(SWAOptimizer(sgd(), average_period=2)),
    ):
        layer = tf.keras.layers.Dense(1, kernel_initializer="ones", input_shape=[2])
        model = tf.keras.Sequential([layer])
        model.compile(make(), "mse")
        model.fit(x, y, batch_size=1, shuffle=False, verbose=0)
        results.append(model)
    theirs, ours = results
    trained = [each.copy() for each in ours.get_weights()]
    np.testing.assert_equal(trained, theirs.get_weights())
    theirs.optimizer.assign_average_vars(theirs.trainable_variables)
    with averages(ours):
        np.testing.assert_equal(ours.get_weights(), theirs.get_weights())
        assert any((one != other).any() for one, other in zip(ours.get_weights(), trained))
    np.testing.assert_equal(ours.get_weights(), trained)

"""Tests errors that help users who move code from Keras 2 to Keras 3, or back."""

import numpy as np
import pytest
import tensorflow as tf

from legacy_opt import versions
from legacy_opt.compat import to_v1
from tests.support.keras.keras_apis import KERAS_3, OPTIMIZER_V2

bridged = KERAS_3.bridged

pytestmark = pytest.mark.keras3

keras = versions.keras_3()


def test_there_is_no_minimize():
    optimizer = bridged("Adam")
    assert not hasattr(optimizer, "minimize")
    with pytest.raises(AttributeError, match=r"no minimize.*GradientTape.*apply\(gradients, var"):
        optimizer.minimize(lambda: 0.0, [])
    assert not hasattr(keras.optimizers.Adam(), "minimize")


def test_a_variable_of_keras_3_and_an_optimizer_of_keras_3():
    variable = keras.Variable(np.ones(2, "f"))
    optimizer = to_v1(keras.optimizers.SGD(0.5))
    optimizer.minimize(lambda: tf.reduce_sum(variable.value), var_list=[variable])
    np.testing.assert_array_equal(variable.numpy(), [0.5, 0.5])


@pytest.mark.parametrize("method", ["minimize", "apply_gradients"])
def test_a_variable_of_keras_3_and_an_optimizer_of_keras_2(method):
    variable = keras.Variable(np.ones(2, "f"))
    optimizer = to_v1(OPTIMIZER_V2.optimizers.SGD(0.5))
    with pytest.raises(TypeError, match="variable of Keras 3, and this optimizer is of Keras 2"):
        if method == "minimize":
            optimizer.minimize(lambda: tf.reduce_sum(variable.value), var_list=[variable])
        else:
            optimizer.apply_gradients([(tf.ones(2), variable)])
    optimizer.minimize(lambda: tf.reduce_sum(variable.value), var_list=[variable.value])
    np.testing.assert_array_equal(variable.numpy(), [0.5, 0.5])

"""Tests gradients that are multiplied by scalars whose values change after the multiplication."""

import numpy as np
import pytest
import tensorflow as tf

from .training import START, Sgd

v1 = tf.compat.v1


def by_identity(scale):
    return tf.identity(scale)


def by_variable(scale):
    return tf.convert_to_tensor(scale)


def by_reshaped(scale):
    return tf.reshape(scale, [1, 1])


def by_computed(scale):
    return 1 / (2 * tf.convert_to_tensor(scale))


def multiplied(grad, factor):
    return grad * factor


def divided(grad, factor):
    return grad / factor


def in_a_chain(grad, factor):
    return 0.5 * (2.0 * grad * factor)


def trained(setting, operate, by, use_resource):
    with tf.Graph().as_default(), v1.Session() as session:
        variable = v1.get_variable("w", initializer=START, use_resource=use_resource)
        scale = v1.get_variable(
            "scale", initializer=0.5, trainable=False, use_resource=use_resource
        )
        grad = operate(tf.constant(START - 7), by(scale))
        with tf.control_dependencies([grad]):
            changed = scale.assign(100.0)
        optimizer = Sgd()
        optimizer.native = setting
        with tf.control_dependencies([changed.op if hasattr(changed, "op") else changed]):
            train_op = optimizer.apply_gradients([(grad, variable)])
        session.run(v1.global_variables_initializer())
        session.run(train_op)
        return session.run(variable)


@pytest.mark.parametrize("use_resource", [False, True])
@pytest.mark.parametrize("by", [by_variable, by_identity, by_reshaped, by_computed])
@pytest.mark.parametrize("operate", [multiplied, divided, in_a_chain])
def test_a_factor_that_changes_after_the_product(operate, by, use_resource, fresh):
    factor = 1.0 if by is by_computed else 0.5
    gradient = (START - 7) / factor if operate is divided else (START - 7) * factor
    for setting in ("off", "require"):
        actual = trained(setting, operate, by, use_resource)
        np.testing.assert_array_equal(actual, START - np.float32(0.5) * gradient)

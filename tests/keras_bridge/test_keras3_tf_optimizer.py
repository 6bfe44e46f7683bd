"""Tests that Keras 3 refuses v1 optimizers, and accepts optimizers that `to_keras` has bridged.

test_keras_tf_optimizer.py has similar tests for Keras 2, which has a wrapper for v1 optimizers.
"""

import numpy as np
import pytest
import tensorflow as tf

from tests.support.keras.keras3_saving import (
    MODEL,
    assert_equals_the_session,
    assert_same_state,
    compiled,
    small_layers,
    state,
    train,
    v1,
)
from tests.support.keras.keras_apis import KERAS_3

bridged = KERAS_3.bridged
keras = KERAS_3.keras

pytestmark = pytest.mark.keras3

IDS = MODEL.batches[0][0]


def the_bridge(**arguments):
    model = compiled(bridged(v1.AdamOptimizer(0.1), **arguments))
    train(model, 0, MODEL.steps)
    return model


def test_keras_3_has_no_wrapper():
    with pytest.raises(ValueError, match="optimizer"):
        compiled(v1.AdamOptimizer(0.1))
    with pytest.raises(ValueError, match="optimizer"):
        keras.optimizers.get(v1.AdamOptimizer(0.1))
    assert not hasattr(keras.optimizers, "TFOptimizer")


def test_training():
    assert_equals_the_session(the_bridge(), lambda step: v1.AdamOptimizer(0.1))


def test_get_config():
    optimizer = the_bridge().optimizer
    assert optimizer.get_config()["learning_rate"] == 0.1
    again = keras.optimizers.deserialize(keras.optimizers.serialize(optimizer))
    assert again.get_config() == optimizer.get_config()
    assert keras.optimizers.get(optimizer) is optimizer


def test_weights():
    optimizer = the_bridge().optimizer
    # The 13 variables are iterations, the learning rate, three other hyperparameters, two powers of
    # beta, and two slots for each of three model weights.
    assert len(optimizer.variables) == len(optimizer.weights) == 13
    values = [variable.numpy() for variable in optimizer.variables]
    other = bridged(v1.AdamOptimizer(0.1))
    other.build(small_layers().trainable_variables)
    other.set_weights(values)
    for value, variable in zip(values, other.variables):
        assert np.array_equal(value, variable.numpy())


def test_slots():
    model = the_bridge()
    assert model.optimizer.get_slot_names() == ["m", "v"]
    for variable in model.trainable_variables:
        assert np.any(model.optimizer.get_slot(variable, "v").numpy() > 0)


def test_learning_rate():
    schedule = keras.callbacks.LearningRateScheduler(lambda epoch: 0.25)
    model = the_bridge()
    train(model, 0, 2, callbacks=[schedule])
    assert model.optimizer.learning_rate.numpy() == 0.25
    assert model.optimizer.get_config()["learning_rate"] == 0.25


@pytest.mark.parametrize("file", ["model.keras", "model.h5"])
def test_files(file, tmp_path):
    model = the_bridge()
    model.save(str(tmp_path / file))
    loaded = keras.models.load_model(str(tmp_path / file))
    loaded.optimizer.build(loaded.trainable_variables)  # otherwise the first step would build it
    assert_same_state(state(loaded), state(model))
    for one in (model, loaded):
        one.run_eagerly = True
        train(one, 0, 2)
    assert_same_state(state(loaded), state(model))


def test_export(tmp_path):
    model = the_bridge()
    model.export(str(tmp_path / "served"), verbose=False)
    served = tf.saved_model.load(str(tmp_path / "served"))
    # TensorFlow may fuse MatMul and BiasAdd in one of the two graphs.
    np.testing.assert_allclose(served.serve(tf.constant(IDS)), model(IDS), rtol=1e-5)


def test_clipping():
    model = compiled(bridged(v1.GradientDescentOptimizer(1.0), clipvalue=2.0**-20))
    before = model.get_weights()
    train(model, 0, 1)
    changes = [np.abs(a - b).max() for a, b in zip(before, model.get_weights())]
    assert 0 < max(changes) <= 2.0**-19


def test_loss_scale():
    inner = bridged(v1.GradientDescentOptimizer(0.5))
    scaled = keras.optimizers.LossScaleOptimizer(inner, initial_scale=8.0)
    variable = keras.Variable([1.0])
    scaled.build([variable])
    with tf.GradientTape() as tape:
        loss = scaled.scale_loss(tf.reduce_sum(variable.value))
    (grad,) = tape.gradient(loss, [variable.value])
    assert grad.numpy() == [8.0]
    scaled.apply_gradients([(grad, variable)])
    assert variable.numpy() == [0.5]

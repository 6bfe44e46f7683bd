"""Compares Keras 2's own wrapper of v1 optimizers, TFOptimizer, with the bridge (`to_keras`).

The last table in docs/keras.md lists the differences. The tests check each row of the table.
"""

import numpy as np
import pytest
import tensorflow as tf

from tests.support.keras import keras_apis
from tests.support.keras.keras2_saving import IDS, TARGETS, build_model, same, train, v1
from tests.support.keras.keras_apis import OPTIMIZER_V2

bridged = OPTIMIZER_V2.bridged

keras = keras_apis.keras_2()


def keras_wrapper():
    """Trains a model whose v1 optimizer Keras wraps in a TFOptimizer, and returns the model."""
    model = build_model(v1.AdamOptimizer(0.1))
    train(model)
    return model


def the_bridge(**arguments):
    model = build_model(bridged(v1.AdamOptimizer(0.1), **arguments))
    train(model)
    return model


def test_both_train_alike():
    assert same(keras_wrapper().get_weights(), the_bridge().get_weights())
    assert type(keras_wrapper().optimizer).__name__ == "TFOptimizer"


def test_get_config():
    with pytest.raises(NotImplementedError):
        keras_wrapper().optimizer.get_config()
    assert the_bridge().optimizer.get_config()["learning_rate"] == 0.1


def test_weights():
    with pytest.raises(NotImplementedError):
        keras_wrapper().optimizer.weights  # noqa: B018
    with pytest.raises(NotImplementedError):
        keras_wrapper().optimizer.get_weights()
    # The 9 weights are iterations, two powers of beta, and two slots for each of three variables.
    assert len(the_bridge().optimizer.weights) == len(the_bridge().optimizer.get_weights()) == 9


def test_slots():
    assert not hasattr(keras_wrapper().optimizer, "get_slot_names")
    assert the_bridge().optimizer.get_slot_names() == ["m", "v"]


def test_learning_rate():
    schedule = keras.callbacks.LearningRateScheduler(lambda epoch: 0.25)
    for attribute in ("lr", "learning_rate"):
        assert not hasattr(keras_wrapper().optimizer, attribute)
    with pytest.raises(ValueError, match="lr"):
        keras_wrapper().fit(IDS, TARGETS, verbose=0, callbacks=[schedule])
    model = the_bridge()
    model.fit(IDS, TARGETS, verbose=0, callbacks=[schedule])
    assert model.optimizer.lr.numpy() == model.optimizer.learning_rate.numpy() == 0.25


def test_h5(tmp_path):
    path = str(tmp_path / "model.h5")
    keras_wrapper().save(path)
    assert getattr(keras.models.load_model(path), "optimizer", None) is None
    model = the_bridge()
    model.save(path)
    loaded = keras.models.load_model(path)
    assert same(loaded.optimizer.get_weights(), model.optimizer.get_weights())


def test_saved_model(tmp_path):
    path = str(tmp_path / "model")
    keras_wrapper().save(path, save_format="tf")
    with pytest.raises(AttributeError, match="add_slot"):
        keras.models.load_model(path)
    model = the_bridge()
    model.save(str(tmp_path / "bridged"), save_format="tf")
    loaded = keras.models.load_model(str(tmp_path / "bridged"))
    assert loaded.optimizer.get_config() == model.optimizer.get_config()


def test_clipping():
    def largest_change(model):
        before = model.get_weights()
        return max(np.abs(a - b).max() for a, b in zip(before, train(model, epochs=1)))

    model = keras_wrapper()
    model.optimizer.clipnorm = 0.0
    assert largest_change(model) > 0.1
    sgd = build_model(bridged(v1.GradientDescentOptimizer(0.1), clipnorm=0.0))
    assert largest_change(sgd) == 0


def test_loss_scale():
    if not hasattr(keras.mixed_precision, "LossScaleOptimizer"):
        return  # TensorFlow 1.15 has only an experimental LossScaleOptimizer
    LossScaleOptimizer = keras.mixed_precision.LossScaleOptimizer
    with pytest.raises(TypeError, match="inner_optimizer"):
        LossScaleOptimizer(keras_wrapper().optimizer)
    scaled = LossScaleOptimizer(
        bridged(v1.GradientDescentOptimizer(0.5)), dynamic=False, initial_scale=8
    )
    variable = tf.compat.v2.Variable([1.0])
    scaled.minimize(lambda: tf.reduce_sum(variable), [variable])
    assert variable.numpy() == 0.5

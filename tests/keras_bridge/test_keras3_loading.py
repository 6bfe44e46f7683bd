"""Loads models without variables, files without optimizer state, and files of other optimizers.

No state may be lost silently or loaded partially.
"""

import contextlib
import warnings
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tests.support.keras.keras3_saving import (
    CLASSES,
    DAILY,
    MAKERS,
    assert_same_state,
    compiled,
    small_layers,
    state,
    train,
)
from tests.support.keras.keras_apis import KERAS_3
from tests.support.keras.loading import load_model

bridged = KERAS_3.bridged
keras = KERAS_3.keras

pytestmark = pytest.mark.keras3

v1 = tf.compat.v1.train

# Files with the state of another optimizer.


@contextlib.contextmanager
def no_warnings_of_keras():
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message="Skipping variable loading")
        yield


def weights_of_one_step(optimizer, tmp_path):
    model = compiled(optimizer)
    train(model, 0, 1)
    model.save_weights(str(tmp_path / "model.weights.h5"))
    return str(tmp_path / "model.weights.h5")


OTHERS: Any = {
    "Momentum": lambda: bridged(v1.MomentumOptimizer(0.1, 0.9)),
    "other slots": lambda: bridged(v1.RMSPropOptimizer(0.1, centered=True)),
    "averages": lambda: bridged(v1.RMSPropOptimizer(0.1), use_ema=True),
    "Keras' own": lambda: keras.optimizers.RMSprop(0.1),
    "Keras' own, as many variables": lambda: keras.optimizers.Adam(0.1, amsgrad=True),
}


@pytest.mark.parametrize("other", OTHERS)
def test_weights_of_another_optimizer_are_refused(other, tmp_path):
    path = weights_of_one_step(OTHERS[other](), tmp_path)
    model = compiled(bridged(v1.RMSPropOptimizer(0.1)))
    model.optimizer.build(model.trainable_variables)
    before = [variable.numpy() for variable in model.optimizer.variables]
    with pytest.raises(ValueError, match="an optimizer other than 'RMSProp'.*skip_mismatch=True"):
        model.load_weights(path)
    with pytest.warns(UserWarning, match="an optimizer other than 'RMSProp'"):
        model.load_weights(path, skip_mismatch=True)
    after = [variable.numpy() for variable in model.optimizer.variables]
    assert all(np.array_equal(*pair) for pair in zip(before, after))
    train(model, 0, 1)


def test_keras_own_optimizer_does_not_load_bridged_weights(tmp_path):
    saved = bridged(v1.AdamOptimizer(0.1))
    path = weights_of_one_step(saved, tmp_path)
    model = compiled(keras.optimizers.Adam(0.1, amsgrad=True, use_ema=True))
    model.optimizer.build(model.trainable_variables)
    # The bridge saves one array besides its variables, so the file has as many arrays as the Keras
    # optimizer has variables. Loading fails only because the names differ.
    assert len(model.optimizer.variables) == len(saved.variables) + 1
    with pytest.raises(ValueError, match="could not be loaded"):
        model.load_weights(path)


@pytest.mark.parametrize("make", [lambda: keras.optimizers.Adam(0.1), lambda: bridged("Adam")])
def test_an_unbuilt_optimizer_skips_its_weights_with_a_warning(make, tmp_path):
    saved = make()
    path = weights_of_one_step(saved, tmp_path)
    model = compiled(make())
    count = rf"the saved optimizer has {len(saved.variables)}\b"
    with pytest.warns(UserWarning, match="Skipping variable loading for optimizer.*" + count):
        model.load_weights(path)
    assert model.optimizer.iterations.numpy() == 0


def saved_and_loaded(model, folder, *classes):
    model.save(str(folder / "model.keras"))
    with no_warnings_of_keras():
        return load_model(KERAS_3, folder / "model.keras", *classes)


@pytest.mark.parametrize("name", DAILY)
def test_a_model_that_was_never_trained_is_saved(name, tmp_path):
    model = compiled(bridged(MAKERS[name](None)))
    model.optimizer.learning_rate = 0.375
    loaded = saved_and_loaded(model, tmp_path, *CLASSES)
    model.optimizer.build(model.trainable_variables)
    assert_same_state(state(loaded), state(model))


# Models that are loaded without variables, or with variables of several dtypes.


@keras.saving.register_keras_serializable("tests")
class Late(keras.Model):
    """Creates its variables at the first call."""

    def __init__(self, **arguments):
        super().__init__(**arguments)
        self.dense = keras.layers.Dense(1, kernel_initializer="ones")

    def call(self, inputs):
        return self.dense(tf.cast(inputs, self.dense.compute_dtype))


def test_a_subclassed_model_that_was_never_called_is_saved(tmp_path):
    model = compiled(bridged("Adam"), Late())
    with pytest.warns(UserWarning):  # Keras warns that the model is not built
        model.save(str(tmp_path / "model.keras"))
    loaded = load_model(KERAS_3, tmp_path / "model.keras", Late)
    train(loaded, 0, 2)
    train(model, 0, 2)
    assert_same_state(state(loaded), state(model))


def test_a_subclassed_model_continues_training(tmp_path):
    model = compiled(bridged("Adam"), Late())
    train(model, 0, 3)
    loaded = saved_and_loaded(model, tmp_path, Late)
    train(loaded, 3, 6)
    train(model, 3, 6)
    assert_same_state(state(loaded), state(model))


@pytest.mark.parametrize("name", DAILY)
def test_a_model_without_trainable_weights_is_saved(name, tmp_path):
    layers = small_layers()
    layers.trainable = False
    model = compiled(bridged(MAKERS[name](None)), layers)
    model.optimizer.build(model.trainable_variables)
    loaded = saved_and_loaded(model, tmp_path, *CLASSES)
    assert_same_state(state(loaded), state(model))


@pytest.mark.parametrize(  # these optimizers do not use epsilon=1e-8, which is 0 in float16
    "name", ["AdagradDecay", "RowAdagrad", "case Adam", "case DiffGrad (your own rule)"]
)
def test_layers_of_several_dtypes_continue_training(name, tmp_path):
    def mixed():
        ids = keras.Input([3], dtype="int64")
        rows = keras.layers.Embedding(9, 2, dtype="float64", embeddings_initializer="ones")(ids)
        one = keras.layers.Dense(2, dtype="float16", kernel_initializer="ones")
        other = keras.layers.Dense(1, dtype="bfloat16", kernel_initializer="ones")
        return keras.Model(ids, other(one(keras.layers.Flatten(dtype="float16")(rows))))

    model = compiled(bridged(MAKERS[name](None)), mixed())
    train(model, 0, 3)
    loaded = saved_and_loaded(model, tmp_path, *CLASSES)
    train(loaded, 3, 6)
    train(model, 3, 6)
    assert_same_state(state(loaded), state(model))

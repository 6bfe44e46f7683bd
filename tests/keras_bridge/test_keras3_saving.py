"""Saves models with a bridged optimizer (made by `to_keras`) in every way that Keras 3 offers.

Training that continues from a file must equal uninterrupted training. Uninterrupted training must
equal training with the v1 optimizer in a Session. The tests compare weights, slots, steps, learning
rates and hyperparameters, bit for bit.
"""

from typing import Any, NamedTuple

import numpy as np
import pytest
import tensorflow as tf

from legacy_opt import versions
from tests.support.keras.keras3_saving import (
    DAILY,
    MAKERS,
    MODEL,
    WAYS,
    assert_equals_the_session,
    assert_same_state,
    compiled,
    state,
    train,
)
from tests.support.keras.keras_apis import KERAS_3

bridged = KERAS_3.bridged

pytestmark = pytest.mark.keras3

v1 = tf.compat.v1.train
keras = versions.keras_3()
HALF = 3  # the number of steps before saving, and also after loading


class Run(NamedTuple):
    """A model after half of the steps, and the state at the end of uninterrupted training."""

    model: Any
    end: Any


@pytest.fixture(scope="module")
def runs():
    """Returns a function that returns the `Run` of a named optimizer. Each `Run` is cached."""
    made = {}

    def run(name):
        if name not in made:
            half = compiled(bridged(MAKERS[name](None)))
            train(half, 0, HALF)
            whole = compiled(bridged(MAKERS[name](None)))
            train(whole, 0, 2 * HALF)
            made[name] = Run(half, state(whole))
            assert_equals_the_session(whole, MAKERS[name])
        return made[name]

    return run


# A value of WAYS is a pair of functions: one saves a model, the other loads and returns it.


def assert_continues(run, make, way, home):
    save, load = WAYS[way]
    save(run.model, home)
    loaded = load(home, make)
    assert_same_state(state(loaded), state(run.model))
    train(loaded, HALF, 2 * HALF)
    assert_same_state(state(loaded), run.end)


@pytest.mark.in_turn(way=WAYS, name=DAILY)
def test_training_continues_as_if_uninterrupted(name, way, runs, tmp_path):
    assert_continues(runs(name), lambda step: bridged(MAKERS[name](step)), way, tmp_path)


@pytest.mark.full
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", [name for name in MAKERS if name not in DAILY])
def test_training_continues_with_every_optimizer(name, way, runs, tmp_path):
    assert_continues(runs(name), lambda step: bridged(MAKERS[name](step)), way, tmp_path)


# Settings that are saved besides slots: assigned values, schedules, Keras' options.


def assert_continues_from_a_file(make, tmp_path, way, change=lambda optimizer: None, first=HALF):
    """Asserts that training continued from a file equals uninterrupted training."""
    runs = []
    for stop in (True, False):
        model = compiled(make(None))
        train(model, 0, 1)
        change(model.optimizer)
        train(model, 1, first)
        if stop:
            save, load = WAYS[way]
            save(model, tmp_path)
            model = load(tmp_path, make)
        train(model, first, 2 * HALF)
        runs.append(state(model))
    assert_same_state(*runs)
    return model.optimizer


QUICK = [".keras", ".weights.h5", "tf.train.Checkpoint, deferred"]
every_way = pytest.mark.parametrize(
    "way", [way if way in QUICK else pytest.param(way, marks=pytest.mark.full) for way in WAYS]
)


def _momentum(**arguments):
    return lambda step: bridged(v1.MomentumOptimizer(0.1, 0.9), **arguments)


@every_way
def test_hyperparameters_assigned_while_training_are_saved(way, tmp_path):
    def change(optimizer):
        optimizer.learning_rate = 0.375  # exact in float32
        optimizer.momentum = 0.5

    optimizer = assert_continues_from_a_file(_momentum(), tmp_path, way, change)
    assert optimizer.momentum.numpy() == 0.5
    assert optimizer.learning_rate.numpy() == 0.375


@every_way
def test_schedules_continue(way, tmp_path):
    schedule = keras.optimizers.schedules.ExponentialDecay(0.1, 2, 0.5)
    optimizer = assert_continues_from_a_file(_momentum(learning_rate=schedule), tmp_path, way)
    assert optimizer.learning_rate.numpy() == np.float32(0.1) * 0.5**3


@pytest.mark.one_lane
@every_way
@pytest.mark.parametrize(
    "arguments",
    [
        {"gradient_accumulation_steps": 2},  # saved in the middle of an accumulation
        {"use_ema": True, "ema_momentum": 0.5, "ema_overwrite_frequency": 4},
        {"clipnorm": 0.1, "weight_decay": 0.1},
    ],
    ids=lambda arguments: list(arguments)[0],
)
def test_keras_own_options_continue(arguments, way, tmp_path):
    assert_continues_from_a_file(_momentum(**arguments), tmp_path, way)


@pytest.mark.parametrize("way", [".keras", ".weights.h5"])
def test_loss_scales_continue(way, tmp_path):
    def make(step):
        adam = bridged(v1.AdamOptimizer(0.1))
        return keras.optimizers.LossScaleOptimizer(adam, dynamic_growth_steps=2, name="scaled")

    optimizer = assert_continues_from_a_file(make, tmp_path, way)
    assert optimizer.dynamic_scale.numpy() == 2.0**18


class Interrupted(Exception):
    pass


class Interrupt(keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        if batch == 1 and self.model.optimizer.iterations == 6 + 2:
            raise Interrupted


@pytest.mark.parametrize("name", ["AdagradDecay", "DiffGrad"])
def test_training_continues_after_backup_and_restore(name, tmp_path):
    def fit(model, *callbacks):
        train(model, 0, 6, epochs=3, callbacks=list(callbacks))
        return state(model)

    expected = fit(compiled(bridged(MAKERS[name](None))))
    backup = keras.callbacks.BackupAndRestore(str(tmp_path / "backup"))
    with pytest.raises(Interrupted):
        fit(compiled(bridged(MAKERS[name](None))), backup, Interrupt())
    again = compiled(bridged(MAKERS[name](None)))
    backup = keras.callbacks.BackupAndRestore(str(tmp_path / "backup"))
    assert_same_state(fit(again, backup), expected)
    assert again.optimizer.iterations.numpy() == 3 * 6


# Exported models, and other SavedModels.


def served(path, ids):
    loaded = tf.saved_model.load(str(path))
    serve = loaded.serve if hasattr(loaded, "serve") else loaded.signatures["serving_default"]
    output = serve(tf.constant(ids))
    return output.numpy() if tf.is_tensor(output) else next(iter(output.values())).numpy()


@pytest.mark.parametrize("name", ["AdagradDecay", "RowAdagrad"])
def test_an_exported_model_serves(name, runs, tmp_path):
    model = runs(name).model
    ids = MODEL.batches[0][0]
    model.export(str(tmp_path / "served"), verbose=False)
    # TensorFlow may fuse MatMul and BiasAdd in one of the two graphs.
    actual, expected = served(tmp_path / "served", ids), model.predict_on_batch(ids)
    np.testing.assert_allclose(actual, expected, rtol=1e-5)


class Trainer(tf.Module):
    """Contains a model and the model's optimizer."""

    def __init__(self, model):
        super().__init__()
        self.model = model
        self.optimizer = model.optimizer

    @tf.function(input_signature=[tf.TensorSpec([8, 3], tf.int64), tf.TensorSpec([8, 1])])
    def step(self, ids, targets):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((self.model(ids) - targets) ** 2)
        variables = self.model.trainable_variables
        gradients = tape.gradient(loss, [variable.value for variable in variables])
        self.optimizer.apply_gradients(zip(gradients, variables))
        return loss


@pytest.mark.parametrize("name", ["AdagradDecay", "DiffGrad"])
def test_a_saved_model_trains_on(name, tmp_path):
    """A saved and loaded tf.Module continues training with its optimizer and slots."""
    runs = []
    for stop in (True, False):
        trainer = Trainer(compiled(bridged(MAKERS[name](None))))
        for number, (ids, targets) in enumerate(MODEL.batches):
            if stop and number == HALF:
                tf.saved_model.save(trainer, str(tmp_path / "trainer"))
                trainer = tf.saved_model.load(str(tmp_path / "trainer"))
            runs.append(trainer.step(tf.constant(ids), tf.constant(targets)).numpy())
    assert runs[:6] == runs[6:] and len(set(runs)) > 3

"""Models with a bridged optimizer that Keras 3 saves and loads, in all ways that it knows.

Training that goes on from a file equals, bit for bit, the run that never stopped and the v1
optimizer in a Session: weights, slots, steps, learning rate and hyperparameters.
"""

import re
from typing import Any, NamedTuple

import numpy as np
import pytest
import tensorflow as tf

from legacy_opt import AdagradDecayOptimizer, versions
from tests import keras_cases, keras_ways, rules
from tests.keras3_models import bridged
from tests.test_keras_saving import RowAdagrad

pytestmark = pytest.mark.keras3

v1 = tf.compat.v1.train
keras = versions.keras_3()
MODEL = keras_ways.small_model("float32", steps=6)
HALF = 3  # steps before saving; as many come after
MAKERS: Any = {
    "Adam": lambda step: v1.AdamOptimizer(0.05),
    "AdagradDecay": lambda step: AdagradDecayOptimizer(0.1, step, 0.1, 2, 0.5),  # int64 counts
    "RowAdagrad": lambda step: RowAdagrad(0.1),  # slots unlike their variables
    "DiffGrad": lambda step: rules.MyDiffGradOptimizer(0.05),  # variables that all share
}
MAKERS.update(
    {"case " + name: case.make for name, case in keras_cases.CASES.items() if not case.only}
)
DAILY = ["Adam", "AdagradDecay", "RowAdagrad", "DiffGrad"]


def small_layers(values=None):
    """Returns a model of the same structure as `keras_ways.session_model` trains."""
    layers = keras.Sequential(
        [
            keras.Input([3], dtype="int64"),
            keras.layers.Embedding(9, 2),
            keras.layers.Flatten(),
            keras.layers.Dense(1),
        ]
    )
    layers.set_weights([(values or MODEL.values)[name] for name in ("table", "kernel", "bias")])
    return layers


def compiled(optimizer, layers=None):
    model = small_layers() if layers is None else layers
    # Building a graph takes longer than these few steps.
    model.compile(optimizer, keras.losses.MeanSquaredError(), run_eagerly=True)
    return model


def train(model, first, last, **options):
    ids, targets = (np.concatenate(part) for part in zip(*MODEL.batches[first:last]))
    return model.fit(ids, targets, keras_ways.BATCH, shuffle=False, verbose=0, **options)


def state(model):
    """Returns all that training goes by, as arrays by name, and the configuration."""
    names = {"weight %d" % n: value for n, value in enumerate(model.get_weights())}
    for number, variable in enumerate(model.optimizer.variables):
        name = re.sub(r"\w*(embeddings|kernel|bias)_", r"\1_", variable.name)  # without the layer
        names["%d %s" % (number, name)] = variable.numpy()
    return names, model.optimizer.get_config()


def assert_same_state(actual, expected):
    (arrays, config), (others, other_config) = actual, expected
    assert list(arrays) == list(others)
    for name, value in arrays.items():
        assert value.dtype == others[name].dtype, name
        assert np.array_equal(value, others[name]), name
    assert config == other_config


class Run(NamedTuple):
    """A model after half of its steps, and what became of it after all."""

    model: Any
    end: Any


@pytest.fixture(scope="module")
def runs():
    """Returns the runs that never stopped, by the optimizer's name, made when asked for."""
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


def assert_equals_the_session(model, make):
    expected = keras_ways.session_keras_3_model_without_rewriting(MODEL, make)
    variables = dict(zip(("table", "kernel", "bias"), model.trainable_variables))
    for name, variable in variables.items():
        assert np.array_equal(variable.numpy(), expected.steps[-1][name]), name
    for key, value in expected.slots.items():
        if key[0] in variables:
            name, slot = key
            own = model.optimizer.get_slot(variables[name], slot).numpy()
            assert own.dtype == value.dtype and np.array_equal(own, value), (name, slot)


# Each way: (what writes, what returns a model that has read it).


def _load_whole(home, make):
    return keras.models.load_model(str(home / "model.keras"))


def _save_h5(model, home):
    # Who was saved as .h5 is no longer saved in .keras with its optimizer, Keras' own neither.
    model.save(str(home / "model.keras"))
    keras.models.load_model(str(home / "model.keras")).save(str(home / "model.h5"))


def _load_h5(home, make):
    model = keras.models.load_model(str(home / "model.h5"))
    model.optimizer.build(model.trainable_variables)  # or in the first step
    model.run_eagerly = True  # which is not saved in .h5
    return model


def _built(make):
    model = compiled(make(None))
    model.optimizer.build(model.trainable_variables)
    return model


def _load_weights(home, make):
    model = _built(make)
    model.load_weights(str(home / "model.weights.h5"))
    return model


def _by_callback(name, load, **options):
    """As `fit` calls it, at the end of an epoch."""

    def save(model, home):
        callback = keras.callbacks.ModelCheckpoint(str(home / name), verbose=0, **options)
        callback.set_model(model)
        callback.on_train_begin()
        callback.on_epoch_begin(0)
        callback.on_epoch_end(0, {})

    return save, load


def _checkpoint(early):
    """A tf.train.Checkpoint, restored before (deferred) or after the new optimizer is built."""

    def save(model, home):
        checkpoint = tf.train.Checkpoint(model=model, optimizer=model.optimizer)
        tf.train.CheckpointManager(checkpoint, str(home), max_to_keep=1).save()

    def load(home, make):
        model = compiled(make(None)) if early else _built(make)
        checkpoint = tf.train.Checkpoint(model=model, optimizer=model.optimizer)
        status = checkpoint.restore(tf.train.latest_checkpoint(str(home)))
        status.assert_existing_objects_matched()
        model.optimizer.build(model.trainable_variables)
        status.assert_consumed()
        return model

    return save, load


WAYS: Any = {
    ".keras": (lambda model, home: model.save(str(home / "model.keras")), _load_whole),
    "legacy .h5": (_save_h5, _load_h5),
    ".weights.h5": (
        lambda model, home: model.save_weights(str(home / "model.weights.h5")),
        _load_weights,
    ),
    "ModelCheckpoint": _by_callback("model.keras", _load_whole),
    "ModelCheckpoint, weights": _by_callback(
        "model.weights.h5", _load_weights, save_weights_only=True
    ),
    "tf.train.Checkpoint, deferred": _checkpoint(early=True),
    "tf.train.Checkpoint, immediate": _checkpoint(early=False),
}


def assert_goes_on(run, make, way, home):
    save, load = WAYS[way]
    save(run.model, home)
    loaded = load(home, make)
    assert_same_state(state(loaded), state(run.model))
    train(loaded, HALF, 2 * HALF)
    assert_same_state(state(loaded), run.end)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", DAILY)
def test_training_goes_on_as_if_it_had_not_stopped(name, way, runs, tmp_path):
    assert_goes_on(runs(name), lambda step: bridged(MAKERS[name](step)), way, tmp_path)


@pytest.mark.full
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", [name for name in MAKERS if name not in DAILY])
def test_training_goes_on_with_every_optimizer(name, way, runs, tmp_path):
    assert_goes_on(runs(name), lambda step: bridged(MAKERS[name](step)), way, tmp_path)


# What a run goes by besides the optimizer's own state.


def run_on(make, tmp_path, way, change=lambda optimizer: None, first=HALF):
    """Compares a run that goes on from a file with one that never stopped."""
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
def test_what_was_assigned_while_training_stays(way, tmp_path):
    def change(optimizer):
        optimizer.learning_rate = 0.375  # float32 holds it, and so do weights
        optimizer.momentum = 0.5

    optimizer = run_on(_momentum(), tmp_path, way, change)
    assert optimizer.momentum.numpy() == 0.5
    assert optimizer.learning_rate.numpy() == 0.375


@every_way
def test_schedules_go_on(way, tmp_path):
    schedule = keras.optimizers.schedules.ExponentialDecay(0.1, 2, 0.5)
    optimizer = run_on(_momentum(learning_rate=schedule), tmp_path, way)
    assert optimizer.learning_rate.numpy() == np.float32(0.1) * 0.5**3


@every_way
@pytest.mark.parametrize(
    "arguments",
    [
        {"gradient_accumulation_steps": 2},  # three steps: in the middle of one
        {"use_ema": True, "ema_momentum": 0.5, "ema_overwrite_frequency": 4},
        {"clipnorm": 0.1, "weight_decay": 0.1},
    ],
    ids=lambda arguments: list(arguments)[0],
)
def test_what_keras_adds_goes_on(arguments, way, tmp_path):
    run_on(_momentum(**arguments), tmp_path, way)


@pytest.mark.parametrize("way", [".keras", ".weights.h5"])
def test_loss_scales_go_on(way, tmp_path):
    def make(step):
        adam = bridged(v1.AdamOptimizer(0.1))
        return keras.optimizers.LossScaleOptimizer(adam, dynamic_growth_steps=2, name="scaled")

    optimizer = run_on(make, tmp_path, way)
    assert optimizer.dynamic_scale.numpy() == 2.0**18


class Interrupted(Exception):
    pass


class Interrupt(keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        if batch == 1 and self.model.optimizer.iterations == 6 + 2:
            raise Interrupted


@pytest.mark.parametrize("name", ["AdagradDecay", "DiffGrad"])
def test_what_backup_and_restore_restores_goes_on(name, tmp_path):
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


# Models that serve.


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
    assert np.array_equal(served(tmp_path / "served", ids), model.predict_on_batch(ids))


class Trainer(tf.Module):
    """Holds a model and the optimizer that trains it."""

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
    """`tf.saved_model.save` of a module that holds an optimizer, slots and all."""
    runs = []
    for stop in (True, False):
        trainer = Trainer(compiled(bridged(MAKERS[name](None))))
        for number, (ids, targets) in enumerate(MODEL.batches):
            if stop and number == HALF:
                tf.saved_model.save(trainer, str(tmp_path / "trainer"))
                trainer = tf.saved_model.load(str(tmp_path / "trainer"))
            runs.append(trainer.step(tf.constant(ids), tf.constant(targets)).numpy())
    assert runs[:6] == runs[6:] and len(set(runs)) > 3

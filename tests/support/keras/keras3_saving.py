"""A small model, and the ways to save and load it with Keras 3."""

import re
from typing import Any

import numpy as np
import tensorflow as tf

from legacy_opt import AdagradDecayOptimizer
from tests.support import rules
from tests.support.keras import keras_cases, keras_ways
from tests.support.keras.keras_apis import KERAS_3, by_callback
from tests.support.keras.loading import load_model
from tests.support.keras.row_adagrad import RowAdagrad

v1 = tf.compat.v1.train


MODEL = keras_ways.small_model("float32", steps=6)


MAKERS: Any = {
    "Adam": lambda step: v1.AdamOptimizer(0.05),
    "AdagradDecay": lambda step: AdagradDecayOptimizer(0.1, step, 0.1, 2, 0.5),  # int64 counts
    "RowAdagrad": lambda step: RowAdagrad(0.1),  # slots with other shapes than their variables
    "DiffGrad": lambda step: rules.MyDiffGradOptimizer(0.05),  # non-slot variables
}
MAKERS.update(
    {"case " + name: case.make for name, case in keras_cases.CASES.items() if not case.only}
)


CLASSES = (RowAdagrad, rules.MyDiffGradOptimizer)
DAILY = ["Adam", "AdagradDecay", "RowAdagrad", "DiffGrad"]


def small_layers(values=None):
    """Returns a Keras model with the layers that `keras_ways.session_model` builds in a graph."""
    layers = KERAS_3.keras.Sequential(
        [
            KERAS_3.keras.Input([3], dtype="int64"),
            KERAS_3.keras.layers.Embedding(9, 2),
            KERAS_3.keras.layers.Flatten(),
            KERAS_3.keras.layers.Dense(1),
        ]
    )
    layers.set_weights([(values or MODEL.values)[name] for name in ("table", "kernel", "bias")])
    return layers


def compiled(optimizer, layers=None):
    model = small_layers() if layers is None else layers
    # Running eagerly is faster than building a graph for these few steps.
    model.compile(optimizer, KERAS_3.keras.losses.MeanSquaredError(), run_eagerly=True)
    return model


def train(model, first, last, **options):
    ids, targets = (np.concatenate(part) for part in zip(*MODEL.batches[first:last]))
    return model.fit(ids, targets, keras_ways.BATCH, shuffle=False, verbose=0, **options)


def state(model):
    """Returns the model's weights and optimizer variables by name, and the optimizer's config."""
    names = {f"weight {n}": value for n, value in enumerate(model.get_weights())}
    for number, variable in enumerate(model.optimizer.variables):
        # The layer's name is removed, because it contains a number that differs between models.
        name = re.sub(r"\w*(embeddings|kernel|bias)_", r"\1_", variable.name)
        names[f"{number} {name}"] = variable.numpy()
    return names, model.optimizer.get_config()


def assert_same_state(actual, expected):
    (arrays, config), (others, other_config) = actual, expected
    assert list(arrays) == list(others)
    for name, value in arrays.items():
        assert value.dtype == others[name].dtype, name
        assert np.array_equal(value, others[name]), name
    assert config == other_config


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


def _load_whole(home, make):
    return load_model(KERAS_3, home / "model.keras", *CLASSES)


def _save_h5(model, home):
    # If a model has been saved as .h5, Keras leaves out the optimizer when it later saves the model
    # as .keras. So only a copy is saved as .h5.
    model.save(str(home / "model.keras"))
    KERAS_3.keras.models.load_model(str(home / "model.keras")).save(str(home / "model.h5"))


def _load_h5(home, make):
    model = load_model(KERAS_3, home / "model.h5", *CLASSES)
    model.optimizer.build(model.trainable_variables)  # otherwise the first step would build it
    model.run_eagerly = True  # .h5 does not save this setting
    return model


def _built(make):
    model = compiled(make(None))
    model.optimizer.build(model.trainable_variables)
    return model


def _load_weights(home, make):
    model = _built(make)
    model.load_weights(str(home / "model.weights.h5"))
    return model


def _checkpoint(early):
    """Returns functions that save and restore a tf.train.Checkpoint.

    If `early` is true, the checkpoint is restored before the new optimizer is built; otherwise,
    afterwards.
    """

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
    "ModelCheckpoint": by_callback(KERAS_3, "model.keras", _load_whole),
    "ModelCheckpoint, weights": by_callback(
        KERAS_3, "model.weights.h5", _load_weights, save_weights_only=True
    ),
    "tf.train.Checkpoint, deferred": _checkpoint(early=True),
    "tf.train.Checkpoint, immediate": _checkpoint(early=False),
}

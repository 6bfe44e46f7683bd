"""A model with an embedding, and the ways to save and load it with Keras 2."""

import numpy as np
import tensorflow as tf

from legacy_opt import AdagradDecayOptimizer, AdagradDecayOptimizerV2
from tests.support import rules
from tests.support.keras.keras_apis import OPTIMIZER_V2, by_callback
from tests.support.keras.loading import load_model
from tests.support.keras.row_adagrad import RowAdagrad

bridged = OPTIMIZER_V2.bridged
v1 = tf.compat.v1.train


keras = OPTIMIZER_V2.keras


def plain():
    """Returns Keras' own Adam."""
    return OPTIMIZER_V2.optimizers.Adam(0.1)


OPTIMIZERS = {
    "Keras' Adam": plain,
    "Adam": lambda: bridged(v1.AdamOptimizer(0.1)),
    "AdagradDecay": lambda: bridged(AdagradDecayOptimizer(0.1, None, 0.1, 4, 0.5)),
    "AdagradDecayV2": lambda: bridged(AdagradDecayOptimizerV2(0.1, None, 0.1, 4, 0.5)),
    "DiffGrad": lambda: bridged(rules.MyDiffGradOptimizer(0.1)),
    "RowAdagrad": lambda: bridged(RowAdagrad(0.1)),
}


IDS = np.array([[0, 1], [2, 2], [3, 0], [1, 1]])


TARGETS = np.array([[1], [0], [1], [2]], "f")


START = [np.linspace(-1, 1, 15).reshape(5, 3), np.linspace(1, 0, 6).reshape(6, 1), np.zeros(1)]


def build_model(optimizer, weights=None):
    ids = keras.Input([2], dtype="int64")
    rows = keras.layers.Flatten()(keras.layers.Embedding(5, 3)(ids))
    model = keras.Model(ids, keras.layers.Dense(1)(rows))
    model.set_weights(START if weights is None else weights)
    model.compile(optimizer, "mse")
    return model


def train(model, epochs=3):
    model.run_eagerly = True  # this is faster than building a graph for these few steps
    for _ in range(epochs):
        model.train_on_batch(IDS[:2], TARGETS[:2])
        model.train_on_batch(IDS[2:], TARGETS[2:])
    return model.get_weights()


def same(weights, others):
    pairs = zip(weights, others)
    return len(weights) == len(others) and all(np.array_equal(*pair) for pair in pairs)


def _save(name, **arguments):
    return (
        lambda model, home: model.save(str(home / name), **arguments),
        lambda make, home: load_model(
            OPTIMIZER_V2, home / name, RowAdagrad, rules.MyDiffGradOptimizer
        ),
    )


def _save_weights(name, **arguments):
    def load(make, home):
        model = build_model(make())
        model.load_weights(str(home / name))
        return model

    return lambda model, home: model.save_weights(str(home / name), **arguments), load


def _checkpoint(early):
    """Returns functions that save and restore a tf.train.Checkpoint.

    If `early` is true, the checkpoint is restored before the new optimizer has slots; otherwise,
    after the slots have been created.
    """

    def save(model, home):
        checkpoint = tf.train.Checkpoint(model=model, optimizer=model.optimizer)
        checkpoint.save(str(home / "checkpoint"))

    def load(make, home):
        model = build_model(make())
        if not early:
            train(model, epochs=1)
        checkpoint = tf.train.Checkpoint(model=model, optimizer=model.optimizer)
        status = checkpoint.restore(tf.train.latest_checkpoint(str(home)))
        status.assert_existing_objects_matched()
        return model

    return save, load


_WHOLE, _WEIGHTS = _save("whole.h5"), _save_weights("weights")


WAYS = {
    "`model.save`, h5": _save("model.h5"),
    "`model.save`, SavedModel": _save("saved_model", save_format="tf"),
    "`model.save`, .keras": _save("model.keras"),
    "`save_weights`, h5": _save_weights("weights.h5"),
    "`save_weights`, TensorFlow": _save_weights("weights_tf", save_format="tf"),
    "`ModelCheckpoint`, h5": by_callback(OPTIMIZER_V2, "whole.h5", _WHOLE[1]),
    "`ModelCheckpoint`, weights": by_callback(
        OPTIMIZER_V2, "weights", _WEIGHTS[1], save_weights_only=True
    ),
    "`tf.train.Checkpoint`, deferred": _checkpoint(early=True),
    "`tf.train.Checkpoint`, immediate": _checkpoint(early=False),
}

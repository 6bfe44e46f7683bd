"""Every way in which Keras saves a model, with a bridged optimizer and with Keras' own in it.

Training that goes on from a file either equals the run that never stopped ("kept"), or the run of a
new optimizer from the saved weights ("fresh"). Keras decides which; the bridge does as Keras' own
optimizers do, and docs/keras_saving.md tells the version's row.
"""

import functools
import re
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import tensorflow as tf

from legacy_opt import AdagradDecayOptimizer, AdagradDecayOptimizerV2, RuleOptimizer, versions
from legacy_opt.compat import register_optimizer
from legacy_opt.slots import RowSlot, ScalarSlot
from tests import rules
from tests.keras_models import bridged

v1 = tf.compat.v1.train
keras = versions.keras_2()
DOCS = Path(__file__).resolve().parent.parent / "docs" / "keras_saving.md"


@register_optimizer
class RowAdagrad(RuleOptimizer):
    """Adagrad with one accumulator for each row, and a float that counts."""

    slots = {"rows": RowSlot(0.1), "count": ScalarSlot()}

    def __init__(self, learning_rate, use_locking=False, name="RowAdagrad"):
        super().__init__(use_locking, name, learning_rate=learning_rate)

    def rule(self, grad, value, slots, hyper):
        axes = list(range(1, len(grad.shape)))
        rows = slots.rows + tf.reduce_mean(grad * grad, axes, keepdims=True)
        count = slots.count + 1
        step = hyper.learning_rate * grad * tf.math.rsqrt(rows) / count
        return step, {"rows": rows, "count": count}


def native():
    """Returns Keras' own Adam: the OptimizerV2, where there are two."""
    home = keras.optimizers
    return (home if issubclass(home.Adam, versions.optimizer_v2()) else home.legacy).Adam(0.1)


OPTIMIZERS = {
    "Keras' Adam": native,
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
    model.run_eagerly = True  # building a graph takes longer than these few steps
    for _ in range(epochs):
        model.train_on_batch(IDS[:2], TARGETS[:2])
        model.train_on_batch(IDS[2:], TARGETS[2:])
    return model.get_weights()


def same(weights, others):
    pairs = zip(weights, others)
    return len(weights) == len(others) and all(np.array_equal(*pair) for pair in pairs)


def close(weights, others):
    return all(np.allclose(one, other, 1e-5, 1e-6) for one, other in zip(weights, others))


# Each way: (what writes, what reads into a new model).


def _save(name, **arguments):
    return (
        lambda model, home: model.save(str(home / name), **arguments),
        lambda make, home: keras.models.load_model(str(home / name)),
    )


def _save_weights(name, **arguments):
    def load(make, home):
        model = build_model(make())
        model.load_weights(str(home / name))
        return model

    return lambda model, home: model.save_weights(str(home / name), **arguments), load


def _checkpoint(early):
    """A tf.train.Checkpoint, restored before (deferred) or after the new optimizer has state."""

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


def _by_callback(name, load, **arguments):
    def save(model, home):
        callback = keras.callbacks.ModelCheckpoint(str(home / name), **arguments)
        callback.set_model(model)
        callback.on_train_begin()
        callback.on_epoch_begin(0)
        callback.on_epoch_end(0, {})

    return save, load


_WHOLE, _WEIGHTS = _save("whole.h5"), _save_weights("weights")
WAYS = {
    "`model.save`, h5": _save("model.h5"),
    "`model.save`, SavedModel": _save("saved_model", save_format="tf"),
    "`model.save`, .keras": _save("model.keras"),
    "`save_weights`, h5": _save_weights("weights.h5"),
    "`save_weights`, TensorFlow": _save_weights("weights_tf", save_format="tf"),
    "`ModelCheckpoint`, h5": _by_callback("whole.h5", _WHOLE[1]),
    "`ModelCheckpoint`, weights": _by_callback("weights", _WEIGHTS[1], save_weights_only=True),
    "`tf.train.Checkpoint`, deferred": _checkpoint(early=True),
    "`tf.train.Checkpoint`, immediate": _checkpoint(early=False),
}


class Trained(NamedTuple):
    """A trained model, its weights, and where training goes from there.

    Attributes:
      kept: the weights after the run that never stopped.
      fresh: the weights after going on with a new optimizer.
      state: the weights of the optimizer that never stopped.
    """

    model: Any
    weights: list
    kept: list
    fresh: list
    state: list


@functools.lru_cache(maxsize=None)
def trained(name):
    model = build_model(OPTIMIZERS[name]())
    weights = train(model)
    fresh = train(build_model(OPTIMIZERS[name](), weights))
    unstopped = build_model(OPTIMIZERS[name]())
    kept = train(unstopped, epochs=6)
    assert not close(kept, fresh)
    return Trained(model, weights, kept, fresh, unstopped.optimizer.get_weights())


@functools.lru_cache(maxsize=None)
def outcome(name, way, directory):
    """Returns "kept" or "fresh"."""
    expected = trained(name)
    home = directory / re.sub(r"\W+", "_", name + way)
    home.mkdir()
    save, load = WAYS[way]
    save(expected.model, home)
    loaded = load(OPTIMIZERS[name], home)
    assert same(loaded.get_weights(), expected.weights)
    after = train(loaded)
    if close(after, expected.fresh):  # 1.15 rounds otherwise in a SavedModel's functions
        return "fresh"
    assert same(after, expected.kept), "neither the state that was saved nor a fresh one"
    if name != "Keras' Adam":  # which may restore its slots in another order
        assert same(loaded.optimizer.get_weights(), expected.state)
    return "kept"


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    return tmp_path_factory.mktemp("saved")


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    "name",
    ["Adam", "AdagradDecay", "DiffGrad", "RowAdagrad"]
    + [pytest.param("AdagradDecayV2", marks=pytest.mark.full)],
)
def test_training_goes_on_as_with_keras_own_optimizer(name, way, directory):
    assert outcome(name, way, directory) == outcome("Keras' Adam", way, directory)


def test_the_table_of_the_docs_is_what_happens(directory):
    """Of the versions that have a column."""
    rows = [line.strip("| \n").split(" | ") for line in DOCS.read_text("utf-8").splitlines()]
    (header,) = [row for row in rows if row[0] == "saved with"]
    version = re.match(r"\d+\.\d+", versions.tensorflow_version()).group()
    table = {row[0]: dict(zip(header, row)) for row in rows if row[0] in WAYS}
    assert set(table) == set(WAYS)
    if version in header:
        for way, row in table.items():
            assert row[version] == outcome("Keras' Adam", way, directory), way


# SavedModels: who loads them makes slots of the variables' shape and dtype, whatever was saved.


def load_signature(path):
    load = getattr(tf.compat.v2, "saved_model", tf.saved_model).load
    loaded = load(str(path))
    function = loaded.signatures["serving_default"]
    (key,) = function.structured_input_signature[1]
    dtype = function.structured_input_signature[1][key].dtype
    (output,) = function(**{key: tf.constant(IDS, dtype)}).values()
    return output.numpy()


@pytest.mark.parametrize("name", ["AdagradDecay", "RowAdagrad"])
def test_a_saved_model_serves(name, tmp_path):
    model, weights = trained(name)[:2]
    model.save(str(tmp_path / "model"), save_format="tf")
    table, kernel, bias = weights
    expected = table[IDS].reshape(4, 6) @ kernel + bias
    np.testing.assert_allclose(load_signature(tmp_path / "model"), expected, rtol=1e-6)
    loaded = keras.models.load_model(str(tmp_path / "model"))
    np.testing.assert_allclose(loaded.predict_on_batch(IDS), expected, rtol=1e-6)


@pytest.mark.parametrize("name", ["AdagradDecay", "RowAdagrad"])
def test_a_saved_model_leaves_checkpoints_whole(name, tmp_path):
    model = trained(name).model
    optimizer = model.optimizer
    slots = list(optimizer.get_slot_names())
    assert len(slots) == 2
    checkpoint = tf.train.Checkpoint(model=model, optimizer=optimizer)
    before = checkpoint.save(str(tmp_path / "before"))
    model.save(str(tmp_path / "model"), save_format="tf")
    assert list(optimizer.get_slot_names()) == slots
    after = checkpoint.save(str(tmp_path / "after"))
    assert tf.train.list_variables(before) == tf.train.list_variables(after)
    for path in (before, after):
        other = build_model(OPTIMIZERS[name]())
        tf.train.Checkpoint(model=other, optimizer=other.optimizer).restore(path)
        assert same(train(other), trained(name).kept)


def test_a_saved_model_with_a_loss_scale_loads(tmp_path):
    home = keras.mixed_precision
    if not hasattr(home, "LossScaleOptimizer"):  # the experimental one keeps no slots of its own
        return
    model = build_model(home.LossScaleOptimizer(OPTIMIZERS["AdagradDecay"]()))
    weights = train(model)
    model.save(str(tmp_path / "model"), save_format="tf")
    loaded = keras.models.load_model(str(tmp_path / "model"))
    assert same(loaded.get_weights(), weights)
    inner = getattr(loaded.optimizer, "inner_optimizer", loaded.optimizer)
    assert type(inner) is type(OPTIMIZERS["AdagradDecay"]())

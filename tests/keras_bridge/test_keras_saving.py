"""Saves models with bridged optimizers (made by `to_keras`) in every way that Keras 2 offers.

The outcome is "kept" if training from the file equals uninterrupted training. It is "fresh" if
training from the file equals training from the saved weights with a new optimizer. A bridged
optimizer must have the same outcome as Keras' Adam. docs/keras.md lists the outcomes.
"""

import functools
import re
from typing import Any, NamedTuple

import numpy as np
import pytest
import tensorflow as tf

from legacy_opt import versions
from tests.support.keras import keras_apis
from tests.support.keras.keras2_saving import IDS, OPTIMIZERS, WAYS, build_model, same, train
from tests.support.keras.loading import load_model
from tests.support.keras.row_adagrad import RowAdagrad
from tests.support.paths import DOCS

keras = keras_apis.keras_2()
DOCS = DOCS / "keras.md"


def close(weights, others):
    return all(np.allclose(one, other, 1e-5, 1e-6) for one, other in zip(weights, others))


class Trained(NamedTuple):
    """A trained model, its weights, and the weights after more training.

    Attributes:
      kept: the model's weights after uninterrupted training.
      fresh: the model's weights after more training with a new optimizer.
      state: the optimizer's weights after uninterrupted training.
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
    """Saves, loads and trains a model. Returns "kept" or "fresh"."""
    expected = trained(name)
    home = directory / re.sub(r"\W+", "_", name + way)
    home.mkdir()
    save, load = WAYS[way]
    save(expected.model, home)
    loaded = load(OPTIMIZERS[name], home)
    assert same(loaded.get_weights(), expected.weights)
    after = train(loaded)
    # A model loaded from a SavedModel rounds differently on TensorFlow 1.15, so use `close`.
    if close(after, expected.fresh):
        return "fresh"
    assert same(after, expected.kept), "neither kept nor fresh"
    if name != "Keras' Adam":  # Keras' Adam may change the order of slots
        assert same(loaded.optimizer.get_weights(), expected.state)
    return "kept"


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    return tmp_path_factory.mktemp("saved")


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    "name",
    ["AdagradDecay"]
    + [
        pytest.param(name, marks=pytest.mark.full)
        for name in ("Adam", "AdagradDecayV2", "DiffGrad", "RowAdagrad")
    ],
)
def test_training_continues_as_with_keras_own_optimizer(name, way, directory):
    assert outcome(name, way, directory) == outcome("Keras' Adam", way, directory)


def test_the_table_of_the_docs_is_right(directory):
    """Checks the column of the running TensorFlow version, if the table has such a column."""
    rows = [line.strip("| \n").split(" | ") for line in DOCS.read_text("utf-8").splitlines()]
    (header,) = [row for row in rows if row[0] == "saved with"]
    version = re.match(r"\d+\.\d+", versions.tensorflow_version()).group()
    table = {row[0]: dict(zip(header, row)) for row in rows if row[0] in WAYS}
    assert set(table) == set(WAYS)
    if version in header:
        for way, row in table.items():
            assert row[version] == outcome("Keras' Adam", way, directory), way


# SavedModels. When Keras loads a SavedModel, it creates slots with the shapes and dtypes of the
# variables, even if the saved slots have other shapes and dtypes.


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
    loaded = load_model(keras_apis.OPTIMIZER_V2, tmp_path / "model", RowAdagrad)
    np.testing.assert_allclose(loaded.predict_on_batch(IDS), expected, rtol=1e-6)


@pytest.mark.parametrize("name", ["AdagradDecay", "RowAdagrad"])
def test_saving_a_model_does_not_change_later_checkpoints(name, tmp_path):
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
    # The experimental LossScaleOptimizer of older TensorFlow versions saves no slots.
    if not hasattr(home, "LossScaleOptimizer"):
        return
    model = build_model(home.LossScaleOptimizer(OPTIMIZERS["AdagradDecay"]()))
    weights = train(model)
    model.save(str(tmp_path / "model"), save_format="tf")
    loaded = load_model(keras_apis.OPTIMIZER_V2, tmp_path / "model", RowAdagrad)
    assert same(loaded.get_weights(), weights)
    inner = getattr(loaded.optimizer, "inner_optimizer", loaded.optimizer)
    assert type(inner) is type(OPTIMIZERS["AdagradDecay"]())

"""Tests of `legacy-opt convert --model` from files with an OptimizerV2 to Keras 3."""

import numpy as np
import pytest
import tensorflow as tf

from tests.support.keras.keras_apis import KERAS_3, OPTIMIZER_V2
from tests.support.keras.loading import load_model
from tests.support.keras.optimizers_v2 import legacy
from tests.support.processes.command_line import with_users_module

pytestmark = pytest.mark.keras3
USERS_MODULE = """
import keras
import tensorflow as tf
import tf_keras
from legacy_opt.compat import to_keras
def build(optimizer=tf_keras.optimizers.legacy.Adam, name="layer"):
    model = keras.Sequential([keras.Input([3]), keras.layers.Dense(2, name=name)])
    model.compile(to_keras(optimizer(0.1), api="keras3"), "mse")
    return model
def sgd():
    return build(tf_keras.optimizers.legacy.SGD)
def renamed():
    return build(name="other")
def of_v1():
    return build(tf.compat.v1.train.AdamOptimizer)
"""


@pytest.fixture
def screen(capsys, tmp_path, monkeypatch):
    return with_users_module("users_model", USERS_MODULE, capsys, tmp_path, monkeypatch)


@pytest.fixture
def model(tmp_path):
    """A trained model of Keras 2, saved in several forms."""
    keras = OPTIMIZER_V2.keras
    model = keras.Sequential([keras.Input([3]), keras.layers.Dense(2, name="layer")])
    model.compile(legacy.Adam(0.1), "mse")
    model.fit(np.ones([4, 3]), np.ones([4, 2]), epochs=3, verbose=0)
    model.save(str(tmp_path / "model.h5"))
    model.save(str(tmp_path / "folder"))
    tf.train.Checkpoint(model=model, optimizer=model.optimizer).write(str(tmp_path / "ckpt"))
    return model


def words(source, destination, *others, function="build"):
    return ("convert", source, destination, "--model", f"users_model:{function}", *others)


@pytest.mark.parametrize("source", ["model.h5", "folder", "ckpt"])
def test_to_keras_3(source, model, screen, tmp_path):
    result = screen.json(*words(source, "new.keras"))
    assert result["complete"] and len(result["transferred"]) == 7
    new = load_model(KERAS_3, tmp_path / "new.keras")
    assert new.optimizer.iterations == model.optimizer.iterations == 3
    for one, other in zip(new.trainable_variables, model.trainable_variables):
        np.testing.assert_array_equal(one.numpy(), other.numpy())
        for slot in ("m", "v"):
            np.testing.assert_array_equal(
                new.optimizer.get_slot(one, slot).numpy(),
                model.optimizer.get_slot(other, slot).numpy(),
            )


def test_what_does_not_fit(model, screen, tmp_path):
    result = screen.json(*words("ckpt", "new.keras", function="sgd"), code=1)
    assert not result["written"] and "of users_model:sgd and its OptimizerV2" in result["error"]
    assert not (tmp_path / "new.keras").exists()
    result = screen.json(*words("ckpt", "new.keras", function="renamed"), code=1)
    assert "Map names of variables with --name-map FILE.json" in result["error"]
    (guess,) = [note for note in result["notes"] if "name_map=" in note]
    (tmp_path / "map.json").write_text(guess.partition("name_map=")[2])
    named = words("ckpt", "new.keras", "--name-map", "map.json", function="renamed")
    assert screen.json(*named)["complete"]


def test_refused(model, screen, tmp_path):
    def refused(*arguments, **function):
        return screen.refused(*words(*arguments, **function))

    assert "--partial has no meaning" in refused("ckpt", "a.keras", "--partial")
    assert "--ignore has no meaning" in refused("ckpt", "a.keras", "--ignore", "x")
    assert "guess is for v1 checkpoints" in refused("ckpt", "a.keras", "--name-map", "guess")
    assert "there is no such checkpoint" in refused("none.h5", "a.keras")
    model.save(str(tmp_path / "model.keras"))
    assert "contains no state of an OptimizerV2" in refused("model.keras", "a.keras")
    assert "is an object-based checkpoint" in refused("ckpt", "a.keras", function="of_v1")
    screen.json(*words("ckpt", "new.keras"))
    assert "see load_optimizer_v2 and save_optimizer_v2" in refused("new.keras", "v1")

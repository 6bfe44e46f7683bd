"""Tests that name maps are guessed only if no other variable could be meant."""

import numpy as np
import pytest
import tensorflow as tf

from legacy_opt.compat import CheckpointMismatch, load_v1_checkpoint
from tests.support.checkpoints.v1_checkpoints import assert_equal, tensors, write_tensors
from tests.support.processes.command_line import with_users_module

USERS_MODULE = """
import tensorflow as tf
def of(*layers):
    def build():
        inputs = output = tf.keras.Input((4,))
        for units, name in layers:
            output = tf.keras.layers.Dense(units, name=name)(output)
        return tf.keras.Model(inputs, output), None
    return build
shifted = of((4, "dense_1"), (4, "dense_2"))
one = of((3, "layer"))
"""


@pytest.fixture
def screen(capsys, tmp_path, monkeypatch):
    return with_users_module("users_layers", USERS_MODULE, capsys, tmp_path, monkeypatch)


EQUAL_LAYERS = ("first/kernel", [4, 4]), ("first/bias", [4]), ("second/kernel", [4, 4])
EQUAL_LAYERS += (("second/bias", [4]),)


def write(path, shapes, **renamed):
    """Writes a checkpoint. The arguments rename layers."""
    values = {}
    for number, (name, shape) in enumerate(dict(shapes).items()):
        layer, _, rest = name.partition("/")
        values[f"{renamed.get(layer, layer)}/{rest}"] = np.full(shape, number, np.float32)
    return write_tensors(path, values)


def test_equal_layers_whose_names_are_shifted_are_not_swapped(tmp_path, screen):
    """The layer dense_1 exists in both, but it is the first layer here and the second one there."""
    write(tmp_path / "old", EQUAL_LAYERS, first="dense", second="dense_1")
    words = "--model", "users_layers:shifted"
    result = screen.json("convert", "old", "new.h5", *words, code=1)
    assert not [note for note in result["notes"] if "name_map" in note]
    result = screen.json("convert", "old", "new.h5", *words, "--name-map", "guess", code=1)
    assert not result["written"]
    assert "guess" in result["error"] and "several" in result["error"]
    assert "--name-map FILE" in result["error"] and "or guess" not in result["error"]


def test_equal_layers_are_not_swapped_on_the_way_to_v1(tmp_path, screen):
    write(tmp_path / "old", EQUAL_LAYERS, first="dense", second="dense_1")
    write(tmp_path / "shifted", EQUAL_LAYERS, first="dense_1", second="dense_2")
    words = "--model", "users_layers:shifted"
    screen.json("convert", "shifted", "new.weights.h5", *words)
    words += "--like", "old", "--name-map", "guess"
    result = screen.json("convert", "new.weights.h5", "back", *words, code=1)
    assert not result["written"]
    assert "several" in result["error"] and "or guess" not in result["error"]


@pytest.mark.parametrize("to_v1", [False, True])
def test_a_guess_that_finds_nothing_says_so(tmp_path, screen, to_v1):
    write(tmp_path / "old", {"a/kernel": [5, 5], "layer/bias": [3]})
    write(tmp_path / "fitting", {"layer/kernel": [4, 3], "layer/bias": [3]})
    words = "--model", "users_layers:one"
    screen.json("convert", "fitting", "fitting.weights.h5", *words)
    command = ("fitting.weights.h5", "back", "--like", "old") if to_v1 else ("old", "new.h5")
    result = screen.json("convert", *command, *words, "--name-map", "guess", code=1)
    assert "finds nothing" in result["error"] and "or guess" not in result["error"]


def test_a_guess_that_finds_only_some_names_shows_them(tmp_path, screen):
    write(tmp_path / "old", {"a/kernel": [4, 3]})
    words = "--model", "users_layers:one", "--name-map", "guess"
    result = screen.json("convert", "old", "new.h5", *words, code=1)
    assert any('{"layer/kernel": "a/kernel"}' in note for note in result["notes"])


@pytest.mark.parametrize(
    "ours, saved, is_guessed",
    [
        ("layer/kernel", "fc/weights", True),
        ("layer/kernel", "fc/w_1", True),
        ("layer/bias", "fc/biases", True),
        ("norm/beta", "norm_1/bias", True),
        ("embedding/embeddings", "fc/table", True),
        ("norm/gamma", "fc/bias", False),
        ("norm/gamma", "norm_1/beta", False),
        ("layer/bias", "fc/weights", False),
        ("norm/moving_mean", "norm_1/moving_variance", False),
    ],
)
def test_names_that_contradict_each_other_are_not_guessed(tmp_path, ours, saved, is_guessed):
    path = write_tensors(tmp_path / "old", {saved: np.float32([1, 2])})
    variable = tf.compat.v2.Variable(np.float32([0, 0]), name=ours)
    with pytest.raises(CheckpointMismatch) as caught:
        load_v1_checkpoint(path, [variable], None)
    assert (f'name_map={{"{ours}": "{saved}"}}' in str(caught.value)) == is_guessed


def test_the_map_of_a_unique_shape_is_complete(tmp_path, screen):
    write(tmp_path / "old", {"fc/weights": [4, 3], "fc/biases": [3]})
    words = "--model", "users_layers:one"
    screen.json("convert", "old", "new.weights.h5", *words, "--name-map", "guess")
    words += "--like", "old", "--name-map", "guess"
    screen.json("convert", "new.weights.h5", "back", *words)
    assert_equal(tensors(tmp_path / "back"), tensors(tmp_path / "old"))

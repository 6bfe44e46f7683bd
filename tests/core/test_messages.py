"""Tests of messages for wrong arguments and paths, and for errors whose `__str__` fails."""

import numpy as np
import pytest
import tensorflow as tf

from legacy_opt import compat, versions
from legacy_opt.compat.state.checkpoint_files.reader import open_checkpoint
from tests.support.keras.keras_apis import OPTIMIZER_V2
from tests.support.processes.command_line import Screen

v1 = tf.compat.v1


def sgd():
    return v1.train.GradientDescentOptimizer(0.5)


class Unspeakable(ValueError):
    """An exception whose `__str__` raises another exception."""

    def __str__(self):
        raise RuntimeError("no words")


def speechless(*_, **__):
    raise Unspeakable


# Paths.


@pytest.mark.parametrize("function", [compat.load_v1_checkpoint, compat.save_v1_checkpoint])
def test_arguments_in_another_order(function, tmp_path):
    variable = tf.compat.v2.Variable(np.float32([1.0]), name="w")
    optimizer, name = compat.to_keras(sgd(), api="optimizer_v2"), function.__name__
    order = rf"path must be .* got .* of type list.*{name}\(path, model_or_variables, opt"
    with pytest.raises(TypeError, match=order):
        function([variable], str(tmp_path / "model"), optimizer)


@pytest.mark.parametrize("path", [None, 3, {}])
def test_wrong_paths(path, tmp_path):
    with pytest.raises(TypeError, match="path must be the path of a checkpoint, a string"):
        open_checkpoint(path)
    if path is not None:
        with pytest.raises(TypeError, match="like must be the path of a checkpoint, a string"):
            compat.save_v1_checkpoint(tmp_path / "model", [], None, like=path)


# Variables for to_v1.


@pytest.mark.parametrize("given", [["w"], [1.0], [None]])
def test_wrong_var_list_of_to_v1(given):
    variable = tf.compat.v2.Variable([1.0])
    with pytest.raises(TypeError, match="var_list must contain only variables, got"):
        compat.to_v1(OPTIMIZER_V2.optimizers.SGD).minimize(
            lambda: tf.reduce_sum(variable), var_list=given
        )


# Exceptions whose `__str__` raises another exception.


@pytest.mark.parametrize(
    "method, message",
    [
        ("get_config", "The settings of this Mine cannot be read: Unspeakable"),
        ("from_config", "Mine cannot be made again .* get_config: Unspeakable"),
    ],
)
def test_a_method_that_raises(method, message):
    mine = type("Mine", (OPTIMIZER_V2.optimizers.SGD,), {method: speechless})
    with pytest.raises(ValueError, match=message):
        compat.to_v1(mine(0.1))


def test_a_gradient_transformer_that_raises():
    """A gradient transformer, which is an option of Keras 2, fails for sparse gradients."""
    if not hasattr(versions.optimizer_v2(), "_transform_gradients"):
        return

    def only_dense(pairs):
        if any(isinstance(gradient, tf.IndexedSlices) for gradient, _ in pairs):
            raise Unspeakable
        return pairs

    optimizer = compat.to_keras(sgd(), api="optimizer_v2", gradient_transformers=[only_dense])
    report = compat.to_plain_keras(optimizer).report
    assert "training raises Unspeakable" in str(report)


def test_a_users_module_that_raises(tmp_path, monkeypatch, capsys):
    (tmp_path / "speechless_module.py").write_text(
        "class Unspeakable(Exception):\n"
        "    def __str__(self):\n"
        "        raise RuntimeError\n"
        "def build():\n"
        "    raise Unspeakable\n"
    )
    monkeypatch.chdir(tmp_path)
    tf.train.Checkpoint(w=tf.compat.v2.Variable([1.0])).save("ckpt")
    options = ("--to", "keras", "--model", "speechless_module:build")
    path = str(tmp_path / "v1")
    compat.save_v1_checkpoint(path, {"w": tf.compat.v2.Variable([1.0])}, None)
    message = Screen(capsys).refused("convert", path, str(tmp_path / "out"), *options)
    assert "cannot be used: Unspeakable (" in message

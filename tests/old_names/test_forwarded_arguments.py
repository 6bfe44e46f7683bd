"""Tests that forwarded names have the arguments and defaults of TensorFlow 1.15."""

import importlib

import numpy as np
import pytest
import tensorflow as tf

from legacy_opt import compat, versions
from legacy_opt.compat.old_programs.old_names import KNOWN_NAMES, parameters, patching
from legacy_opt.compat.old_programs.source_analysis import missing_names
from tests.support import running
from tests.tools import known_names
from tests.tools import signatures_of_tensorflow_1 as signatures

v1 = tf.compat.v1
COMMAND = "python -m tests.tools.signatures_of_tensorflow_1"


@pytest.fixture(name="contrib", scope="module")
def fixture_contrib():
    with compat.patch_tensorflow():
        yield importlib.import_module("tensorflow.contrib")


def run(tensors):
    """Returns the values of tensors in a Session."""
    with running.started() as session:
        return session.run(tensors)


if versions.has_contrib():

    @pytest.mark.contrib
    def test_the_signatures_of_tensorflow_1_are_recorded():
        assert signatures.record() == signatures.recorded(), f"on lane 1.15: {COMMAND} record"

    @pytest.mark.contrib
    def test_the_names_that_moved_with_their_modules_are_recorded():
        for home, names in known_names.names().items():
            if not home.startswith("tf_slim"):  # it may not be installed
                assert names == KNOWN_NAMES[home]

else:

    @pytest.mark.every_lane
    def test_no_name_is_forwarded_with_another_meaning():
        table = signatures.table()
        lines = [line for line, lanes in table.items() if signatures.LANE in lanes]
        listed = {line.rpartition(" | ")[0] for line in lines}
        count = 0
        for name, verdict, text, old, new in signatures.verdicts():
            count += 1
            assert verdict != "another meaning", f"{name}: {text}\n  1.15: {old}\n  here: {new}"
            if verdict not in ("equal", "added") and lines:
                line = f"{verdict} | {name}"
                assert line in listed, f"not in the table: {line}\n  {COMMAND} table"
        assert count > 1000

    def test_other_positions_are_refused(contrib):
        with tf.Graph().as_default():
            layers = contrib.keras.layers
            with pytest.raises(TypeError, match=r"keras\.layers\.Conv2D takes 6 arguments by pos"):
                layers.Conv2D(2, 3, 1, "same", None, 1, "relu")
            layer = layers.Conv2D(2, 3, 1, "same", activation="relu")
            assert layer(tf.ones([1, 4, 4, 1])).shape.as_list() == [1, 4, 4, 2]
            assert isinstance(layer, versions.keras_1().layers.Conv2D) and layer.name == "conv2d"
            table = contrib.lookup.MutableHashTable(tf.string, tf.string, "default")
            assert table.lookup(tf.constant(["key"]), name="found").op.name.startswith("found")
            with pytest.raises(TypeError, match=r"MutableHashTable\.lookup takes 1 arg"):
                table.lookup(tf.constant(["key"]), "found")
        with pytest.raises(TypeError, match=r"eager\.function takes 3 arg"):
            contrib.eager.function(abs, None, True, None)
        assert contrib.eager.function(tf.abs)(tf.constant(-1)) is not None

    def test_every_entry_is_of_a_forwarded_name(contrib):
        names = {name for name, *_ in signatures.verdicts()}
        assert set(parameters.POSITIONS) <= names

    def test_keras_is_refused_without_keras_2(contrib, monkeypatch):
        def missing():
            raise ImportError

        for name in list(patching._OF_KERAS):
            monkeypatch.setitem(patching._OF_KERAS, name, missing)
        for name in "keras.backend", "keras.layers.LSTM", "keras.optimizers.Adam":
            name = "tensorflow.contrib." + name
            assert missing_names.look_up(name, tf)[1] == name
            home, _, last = name.rpartition(".")
            with pytest.raises(AttributeError, match=f"'{last}'.*tf-keras|{last}' .*has no"):
                getattr(importlib.import_module(home), last)
        assert "layers" in dir(contrib.keras)


def hard_sigmoid(x):
    return np.clip(0.2 * x + 0.5, 0, 1)


def test_keras_is_that_of_tensorflow_1(contrib):
    random = np.random.RandomState(0)
    x = random.normal(size=(2, 1, 3)).astype(np.float32)
    kernel = random.normal(size=(3, 12)).astype(np.float32)
    with tf.Graph().as_default():
        keras = contrib.keras
        weights = keras.initializers.Constant(kernel[:, :6]), keras.initializers.Constant(kernel)
        gru = keras.layers.GRU(2, kernel_initializer=weights[0])(tf.constant(x))
        lstm = keras.layers.LSTM(3, kernel_initializer=weights[1])(tf.constant(x))
        assert len(keras.layers.GRU(2).get_config()) and not keras.layers.GRU(2).reset_after
        values = run([gru, lstm])
    z, _, candidate = np.split(x[:, 0].dot(kernel[:, :6]), 3, 1)
    np.testing.assert_allclose(values[0], (1 - hard_sigmoid(z)) * np.tanh(candidate), rtol=1e-5)
    i, f, c, o = np.split(x[:, 0].dot(kernel), 4, 1)
    state = np.tanh(c) * hard_sigmoid(i)
    np.testing.assert_allclose(values[1], np.tanh(state) * hard_sigmoid(o), rtol=1e-5)


STEPS = {  # {class: the change of a weight in the first step, for a gradient}
    "Adadelta": lambda g: g * np.sqrt(1e-7) / np.sqrt(0.05 * g * g + 1e-7),
    "Adagrad": lambda g: 0.01 * g / (np.abs(g) + 1e-7),
    "Adamax": lambda g: 0.002 * np.sign(g),
    "RMSprop": lambda g: 0.001 * g / (np.sqrt(0.1 * g * g) + 1e-7),
    "SGD": lambda g: 0.01 * g,
}


def test_keras_optimizers_are_those_of_contrib(contrib):
    start, gradient = np.float32([1.0, -2.0]), np.float32([0.5, -0.25])
    with tf.Graph().as_default():
        pairs = []
        for name in STEPS:
            weight = tf.Variable(start, name=name)
            optimizer = getattr(contrib.keras.optimizers, name)()
            loss = tf.reduce_sum(weight * gradient)
            pairs.append((weight, optimizer.get_updates(params=[weight], loss=loss)))
        values = running.after(
            [each for _, updates in pairs for each in updates], [weight for weight, _ in pairs]
        )
    for (name, step), value in zip(STEPS.items(), values):
        np.testing.assert_allclose(start - value, step(gradient), rtol=1e-3, err_msg=name)

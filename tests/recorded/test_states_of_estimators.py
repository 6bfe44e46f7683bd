"""Tests `export` and `import` of the checkpoints of canned Estimators with their optimizers."""

import json

import numpy as np
import tensorflow as tf

from legacy_opt.compat import estimator
from legacy_opt.recorded import state_files
from tests.support import estimators
from tests.support.checkpoints.v1_checkpoints import tensors

pytestmark = estimators.needed
columns = tf.feature_column
SLOTS = {"accum": "Ftrl", "linear": "Ftrl_1", "accumulator": "Adagrad"}


def train(folder, name):
    """Trains a canned Estimator for one step; returns its checkpoint."""
    number = columns.numeric_column("x", (2,))
    word = columns.categorical_column_with_vocabulary_list("id", ["a", "b"])
    deep = [number, columns.embedding_column(word, 3)]
    arguments = {
        "LinearClassifier": {"feature_columns": [number, word]},
        "DNNClassifier": {"feature_columns": deep, "hidden_units": [4]},
        "DNNLinearCombinedClassifier": {
            "linear_feature_columns": [number, word],
            "dnn_feature_columns": deep,
            "dnn_hidden_units": [4],
        },
    }

    def batches():
        features = {"x": np.float32([[1, 2], [3, 4]]), "id": np.array(["a", "b"])}
        return tf.compat.v1.data.Dataset.from_tensors((features, np.int64([0, 1])))

    made = getattr(estimator, name)(model_dir=str(folder / name), **arguments[name])
    return made.train(batches, steps=1).latest_checkpoint()


def export(screen, path, rule, name_map=None):
    """Exports a checkpoint; returns the command's facts, and the state."""
    words = [path, "--rule", rule, "--out", path + ".npz", "--overwrite"]
    if name_map is not None:
        with open(path + ".json", "w") as file:
            json.dump(name_map, file)
        words += ["--name-map", path + ".json"]
    return screen.json("export", *words), state_files.read(path + ".npz")


def variables_of(saved):
    """Returns the names of the variables of an Estimator's checkpoint."""
    return [name for name in saved if name.split("/")[-1] not in ("global_step", *SLOTS.values())]


def assert_has(state, saved, variables, slots):
    """Compares a state with a checkpoint, in which names of slots may be cut (`x/t_0/Adagrad`)."""
    assert set(state.variables) == set(state.slots) == set(variables)
    for name in variables:
        np.testing.assert_array_equal(state.variables[name], saved[name])
        assert set(state.slots[name]) == set(slots)
        for slot in slots:
            ends = name + "/", "/" + SLOTS[slot]
            (key,) = [each for each in saved if each.startswith(ends[0]) and each.endswith(ends[1])]
            np.testing.assert_array_equal(state.slots[name][slot], saved[key], key)


def test_one_optimizer(screen, tmp_path):
    for name, rule, slots in (
        ("LinearClassifier", "FtrlOptimizer", ["accum", "linear"]),
        ("DNNClassifier", "AdagradOptimizer", ["accumulator"]),
    ):
        path = train(tmp_path, name)
        saved = tensors(path)
        facts, state = export(screen, path, rule)
        assert (facts["step"], facts["not_trained"], facts["left_out"]) == (1, [], [])
        assert_has(state, saved, variables_of(saved), slots)


def test_two_optimizers(screen, tmp_path):
    path = train(tmp_path, "DNNLinearCombinedClassifier")
    saved = tensors(path)
    error = screen.refused("export", path, "--rule", "FtrlOptimizer", "--out", path + ".npz")
    assert "'dnn/hiddenlayer_0/bias/Adagrad'" in error and "choose with the name map" in error
    for rule, part, slots, other_slots in (
        ("FtrlOptimizer", "linear/", ["accum", "linear"], ["Adagrad"]),
        ("AdagradOptimizer", "dnn/", ["accumulator"], ["Ftrl", "Ftrl_1"]),
    ):
        chosen = [name for name in variables_of(saved) if name.startswith(part)]
        others = [name for name in variables_of(saved) if name not in chosen]
        left_out = {*others, *(f"{name}/{slot}" for name in others for slot in other_slots)}
        # The map names the variables of the rule, or those of the other optimizer.
        for name_map in dict(zip(chosen, chosen)), dict.fromkeys(others):
            facts, state = export(screen, path, rule, name_map)
            assert set(facts["left_out"]) == left_out
            assert_has(state, saved, chosen, slots)
        for name in chosen:
            state.variables[name][...] = 5
        state_files.write(path + ".npz", state._replace(global_step=2))
        words = [
            path + ".npz",
            "--like",
            path,
            "--name-map",
            path + ".json",
            "--out",
            path + "-new",
        ]
        assert set(screen.json("import", *words, "--overwrite")["kept"]) == left_out
        expected = dict(saved, global_step=2)
        expected.update({name: np.full_like(saved[name], 5) for name in chosen})
        found = tensors(path + "-new")
        assert set(found) == set(expected)
        for name in found:
            np.testing.assert_array_equal(found[name], expected[name], name)

"""Corner cases of loading and saving v1 checkpoints (files of `tf.compat.v1.train.Saver`).

Examples are names that almost match, and state that only Keras 3 has.
"""

import os

import numpy as np
import pytest
import tensorflow as tf

import legacy_opt
from legacy_opt import compat
from legacy_opt.compat.state.checkpoint_files.writer import CheckpointWriter
from tests.support.checkpoints.v1_checkpoints import (
    EVERY_API,
    assert_equal,
    keras_of,
    tensors,
    write_tensors,
)

v1 = tf.compat.v1


def variable(name, *values):
    return tf.compat.v2.Variable(np.float32(values), name=name)


def momentum(api, **options):
    return compat.to_keras(v1.train.MomentumOptimizer(0.1, 0.9), api=api, **options)


def write(path, values):
    """Writes a checkpoint; lists become float32 arrays."""
    arrays = {n: np.float32(v) if isinstance(v, list) else v for n, v in values.items()}
    return write_tensors(path, arrays)


def slot(optimizer, one):
    return optimizer.get_slot(one, "momentum").numpy()


@EVERY_API
def test_the_slot_of_a_variable_in_a_scope_does_not_match_one_outside(api, tmp_path):
    saved = {"w": [1.0], "tower/w": [2.0], "tower/w/Momentum": [3.0], "global_step": np.int64(1)}
    path = write(tmp_path / "model", saved)
    one, optimizer = variable("w", 0), momentum(api)
    with pytest.raises(compat.CheckpointMismatch, match="w, slot momentum"):
        compat.load_v1_checkpoint(path, {"w": one}, optimizer, ignore=["tower/"])
    assert one.numpy() == 0
    with pytest.raises(compat.CheckpointMismatch, match="lacks some tensors"):
        compat.save_v1_checkpoint(tmp_path / "new", {"w": one}, optimizer, like=path)
    assert sorted(os.listdir(str(tmp_path))) == sorted(
        ["checkpoint", "model.index", "model.data-00000-of-00001"]
    )


@EVERY_API
def test_an_exact_name_is_preferred_to_one_in_a_scope(api, tmp_path):
    saved = {"w/Momentum": [1.0], "b/w/Momentum": [7.0], "b/x/Momentum": [2.0]}
    saved.update({"w": [0.0], "x": [0.0], "global_step": np.int64(1)})
    path = write(tmp_path / "model", saved)
    one, other, optimizer = variable("w", 0), variable("x", 0), momentum(api)
    compat.load_v1_checkpoint(path, {"w": one, "x": other}, optimizer, ignore=["b/w"])
    assert (slot(optimizer, one), slot(optimizer, other)) == (1, 2)


@EVERY_API
def test_the_slot_of_a_numbered_variable_is_not_taken_for_a_part(api, tmp_path):
    saved = {"w": [1.0], "w/1": [2.0], "w/1/Momentum": [3.0], "global_step": np.int64(1)}
    path = write(tmp_path / "model", saved)
    variables = {"w": variable("w", 0), "w/1": variable("w1", 0)}
    with pytest.raises(compat.CheckpointMismatch, match="no tensor 'w/Momentum'"):
        compat.load_v1_checkpoint(path, variables, momentum(api))


@EVERY_API
def test_no_tensor_is_loaded_twice(api, tmp_path):
    saved = {"w": [1.0], "x": [2.0], "w/Momentum": [3.0], "x/Momentum": [4.0]}
    path = write(tmp_path / "model", dict(saved, global_step=np.int64(1)))
    variables = {"w": variable("w", 0), "x": variable("x", 0)}
    name_map = {"x/Momentum": "w/Momentum"}
    with pytest.raises(compat.CheckpointMismatch, match="matches another variable or slot, too"):
        compat.load_v1_checkpoint(path, variables, momentum(api), name_map, ignore=["x/Mom"])
    one = variables["w"]
    with pytest.raises(ValueError, match="the same variable under two names"):
        compat.load_v1_checkpoint(path, {"w": one, "x": one}, momentum(api))


@pytest.mark.parametrize("name_map", [{"v": "w"}, {"w:0": "w"}, {"w": "v:0"}, {"beta1_powr": "b"}])
@EVERY_API
def test_a_misspelled_name_map(name_map, api, tmp_path):
    path = write(tmp_path / "model", {"w": [1.0], "w/Momentum": [3.0]})
    with pytest.raises(ValueError, match="name_map"):
        compat.load_v1_checkpoint(path, [variable("w", 0)], momentum(api), name_map)


@pytest.mark.parametrize("name", ["my layer/kernel", "_k", "k:0", ""])
@EVERY_API
def test_names_that_no_graph_can_have(name, api, tmp_path):
    with pytest.raises(ValueError, match="the name of a variable in a TF1 graph.*name_map"):
        compat.save_v1_checkpoint(tmp_path / "model", {name: variable("w", 0)}, momentum(api))
    assert os.listdir(str(tmp_path)) == []


@EVERY_API
def test_a_missing_step_is_refused_if_something_depends_on_it(api, tmp_path):
    path = write(tmp_path / "model", {"w": [1.0], "w/Momentum": [3.0]})
    options = {"decay": 0.1} if api == "optimizer_v2" else {"gradient_accumulation_steps": 2}
    with pytest.raises(compat.CheckpointMismatch, match="global_step"):
        compat.load_v1_checkpoint(path, {"w": variable("w", 0)}, momentum(api, **options))
    report = compat.load_v1_checkpoint(path, {"w": variable("w", 0)}, momentum(api))
    assert "iterations were not changed" in str(report)


def test_paths_that_tensorflow_could_not_read_or_write(tmp_path):
    one = {"w": variable("w", 1)}
    with pytest.raises(compat.CheckpointError, match="pattern"):
        compat.save_v1_checkpoint(tmp_path / "a [1]" / "model", one, None)
    (tmp_path / "file").write_text("")
    with pytest.raises(compat.CheckpointError, match="cannot be written"):
        compat.save_v1_checkpoint(tmp_path / "file" / "model", one, None)
    compat.save_v1_checkpoint(os.fsencode(str(tmp_path / "model")), one, None)
    assert tensors(tmp_path / "model") == {"w": np.float32(1)}


@EVERY_API
def test_slots_of_a_variable_that_was_frozen_are_saved(api, tmp_path):
    keras = keras_of(api)
    layers = [keras.layers.Dense(1, name="a"), keras.layers.Dense(1, name="b")]
    inputs = keras.Input([1])
    model = keras.Model(inputs, layers[1](layers[0](inputs)))
    optimizer = momentum(api)
    weights = list(model.trainable_variables)
    optimizer.apply_gradients([(tf.ones(weight.shape), weight) for weight in weights])
    layers[0].trainable = False
    compat.save_v1_checkpoint(tmp_path / "model", model, optimizer)
    names = {name for name in tensors(tmp_path / "model") if name.endswith("/Momentum")}
    assert len(names) == 4


@EVERY_API
def test_counts_of_rows_in_slices_with_mangled_names(api, tmp_path):
    """A graph with AdagradDecayOptimizerV2 in the scope "a" saves a/w/part_0/... as w/0/..."""
    value, counts = np.arange(8, dtype=np.float32).reshape(4, 2), np.arange(1, 5)
    with CheckpointWriter(tmp_path / "model") as writer:
        for number, begin in enumerate([0, 2]):
            rows, part = slice(begin, begin + 2), ((4, 2), (begin, 0))
            writer.add("w", value[rows], part)
            writer.add(f"w/{number}/AdagradDecay", value[rows] + 1, part)
            writer.add(f"w/{number}/AdagradDecay_1", counts[rows], ((4,), (begin,)))
        writer.add("global_step", np.int64(1))
    one = tf.compat.v2.Variable(np.zeros([4, 2], np.float32), name="w")
    optimizer = compat.to_keras(legacy_opt.AdagradDecayOptimizer(0.1, None), api=api)
    report = compat.load_v1_checkpoint(tmp_path / "model", [one], optimizer)
    assert "2 slices, counts in the other layout of AdagradDecay" in str(report)
    found = optimizer.get_slot(one, "accumulator_decay_power").numpy()
    np.testing.assert_array_equal(found, [[1, 2], [3, 4], [0, 0], [0, 0]])


@EVERY_API
def test_slices_with_mangled_names_are_found_without_their_variable(api, tmp_path):
    value = np.arange(8, dtype=np.float32).reshape(4, 2)
    with CheckpointWriter(tmp_path / "model") as writer:
        for number, begin in enumerate([0, 2]):
            part = (4, 2), (begin, 0)
            writer.add(f"w/{number}/Momentum", value[begin : begin + 2], part)
        writer.add("global_step", np.int64(1))
    one = tf.compat.v2.Variable(np.zeros([4, 2], np.float32), name="w")
    optimizer = compat.to_keras(v1.train.MomentumOptimizer(0.1, 0.9), api=api)
    report = compat.load_v1_checkpoint(tmp_path / "model", [one], optimizer, strict=False)
    assert "2 slices" in str(report)
    np.testing.assert_array_equal(optimizer.get_slot(one, "momentum").numpy(), value)


@EVERY_API
def test_an_embedding_variable_is_copied_from_like(api, tmp_path):
    saved = {"w": [1.0], "w/Momentum": [3.0], "global_step": np.int64(1)}
    table = {"emb-keys": np.int64([7, 9]), "emb-values": np.float32([[1], [2]])}
    old = write(tmp_path / "old", dict(saved, **table))
    one, optimizer = variable("w", 0), momentum(api)
    compat.load_v1_checkpoint(old, {"w": one}, optimizer, ignore=["emb-"])
    compat.save_v1_checkpoint(tmp_path / "new", {"w": one}, optimizer, like=old)
    assert_equal(tensors(tmp_path / "new"), tensors(old))


@EVERY_API
def test_inside_a_function(api, tmp_path):
    @tf.function
    def save():
        compat.save_v1_checkpoint(tmp_path / "model", {"w": one}, optimizer)

    one, optimizer = variable("w", 0), momentum(api)
    with pytest.raises(ValueError, match="outside of tf.function"):
        save()


@EVERY_API
def test_a_name_map_is_guessed_under_a_scope(api, tmp_path):
    saved = {"a": [1.0], "train/a/Momentum": [3.0], "global_step": np.int64(1)}
    path = write(tmp_path / "model", saved)
    with pytest.raises(compat.CheckpointMismatch, match='name_map={"w": "a"}'):
        compat.load_v1_checkpoint(path, [variable("w", 0)], momentum(api))


# State that only Keras 3 has.


def train(optimizer, one, gradient=1.0):
    optimizer.apply_gradients([(tf.fill(one.shape, gradient), one)])


@pytest.mark.keras3
def test_loading_discards_accumulated_gradients(tmp_path):
    saved = {"w": [1.0], "w/Momentum": [3.0], "global_step": np.int64(1)}
    path = write(tmp_path / "model", saved)
    one, optimizer = variable("w", 0), momentum("keras3", gradient_accumulation_steps=2)
    train(optimizer, one, 1000.0)
    compat.load_v1_checkpoint(path, {"w": one}, optimizer)
    for _ in range(2):
        train(optimizer, one)
    # momentum = 0.9 * 3 + 1, w = 1 - 0.1 * momentum
    np.testing.assert_allclose(slot(optimizer, one), [3.7], rtol=1e-6)
    np.testing.assert_allclose(one.numpy(), [0.63], rtol=1e-6)


@pytest.mark.keras3
def test_moving_averages_restart_from_the_loaded_values(tmp_path):
    saved = {"w": [1.0], "w/Momentum": [0.0], "global_step": np.int64(9)}
    path = write(tmp_path / "model", saved)
    one, optimizer = variable("w", 5), momentum("keras3", use_ema=True, ema_momentum=0.5)
    compat.load_v1_checkpoint(path, {"w": one}, optimizer)
    train(optimizer, one, 0.0)
    assert optimizer._model_variables_moving_average[0].numpy() == [1]


@pytest.mark.keras3
def test_an_optimizer_that_was_built_for_fewer_variables(tmp_path):
    one, other, optimizer = variable("w", 0), variable("x", 0), momentum("keras3")
    train(optimizer, one)
    with pytest.raises(ValueError, match="without some of the 2 trainable variables"):
        compat.save_v1_checkpoint(tmp_path / "model", {"w": one, "x": other}, optimizer)

"""Tests that checkpoints of partitioned variables can be restored, also with other partitions.

If an optimizer updates rows independently, the slices (`parts`) train like the whole variable. So a
training that continues with other partitions is compared with a training without partitions.
"""

import warnings

import numpy as np
import pytest
import tensorflow as tf

import legacy_opt
from legacy_opt import versions
from legacy_opt.compat import to_v1
from legacy_opt.compat.state import checkpoint_contents
from legacy_opt.compat.state.checkpoint_files.errors import CheckpointError
from legacy_opt.compat.state.checkpoint_files.reader import open_checkpoint
from legacy_opt.compat.state.checkpoints import conversion_by_name
from tests.support.cases import CASES, one_of_each_class
from tests.support.running import REF_AND_RESOURCE, in_parts

v1 = tf.compat.v1


def start(shape):
    return np.linspace(-1, 1, int(np.prod(shape))).reshape(shape).astype(np.float32)


class Training:
    """Builds a graph with one variable, which may be partitioned, and a Saver.

    Args:
      make: a function from the global step to the optimizer.
      shape: the shape of the variable.
      parts: the number of slices; 0 for a variable that is not partitioned.
      axis: the axis along which the variable is partitioned.
      sparse: if true, a batch is a list of ids, and the loss is the sum of the squares of the rows
        with these ids; otherwise a batch is the variable's gradient.
    """

    def __init__(self, make, shape, parts, axis=0, sparse=False, use_resource=True):
        with tf.Graph().as_default() as self.graph:
            self.variables = in_parts("w", start(shape), parts, axis, use_resource=use_resource)
            step = v1.train.get_or_create_global_step()
            if sparse:
                self.batch = v1.placeholder(tf.int64, [None])
                table = self.variables if parts else self.variables[0]
                rows = v1.nn.embedding_lookup(table, self.batch, partition_strategy="div")
                loss = tf.reduce_sum(rows * rows)
            else:
                self.batch = v1.placeholder(tf.float32, shape)
                loss = tf.reduce_sum(tf.concat(self.variables, axis) * self.batch)
            self.optimizer = make(step)
            self.train_op = self.optimizer.minimize(loss, global_step=step)
            self.whole = tf.concat(self.variables, axis)
            self.saver = v1.train.Saver()
            self.session = v1.Session()
            self.session.run(v1.global_variables_initializer())

    def train(self, *batches):
        for batch in batches:
            self.session.run(self.train_op, {self.batch: batch})
        return self.session.run(self.whole)

    def save(self, folder):
        with self.graph.as_default():
            return self.saver.save(self.session, str(folder / "model"))

    def restore(self, path):
        with self.graph.as_default():
            self.saver.restore(self.session, path)
        return self


def batches(shape, count, sparse):
    generator = np.random.RandomState(3)
    if sparse:
        return [generator.randint(0, shape[0], 4) for _ in range(count)]
    return [generator.normal(size=shape).astype(np.float32) for _ in range(count)]


def moved(make, shape, parts, steps, folder, sparse=False, axis=0, use_resource=True):
    """Trains a variable with parts[0] slices, then continues the training with parts[1] slices.

    Returns:
      The trained variable, and the variable after the same training without partitions.
    """
    data = batches(shape, steps[0] + steps[1], sparse)
    options = dict(sparse=sparse, axis=axis, use_resource=use_resource)
    before = Training(make, shape, parts[0], **options)
    before.train(*data[: steps[0]])
    after = Training(make, shape, parts[1], **options).restore(before.save(folder))
    whole = Training(make, shape, 0, **options)
    return after.train(*data[steps[0] :]), whole.train(*data)


# --- Accumulated gradients.


def accumulated(step):
    del step
    return legacy_opt.GradientAccumulationOptimizer(v1.train.GradientDescentOptimizer(2.0), 2)


@REF_AND_RESOURCE
@pytest.mark.parametrize("parts", [2, 1, 0, 7])
def test_an_accumulation_continues_with_other_partitions(parts, use_resource, tmp_path):
    options = dict(sparse=True, use_resource=use_resource)
    before = Training(accumulated, [7, 2], 3, **options)
    before.train([3, 6])
    after = Training(accumulated, [7, 2], parts, **options).restore(before.save(tmp_path))
    touched = np.isin(np.arange(7), [0, 3, 6])[:, np.newaxis]
    # In a batch that contains a row, the row's gradient is 2 * row. Each touched row is in only one
    # of the two batches, so the mean of its gradients is the row itself. The learning rate is 2.
    expected = start([7, 2]) - touched * 2 * start([7, 2])
    np.testing.assert_array_equal(after.train([0]), expected)


# --- AdagradDecay's counts of past decays.


def test_decay_counts_by_position_warn():
    def make(step):
        return legacy_opt.AdagradDecayOptimizer(0.1, step)

    with pytest.warns(UserWarning, match="AdagradDecayOptimizerV2 computes the same"):
        Training(make, [7, 5], 3, sparse=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error", legacy_opt.RepartitionWarning)
        Training(make, [7, 5], 1, sparse=True)
        Training(make, [7, 5], 3, sparse=False)


# --- Every class.

# These optimizers cannot be restored with other partitions. As in the originals, their state fits
# only one slice, or the slots of each slice are saved under the name of the slice.
OF_PARTS = ("Adafactor", "AdamAsync", "NovoGrad", "Shampoo") + ("AdamWeightDecay", "LAMB")


@pytest.mark.in_turn(name=one_of_each_class(), axis=[0, 1], shape=[(7, 3), (6, 6)])
def test_every_class_with_other_partitions(name, axis, shape, tmp_path):
    """Restores the state of three slices into two slices, or checks that this raises an error."""
    make, data = CASES[name].make, batches(shape, 4, sparse=False)
    before = Training(make, shape, 3, axis)
    before.train(*data[:3])
    path = before.save(tmp_path)
    same = Training(make, shape, 3, axis).restore(path)
    np.testing.assert_array_equal(same.train(data[3]), before.train(data[3]))
    other = Training(make, shape, 2, axis)
    counts_rows = name.startswith("AdagradDecayV2")
    if name in OF_PARTS or (counts_rows and axis == 1):
        with pytest.raises(Exception, match="w/(part_.|(rows|columns)_._to_._of_.)/"):
            other.restore(path)
        return
    (tmp_path / "again").mkdir()
    again = other.restore(path).save(tmp_path / "again")
    old, new = (v1.train.NewCheckpointReader(each) for each in (path, again))
    assert old.get_variable_to_shape_map() == new.get_variable_to_shape_map()
    for tensor in old.get_variable_to_shape_map():
        np.testing.assert_array_equal(new.get_tensor(tensor), old.get_tensor(tensor), tensor)


@pytest.mark.parametrize("name", ["Adafactor", "AdamAsync", "AdamWeightDecay"])
def test_state_of_a_part_is_not_restored_into_another_part(name, tmp_path):
    make, data = CASES[name].make, batches([8, 5], 2, sparse=False)
    path = saved(make, [8, 5], 4, tmp_path, *data).path
    for parts in 1, 2:
        with pytest.raises(tf.errors.OpError, match="w/(part_0|rows_0_to_4_of_8|Ada.*)"):
            Training(make, [8, 5], parts).restore(path)


def of_keras(step):
    """Returns Keras' Adam, which `to_v1` converts to a v1 optimizer for graphs."""
    del step
    optimizers = tf.keras.optimizers
    generation = versions.keras_facts()["generation"]
    home = getattr(optimizers, "legacy", optimizers) if generation == 2 else optimizers
    return to_v1(lambda: home.Adam(0.1))


@pytest.mark.parametrize("parts", [(3, 2), (2, 0)], ids=str)
def test_keras_optimizers_with_other_partitions(parts, tmp_path):
    actual, expected = moved(of_keras, [7, 3], parts, (2, 2), tmp_path)
    np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-6)


# --- `inspect` and `convert`.


def saved(make, shape, parts, folder, *data, **options):
    training = Training(make, shape, parts, **options)
    training.train(*data)
    return open_checkpoint(training.save(folder))


def found_in(checkpoint):
    """Returns the slots of w in a checkpoint, as a dict from suffix to (kind, shape, role)."""
    (variable,) = checkpoint_contents.contents(checkpoint).variables
    return {slot.suffix: (slot.item.kind, slot.item.shape, slot.role) for slot in variable.slots}


def converted(checkpoint, folder, name_map=None):
    path = str(folder / "whole")
    conversion_by_name.write(conversion_by_name.to_saver(checkpoint, name_map), checkpoint, path)
    return path


def test_a_column_slot_of_a_square_part_is_no_row_slot(tmp_path):
    data = batches([7, 3], 2, sparse=False)
    checkpoint = saved(CASES["Adafactor"].make, [7, 3], 2, tmp_path, *data)
    assert found_in(checkpoint) == {
        "Adafactor": ("tensor", (7,), "vr"),
        "Adafactor_1": ("of each part", (3,), "vc"),
    }
    with pytest.raises(CheckpointError, match="each part of w has its own w/Adafactor_1"):
        converted(checkpoint, tmp_path)
    left_out = open_checkpoint(converted(checkpoint, tmp_path, {"w/Adafactor_1": None}))
    assert sorted(left_out.tensors) == ["global_step", "w", "w/Adafactor"]


def test_shampoo_with_parts_on_both_sides_of_max_matrix_size(tmp_path):
    def make(step):
        return legacy_opt.ShampooOptimizer(step, max_matrix_size=3)

    checkpoint = saved(make, [7, 3], 2, tmp_path, *batches([7, 3], 1, sparse=False))
    assert not any(info.missing for info in checkpoint.tensors.values())
    kinds = {suffix: kind for suffix, (kind, *_) in found_in(checkpoint).items()}
    assert kinds == {"Shampoo": "tensor", "Shampoo_1": "of each part", "Shampoo_2": "of each part"}


def test_convert_joins_slots_that_are_saved_part_by_part(tmp_path):
    make, data = CASES["AdamWeightDecay"].make, batches([7, 3], 3, sparse=False)
    checkpoint = saved(make, [7, 3], 3, tmp_path, *data[:2])
    assert found_in(checkpoint)["adam_m"] == ("parts", (7, 3), "m")
    whole = Training(make, [7, 3], 0).restore(converted(checkpoint, tmp_path))
    expected = Training(make, [7, 3], 3).restore(checkpoint.path).train(data[2])
    np.testing.assert_allclose(whole.train(data[2]), expected, rtol=1e-5)


def test_convert_keeps_the_rows_of_an_accumulation(tmp_path):
    checkpoint = saved(accumulated, [7, 2], 3, tmp_path, [3, 6], sparse=True)
    whole = Training(accumulated, [7, 2], 0, sparse=True)
    whole.restore(converted(checkpoint, tmp_path))
    touched = np.isin(np.arange(7), [0, 3, 6])[:, np.newaxis]
    expected = start([7, 2]) - touched * 2 * start([7, 2])
    np.testing.assert_array_equal(whole.train([0]), expected)


def test_a_tensor_with_missing_parts(tmp_path):
    path = str(tmp_path / "model")
    with tf.Graph().as_default(), v1.Session() as session:
        session.run(
            tf.raw_ops.SaveV2(
                prefix=path,
                tensor_names=["w", "w/Adagrad"],
                shape_and_slices=["", "7 0,3"],
                tensors=[tf.zeros([7]), tf.ones([3])],
            )
        )
    checkpoint = open_checkpoint(path)
    assert found_in(checkpoint)["Adagrad"][0] == "incomplete"
    for plan in (
        conversion_by_name.to_saver,
        lambda each: conversion_by_name.to_decay_layout(each, "V2"),
    ):
        with pytest.raises(
            CheckpointError, match="'w/Adagrad' cannot be converted: parts of it are"
        ):
            plan(checkpoint)

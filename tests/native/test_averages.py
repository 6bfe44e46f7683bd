"""Tests moving averages that a native kernel computes."""

import numpy as np
import pytest
import tensorflow as tf

import legacy_opt
from legacy_opt.native import accelerate, settings
from tests.native.training import START, Sgd
from tests.support import ending_datasets, problems, running

v1 = tf.compat.v1


def averaging(**options):
    return legacy_opt.MovingAverageOptimizer(Sgd(), 0.9, **options)


def trained(optimizer, dtype="float32", use_resource=True):
    """Returns variables, slots and averages after two steps, and the types of all operations."""
    with tf.Graph().as_default() as graph:
        step = v1.train.get_or_create_global_step()
        start = [tf.cast(each, dtype) for each in (START, START[0], np.zeros([0, 2]))]
        variables = [
            v1.get_variable(f"v{i}", initializer=each, use_resource=use_resource)
            for i, each in enumerate(start)
        ]
        rows = tf.IndexedSlices(start[0][:3] / 7, tf.constant([4, 1, 4]), START.shape)
        pairs = list(zip([rows, start[1] / 7, start[2]], variables))
        train_op = optimizer.apply_gradients(pairs, step)
        values = running.after(train_op, steps=2)
        return values, [each.type for each in graph.get_operations()]


@pytest.mark.parametrize("use_resource", [False, True])
@pytest.mark.parametrize("sequential", [False, True])
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_averages_are_equal_bit_for_bit(dtype, sequential, use_resource, fresh):
    def make():
        step = v1.train.get_or_create_global_step
        return averaging(sequential_update=sequential, num_updates=step)

    expected, types = trained(make(), dtype, use_resource)
    assert not [each for each in types if "LegacyOpt" in each]
    actual, types = trained(accelerate(make(), require=True), dtype, use_resource)
    # The first operation updates the table, the second updates the two other variables, and the
    # third updates all averages.
    assert len([each for each in types if "LegacyOptUpdate" in each]) == 3
    np.testing.assert_equal(actual, expected)


@pytest.mark.parametrize("way", ending_datasets.WAYS)
@pytest.mark.parametrize("by_name", [False, True])
def test_a_step_at_the_end_of_a_dataset_changes_nothing(way, by_name, fresh):
    fresh.setattr(settings, "_current", settings.Settings(by_name=by_name))
    problem = problems.everything(only=("matrix", "table"), steps=3)
    changed = ending_datasets.changed(
        way, problem, lambda _: accelerate(averaging(sequential_update=False), require=True)
    )
    assert not changed


@pytest.mark.parametrize("way", list(running.WAYS)[1:])
def test_all_ways(way, fresh):
    problem = problems.everything("float32", ("matrix", "bias"), steps=3)
    expected = running.session_ref(problem, lambda step: averaging())
    actual = running.WAYS[way](problem, lambda step: accelerate(averaging(), require=True))
    running.assert_same(actual, expected, way)


@pytest.mark.parametrize("setting", ["off", "auto"])
def test_a_variable_with_two_gradients(setting, fresh):
    """Checks only an inequality, because the updates by the two gradients run in any order."""
    with tf.Graph().as_default():
        variable = v1.get_variable("w", initializer=START, use_resource=True)
        optimizer = averaging()
        optimizer.native = setting
        train_op = optimizer.apply_gradients([(tf.ones_like(START), variable)] * 2)
        assert (running.after(train_op, optimizer.average(variable)) < START).all()

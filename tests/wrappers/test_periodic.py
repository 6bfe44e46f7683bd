"""Tests LookaheadOptimizer and SWAOptimizer: numbers computed by hand, names, dtypes, restarts."""

import numpy as np
import pytest
import tensorflow as tf

import legacy_opt
from tests.support import running
from tests.wrappers.inner_optimizers import momentum, sgd

v1 = tf.compat.v1


def trained(optimizer, steps, dtype="float32"):
    """Trains one variable eagerly with a gradient of 1; returns (value, shadow) after each step."""
    variable = tf.Variable(np.array([8.0], dtype))
    (slot,) = set(optimizer.get_slot_names()) or {optimizer._shadow}
    found = []
    for _ in range(steps):
        optimizer.apply_gradients([(tf.ones([1], dtype), variable)])
        found.append((float(variable.numpy()[0]), float(optimizer.get_slot(variable, slot)[0])))
    return found


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_slow_weights_computed_by_hand(dtype):
    dtype = getattr(tf, dtype).as_numpy_dtype
    optimizer = legacy_opt.LookaheadOptimizer(sgd(), sync_period=2, slow_step_size=0.25)
    expected = [(7.5, 8.0), (7.75, 7.75), (7.25, 7.75), (7.5, 7.5), (7.0, 7.5)]
    assert trained(optimizer, 5, dtype) == expected


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_averages_computed_by_hand(dtype):
    """Before the first snapshot, after the third step, the average is the variable."""
    dtype = getattr(tf, dtype).as_numpy_dtype
    optimizer = legacy_opt.SWAOptimizer(sgd(), start_averaging=2, average_period=2)
    averages = [7.5, 7.0, 6.5, 6.5, 6.0, 6.0, 5.5]
    expected = [(8 - 0.5 * number, average) for number, average in enumerate(averages, 1)]
    assert trained(optimizer, 7, dtype) == expected


def test_many_snapshots_of_a_16_bit_variable():
    """In float16, the sum of snapshots would be infinite, and 2049 would be 2048."""
    variable = tf.Variable(np.array([40.0], "float16"))
    optimizer = legacy_opt.SWAOptimizer(sgd(), average_period=1)
    apply = tf.function(
        lambda: optimizer.apply_gradients([(tf.zeros([1], tf.float16), variable)]) and None
    )
    for _ in range(2100):
        apply()
    assert optimizer.average(variable).numpy() == 40.0


@running.REF_AND_RESOURCE
def test_names_and_global_step(use_resource):
    with tf.Graph().as_default():
        partitioner = v1.fixed_size_partitioner(2)
        v1.get_variable("table", [5, 2], partitioner=partitioner, use_resource=use_resource)
        v1.get_variable("w", initializer=[1.0], use_resource=use_resource)
        loss = tf.add_n([tf.reduce_sum(each) for each in v1.trainable_variables()])
        step = v1.train.get_or_create_global_step()
        inner = legacy_opt.LookaheadOptimizer(momentum(), 2, name="Slow")
        optimizer = legacy_opt.SWAOptimizer(inner, average_period=2)
        train_op = optimizer.minimize(loss, global_step=step, name="train")
        names = [each.op.name for each in optimizer.variables()]
        parts = ["table/part_0", "table/part_1", "w"]
        expected = [f"{each}/{kind}" for each in parts for kind in ("Momentum", "SWA", "Slow")]
        assert sorted(names) == sorted([*expected, "SWA/step", "Slow/step"])
        assert train_op.name == "train" and v1.get_collection("train_op") == [train_op]
        with running.started() as sess:
            for _ in range(3):
                sess.run(train_op)
            counts = [each for each in v1.global_variables() if "step" in each.name]
            assert sess.run(counts) == [3, 3, 3]


def test_without_a_gradient_a_variable_keeps_its_value_and_the_step_counts():
    one, other = tf.Variable([8.0]), tf.Variable([8.0])
    optimizer = legacy_opt.LookaheadOptimizer(sgd(), sync_period=2)
    for grad in tf.ones([1]), None, tf.ones([1]):
        optimizer.apply_gradients([(grad, one), (tf.ones([1]), other)])
    assert (one.numpy(), other.numpy()) == ([7.0], [7.0])
    assert optimizer.get_slot(one, "slow").numpy() == [8.0]  # it had no gradient in step 2


@running.REF_AND_RESOURCE
def test_only_synchronizations_write_whole_tables(use_resource):
    with tf.Graph().as_default() as graph:
        table = v1.get_variable("table", [9, 2], use_resource=use_resource)
        grad = tf.IndexedSlices(tf.ones([1, 2]), tf.constant([3]), [9, 2])
        optimizer = legacy_opt.LookaheadOptimizer(sgd(), sync_period=2)
        train_op = optimizer.apply_gradients([(grad, table)])
        kind = "AssignVariableOp" if use_resource else "Assign"
        names = {op.name for op in graph.get_operations() if op.type == kind}
        options = v1.RunOptions(trace_level=v1.RunOptions.FULL_TRACE)
        with running.started() as sess:
            counts = []
            for _ in range(4):
                metadata = v1.RunMetadata()
                sess.run(train_op, options=options, run_metadata=metadata)
                nodes = [
                    node for device in metadata.step_stats.dev_stats for node in device.node_stats
                ]
                counts.append(len(names.intersection(node.node_name for node in nodes)))
        assert counts == [0, 2, 0, 2]


@running.REF_AND_RESOURCE
def test_the_saver_swaps_averages_in_a_monitored_session(use_resource, tmp_path):
    with tf.Graph().as_default():
        variable = v1.get_variable("w", initializer=[8.0], use_resource=use_resource)
        step = v1.train.get_or_create_global_step()
        optimizer = legacy_opt.SWAOptimizer(sgd(), average_period=1)
        train_op = optimizer.apply_gradients([(tf.ones([1]), variable)], global_step=step)
        scaffold = v1.train.Scaffold(saver=optimizer.swapping_saver())
        for expected in [7.0], [6.0]:  # the second session continues from the checkpoint
            with v1.train.MonitoredTrainingSession(
                checkpoint_dir=str(tmp_path), scaffold=scaffold, save_summaries_steps=None
            ) as sess:
                sess.run(train_op)
                assert sess.run([train_op, variable])[1] is not None
                assert sess.run(variable) == expected
            path = v1.train.latest_checkpoint(str(tmp_path))
            steps = int(v1.train.load_variable(path, "SWA/step"))
            values = [8 - 0.5 * number for number in range(1, steps + 1)]
            assert v1.train.load_variable(path, "w") == [np.mean(values)]
            assert v1.train.load_variable(path, "w/SWA") == expected
            v1.get_default_graph()._finalized = False


def test_training_continues_from_an_object_checkpoint(tmp_path):
    def training():
        variable = tf.Variable([1.0, 2.0], name="w")
        optimizer = legacy_opt.LookaheadOptimizer(momentum(), 3, 0.25)
        return variable, optimizer, tf.train.Checkpoint(w=variable, optimizer=optimizer)

    variable, optimizer, checkpoint = training()
    for _ in range(4):
        optimizer.apply_gradients([(tf.constant([1.0, 0.5]), variable)])
    path = checkpoint.save(str(tmp_path / "checkpoint"))
    other, restored, checkpoint = training()
    checkpoint.restore(path)
    for _ in range(3):
        for each, w in (optimizer, variable), (restored, other):
            each.apply_gradients([(tf.constant([1.0, 0.5]), w)])
        np.testing.assert_array_equal(other.numpy(), variable.numpy())
    slow = [each.get_slot(w, "slow") for each, w in ((optimizer, variable), (restored, other))]
    np.testing.assert_array_equal(*[each.numpy() for each in slow])

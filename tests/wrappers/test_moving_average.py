"""Tests MovingAverageOptimizer: names, checkpoints, and the swapping saver.

The swapping saver saves each average under its variable's name, and the variable under the name of
its average.
"""

import pytest
import tensorflow as tf

import legacy_opt
from tests.wrappers.inner_optimizers import momentum, sgd

v1 = tf.compat.v1


def test_averages_are_slots_with_tensorflows_names():
    with tf.Graph().as_default():
        first, second = (v1.get_variable(name, [2]) for name in ("a/w", "b"))
        optimizer = legacy_opt.MovingAverageOptimizer(v1.train.AdamOptimizer(0.1))
        for variable in first, second:
            optimizer.apply_gradients([(tf.ones([2]), variable)])
        assert optimizer.average(first).op.name == "a/w/ExponentialMovingAverage"
        assert optimizer.get_slot(first, "moving_average") is optimizer.average(first)
        assert optimizer.get_slot(first, "m").op.name == "a/w/Adam"
        assert optimizer.get_slot_names() == ["m", "moving_average", "v"]
        assert v1.get_collection(v1.GraphKeys.MOVING_AVERAGE_VARIABLES) == [first, second]
        names = [variable.op.name for variable in optimizer.variables()]
        assert "b/ExponentialMovingAverage" in names and "beta1_power" in names
        assert optimizer.average(v1.get_variable("other", [2])) is None


@pytest.mark.parametrize("use_resource", [False, True])
def test_the_swapping_saver_swaps_the_variables_of_all_train_ops(use_resource, tmp_path):
    with tf.Graph().as_default():
        collections = {"first": None, "second": [v1.GraphKeys.LOCAL_VARIABLES]}
        first, second = (
            v1.get_variable(
                name, initializer=tf.ones([2]), use_resource=use_resource, collections=where
            )
            for name, where in collections.items()
        )
        initializers = v1.global_variables_initializer, v1.local_variables_initializer
        optimizer = legacy_opt.MovingAverageOptimizer(sgd(), 0.5)
        steps = [
            optimizer.apply_gradients([(tf.ones([2]), variable)]) for variable in (first, second)
        ]
        entries = {"one": first, "one_average": optimizer.average(first), "two": second}
        with pytest.raises(ValueError, match="has 'second', but not 'second/Exponential"):
            optimizer.swapping_saver(entries)
        with pytest.raises(TypeError, match="var_list of swapping_saver has 'first', which is no"):
            optimizer.swapping_saver(["first"])
        saver = optimizer.swapping_saver({**entries, "two_average": optimizer.average(second)})
        with v1.Session() as sess:
            sess.run([initializer() for initializer in initializers])
            sess.run(steps)
            path = saver.save(sess, str(tmp_path / "model"))
            found = {name: v1.train.load_variable(path, name)[0] for name in saved_names(path)}
            assert found == {"one": 0.75, "one_average": 0.5, "two": 0.75, "two_average": 0.5}
            sess.run([initializer() for initializer in initializers])
            saver.restore(sess, path)
            restored, average = sess.run([first, optimizer.average(first)])
            assert restored.tolist() == [0.5, 0.5] and average.tolist() == [0.75, 0.75]
            v1.train.Saver({"one": first}).restore(sess, path)
            assert first.eval().tolist() == [0.75, 0.75]


def saved_names(path):
    return [name for name, _ in tf.train.list_variables(path)]


def test_errors_of_the_swapping_saver():
    optimizer = legacy_opt.MovingAverageOptimizer(sgd())
    with pytest.raises(RuntimeError, match="creates a Saver for a TF1 graph"):
        optimizer.swapping_saver()
    with tf.Graph().as_default(), pytest.raises(RuntimeError, match="must be called after min"):
        v1.get_variable("w", [2])
        optimizer.swapping_saver()


def test_averages_are_saved_in_object_checkpoints(tmp_path):
    def training():
        variable = tf.Variable([1.0, 2.0], name="w")
        optimizer = legacy_opt.MovingAverageOptimizer(momentum(), 0.5)
        return variable, optimizer, tf.train.Checkpoint(w=variable, optimizer=optimizer)

    variable, optimizer, checkpoint = training()
    optimizer.apply_gradients([(tf.constant([1.0, 1.0]), variable)])
    path = checkpoint.save(str(tmp_path / "checkpoint"))
    other, restored, checkpoint = training()
    checkpoint.restore(path)
    restored.apply_gradients([(tf.constant([0.0, 0.0]), other)])
    optimizer.apply_gradients([(tf.constant([0.0, 0.0]), variable)])
    assert other.numpy().tolist() == variable.numpy().tolist()
    averages = [
        each.average(w).numpy().tolist() for each, w in ((optimizer, variable), (restored, other))
    ]
    assert averages[0] == averages[1] == [pytest.approx(0.4), pytest.approx(1.4)]


def test_a_step_in_a_function_does_not_change_the_control_flow_version():
    was_enabled = v1.control_flow_v2_enabled()
    v1.disable_control_flow_v2()  # a tf.function uses control flow v2 nevertheless
    try:
        variable = tf.Variable([1.0])
        optimizer = legacy_opt.MovingAverageOptimizer(sgd(), 0.5)
        step = tf.function(lambda: optimizer.apply_gradients([(tf.ones([1]), variable)]) and None)
        step()
        assert not v1.control_flow_v2_enabled()
        assert (variable.numpy(), optimizer.average(variable).numpy()) == ([0.5], [0.75])
    finally:
        if was_enabled:
            v1.enable_control_flow_v2()

"""Tests loss scaling against the inner optimizer alone, and the managers against plain numbers."""

import numpy as np
import pytest
import tensorflow as tf

import legacy_opt
from legacy_opt import LossScaleOptimizer
from legacy_opt.compat import to_keras
from tests.support.running import REF_AND_RESOURCE

v1 = tf.compat.v1
FACTORS = [1.0, np.inf, -0.5, np.nan, 2.0]


def adam():
    return v1.train.AdamOptimizer(0.1)


def scaled():
    """Returns an optimizer that scales by powers of two, so that no bits change."""
    manager = legacy_opt.ExponentialUpdateLossScaleManager(64.0, 2, 1, 4.0, decr_ratio=0.5)
    return LossScaleOptimizer(adam(), manager)


def in_session(make, factors, use_resource, partitioned=False, cond=False):
    """Returns the variables and slots of w, and the global step, after the training."""
    with tf.Graph().as_default(), v1.variable_scope("", use_resource=use_resource):
        initializer = v1.ones_initializer()
        partitioner = v1.fixed_size_partitioner(2) if partitioned else None
        w = v1.get_variable("w", [4, 2], initializer=initializer, partitioner=partitioner)
        factor = v1.placeholder(tf.float32, [])
        step = v1.train.get_or_create_global_step()
        loss = tf.reduce_sum(tf.sin(tf.convert_to_tensor(w))) * factor
        optimizer = make()
        train_op = optimizer.minimize(loss, step)
        with v1.Session() as session:
            session.run(v1.global_variables_initializer())
            for value in factors:
                session.run(train_op, {factor: value})
            names = {each.op.name: each for each in v1.global_variables()}
            return session.run(names)


@REF_AND_RESOURCE
@pytest.mark.parametrize("partitioned", [False, True])
def test_finite_steps_are_those_of_the_inner_optimizer(use_resource, partitioned):
    finite = [each for each in FACTORS if np.isfinite(each)]
    expected = in_session(adam, finite, use_resource, partitioned)
    actual = in_session(scaled, FACTORS, use_resource, partitioned)
    assert expected["global_step"] == 3
    for name, value in expected.items():
        name = f"cond/{name}" if name.endswith("_power") else name
        np.testing.assert_array_equal(actual[name], value, err_msg=name)


def trained_eagerly(make, factors, wrap):
    w, step = tf.Variable(tf.ones([4, 2])), tf.Variable(0, dtype=tf.int64)
    factor = tf.Variable(1.0, trainable=False)
    optimizer = make()

    def train():
        optimizer.minimize(lambda: tf.reduce_sum(tf.sin(w)) * factor, step, [w])

    train = wrap(train)
    for value in factors:
        factor.assign(value)
        train()
    return w.numpy(), step.numpy(), optimizer


@pytest.mark.parametrize("wrap", [lambda train: train, tf.function], ids=["eager", "function"])
def test_eager_code_and_functions_skip_steps_too(wrap):
    w, step, optimizer = trained_eagerly(scaled, FACTORS, wrap)
    expected, _, _ = trained_eagerly(adam, [1.0, -0.5, 2.0], wrap)
    np.testing.assert_array_equal(w, expected)
    assert step == 3
    assert optimizer._loss_scale_manager.get_loss_scale().numpy() == 16.0


def test_the_scale_is_in_object_based_checkpoints(tmp_path):
    _, _, optimizer = trained_eagerly(scaled, FACTORS, lambda train: train)
    path = tf.train.Checkpoint(optimizer=optimizer).save(str(tmp_path / "model"))
    other = scaled()
    tf.train.Checkpoint(optimizer=other).restore(path)
    scale, good = (
        getattr(other._loss_scale_manager, n) for n in ("_loss_scale", "_num_good_steps")
    )
    assert (scale.numpy(), good.numpy()) == (16.0, 1)


def test_a_callable_loss_in_a_graph():
    with tf.Graph().as_default(), v1.Session() as session:
        w = v1.get_variable("w", initializer=[2.0])
        descent = v1.train.GradientDescentOptimizer(0.25)
        optimizer = LossScaleOptimizer(descent, legacy_opt.FixedLossScaleManager(8.0))
        train_op = optimizer.minimize(lambda: tf.reduce_sum(tf.square(w)))
        session.run(v1.global_variables_initializer())
        session.run(train_op)
        assert session.run(w) == [1.0]


def test_gradients_without_a_path_and_sparse_gradients():
    with tf.Graph().as_default(), v1.Session() as session:
        table = v1.get_variable("table", initializer=[[1.0], [2.0], [3.0]])
        unused = v1.get_variable("unused", initializer=1.0)
        descent = v1.train.GradientDescentOptimizer(1.0)
        optimizer = LossScaleOptimizer(descent, legacy_opt.FixedLossScaleManager(8.0))
        pairs = optimizer.compute_gradients(tf.reduce_sum(tf.gather(table, [1, 1])))
        assert isinstance(pairs[0][0], tf.Tensor) and pairs[1] == (None, unused)
        sparse = tf.IndexedSlices(tf.constant([[np.inf]]), tf.constant([0]), tf.constant([3, 1]))
        train_ops = [optimizer.apply_gradients(each) for each in (pairs, [(sparse, table)])]
        session.run(v1.global_variables_initializer())
        for train_op in train_ops:
            session.run(train_op)
            np.testing.assert_array_equal(session.run(table), [[1], [0], [3]])


def manager_by_hand(states, init, incr_every, decr_every, incr, decr):
    """Computes what the documentation of the managers says, in Python. Yields scale, good, bad."""
    scale, good, bad = np.float32(init), 0, 0
    for is_finite in states:
        if is_finite:
            good += 1
            if good >= incr_every:
                with np.errstate(over="ignore"):
                    larger = scale * np.float32(incr)
                scale, good, bad = (larger if np.isfinite(larger) else scale), 0, 0
        else:
            good, bad = 0, bad + 1
            if bad >= decr_every:
                scale, bad = max(np.float32(1), scale * np.float32(decr)), 0
        yield scale, good, bad


@REF_AND_RESOURCE
@pytest.mark.parametrize(
    "arguments", [(8.3, 2, 2, 1.7, 0.6), (1.5, 1, 3, 2.0, 0.1), (3e38, 1, 1, 10.0, 0.5)]
)
def test_the_scale_follows_the_rules(arguments, use_resource):
    states = np.random.RandomState(1).rand(40) < 0.6
    with tf.Graph().as_default(), v1.Session() as session:
        with v1.variable_scope("", use_resource=use_resource):
            manager = legacy_opt.ExponentialUpdateLossScaleManager(*arguments)
        state = [manager._loss_scale, manager._num_good_steps, manager._num_bad_steps]
        is_finite = v1.placeholder(tf.bool, [])
        update = manager.update_loss_scale(is_finite)
        session.run(v1.global_variables_initializer())
        for value, expected in zip(states, manager_by_hand(states, *arguments)):
            session.run(update, {is_finite: value})
            assert tuple(session.run(state)) == expected


def test_a_finite_step_does_not_shrink_the_scale_after_a_lower_limit():
    with tf.Graph().as_default(), v1.Session() as session:
        manager = legacy_opt.ExponentialUpdateLossScaleManager(8.0, 9, 2, decr_ratio=0.5)
        updates = [manager.update_loss_scale(tf.constant(each)) for each in (True, False)]
        session.run(v1.global_variables_initializer())
        manager._num_bad_steps.load(5, session)  # from a checkpoint of a higher limit
        for update, expected in zip(updates, (8.0, 4.0)):
            session.run(update)
            assert session.run(manager.get_loss_scale()) == expected


WRONG = {
    "loss_scale must be at least 1, got 0.5": lambda: legacy_opt.FixedLossScaleManager(0.5),
    "incr_every_n_steps must be": lambda: legacy_opt.ExponentialUpdateLossScaleManager(8.0, 0),
    "decr_ratio must be positive": lambda: legacy_opt.ExponentialUpdateLossScaleManager(
        8.0, 1, decr_ratio=-1.0
    ),
    "loss_scale_manager must be": lambda: LossScaleOptimizer(adam(), 8.0),
    "wraps tf.compat.v1.train.Optimizer": lambda: LossScaleOptimizer(None, 8.0),
    "no variable has a gradient": lambda: LossScaleOptimizer(
        adam(), legacy_opt.FixedLossScaleManager(8.0)
    ).apply_gradients([(None, tf.Variable(1.0))]),
}


@pytest.mark.parametrize("message", WRONG)
def test_wrong_arguments(message):
    with pytest.raises((TypeError, ValueError), match=message):
        WRONG[message]()


@pytest.mark.parametrize("cls", [LossScaleOptimizer, type("Mine", (LossScaleOptimizer,), {})])
def test_keras_scales_the_loss_itself(cls):
    optimizer = cls(adam(), legacy_opt.FixedLossScaleManager(8.0))
    with pytest.raises(
        ValueError, match="Keras' own LossScaleOptimizer.*pass the optimizer in it to to_keras"
    ):
        to_keras(optimizer)


def test_a_strategy_is_refused():
    with tf.Graph().as_default(), tf.distribute.MirroredStrategy(["/cpu:0"]).scope():
        w = v1.get_variable("w", initializer=1.0)
        optimizer = LossScaleOptimizer(adam(), legacy_opt.FixedLossScaleManager(8.0))
        with pytest.raises(ValueError, match="tf.distribute strategy: use tf.compat.v1.train.exp"):
            optimizer.apply_gradients([(tf.constant(1.0), w)])

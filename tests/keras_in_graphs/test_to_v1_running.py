"""Tests to_v1 with Savers, MonitoredTrainingSession, Estimators and parameter servers."""

import functools
import socket

import numpy as np
import pytest
import tensorflow as tf

from legacy_opt import versions
from legacy_opt.compat import estimator, to_v1
from tests.support import estimators
from tests.support.keras.keras_apis import OPTIMIZER_V2

v1 = tf.compat.v1
KERAS_2 = OPTIMIZER_V2.optimizers
HOMES = {"keras2": KERAS_2}
if versions.keras_facts()["generation"] == 3:
    HOMES["keras3"] = versions.keras_3().optimizers
EACH = pytest.mark.parametrize("keras", sorted(HOMES))


def model():
    """Returns the loss of a dense variable and of an embedding whose lookups repeat an id."""
    dense = v1.get_variable("dense", initializer=np.float32([1, -2, 3]), use_resource=True)
    table = v1.get_variable("table", initializer=np.ones([4, 2], "f"), use_resource=True)
    return tf.reduce_sum(dense**2) + tf.reduce_sum(tf.gather(table, [1, 3, 1]) ** 3)


def graph(home):
    """Builds a graph; returns its train_op."""
    step = v1.train.get_or_create_global_step()
    schedule = (OPTIMIZER_V2.keras.optimizers if home is KERAS_2 else home).schedules
    rate = schedule.ExponentialDecay(0.1, 4, 0.5)
    optimizer = to_v1(lambda: home.Adam(rate, amsgrad=True), name="Adam")
    return optimizer.minimize(model(), global_step=step)


def state(session):
    return session.run({each.op.name: each for each in v1.global_variables()})


def assert_same(actual, expected):
    assert set(actual) == set(expected)
    for name, value in expected.items():
        assert np.array_equal(actual[name], value), name


def plain(home, steps):
    """Returns the state after `steps` training steps in one Session."""
    with tf.Graph().as_default():
        train_op = graph(home)
        with v1.Session() as session:
            session.run(v1.global_variables_initializer())
            for _ in range(steps):
                session.run(train_op)
            return state(session)


@EACH
def test_training_continues_from_a_saver_checkpoint(keras, tmp_path):
    home = HOMES[keras]
    for number in (0, 1):
        # In Keras 3, the default name of an optimizer contains a number, which increases with each
        # new optimizer. The names in the checkpoint must not contain this number.
        home.Adam(0.1)
        with tf.Graph().as_default(), v1.Session() as session:
            train_op = graph(home)
            saver = v1.train.Saver()
            if number == 0:
                session.run(v1.global_variables_initializer())
            else:
                saver.restore(session, str(tmp_path / "model"))
            for _ in range(4):
                session.run(train_op)
            saver.save(session, str(tmp_path / "model"))
            last = state(session)
    assert_same(last, plain(home, 8))
    names = {name for name, _ in tf.train.list_variables(str(tmp_path / "model"))}
    assert names == set(last)
    slots = ("m", "v", "vhat") if keras == "keras2" else ("momentum", "velocity", "velocity_hat")
    assert {"dense/Adam/" + slot for slot in slots} < names


@EACH
@pytest.mark.parametrize("name", ["Adagrad", "Nadam", "RMSprop"])
def test_names_do_not_depend_on_other_optimizers(keras, name):
    found = []
    for _ in range(2):
        with tf.Graph().as_default():
            optimizer = to_v1(functools.partial(getattr(HOMES[keras], name), 0.1), name=name)
            optimizer.minimize(v1.get_variable("w", initializer=[1.0], use_resource=True))
            found.append({each.op.name for each in v1.global_variables()})
    assert found[0] == found[1]


@EACH
def test_monitored_training_session(keras, tmp_path):
    home = HOMES[keras]
    for last_step in (3, 7):
        with tf.Graph().as_default():
            train_op = graph(home)
            stop = v1.train.StopAtStepHook(last_step=last_step)
            with v1.train.MonitoredTrainingSession(
                checkpoint_dir=str(tmp_path),
                hooks=[stop],
                log_step_count_steps=None,
                save_summaries_steps=None,
                save_summaries_secs=None,
            ) as session:
                while not session.should_stop():
                    session.run(train_op)
    expected = plain(home, 7)
    reader = tf.train.load_checkpoint(str(tmp_path))
    for name, value in expected.items():
        assert np.array_equal(reader.get_tensor(name), value), name


@EACH
def test_the_learning_rate_is_a_variable_and_is_restored(keras, tmp_path):
    home, trained = HOMES[keras], []
    for rate in (0.5, 0.25):
        with tf.Graph().as_default(), v1.Session() as session:
            optimizer = to_v1(functools.partial(home.SGD, rate, 0.5), name="SGD")
            variable = v1.get_variable("w", initializer=[1.0], use_resource=True)
            train_op = optimizer.minimize(2 * variable)
            saver = v1.train.Saver()
            if trained:
                saver.restore(session, str(tmp_path / "model"))
            else:
                session.run(v1.global_variables_initializer())
            session.run(train_op)
            saver.save(session, str(tmp_path / "model"))
            rate = [each for each in v1.global_variables() if each.op.name == "SGD/learning_rate"]
            trained.append(session.run([variable] + rate))
    # The updates are -0.5 * 2 = -1 and 0.5 * -1 - 0.5 * 2 = -1.5, because the second graph restores
    # the learning rate 0.5.
    assert [values[0][0] for values in trained] == [0.0, -1.5]
    assert [values[1] for values in trained] == [0.5, 0.5]


@estimators.needed
def test_estimator(tmp_path):
    optimizer = to_v1(KERAS_2.Adam(0.1))  # the same object for all graphs

    def model_fn(features, labels, mode):
        weights = v1.get_variable("w", [2, 1], initializer=v1.ones_initializer(), use_resource=True)
        loss = tf.reduce_mean((tf.matmul(features["x"], weights) - labels) ** 2)
        step = v1.train.get_global_step()
        train_op = optimizer.minimize(loss, step) if mode == "train" else None
        return estimator.EstimatorSpec(mode, loss=loss, train_op=train_op)

    def input_fn():
        x = np.float32([[1, 2], [3, 4]])
        return tf.data.Dataset.from_tensors(({"x": x}, x[:, :1])).repeat()

    def trained(folder, parts):
        config = estimator.RunConfig(model_dir=str(folder), log_step_count_steps=None)
        made = estimator.Estimator(model_fn, config=config)
        for steps in parts:
            made.train(input_fn, steps=steps)
            assert made.evaluate(input_fn, steps=1)["global_step"] in (3, 7)
        return {name: made.get_variable_value(name) for name in made.get_variable_names()}

    resumed = trained(tmp_path / "parts", (3, 4))
    assert resumed["global_step"] == resumed["Adam/iter"] == 7
    assert_same(resumed, trained(tmp_path / "whole", (7,)))


@EACH
def test_object_based_checkpoints_while_executing_eagerly(keras, tmp_path):
    home, lasts = HOMES[keras], []
    for prefix in (None, str(tmp_path / "eager-1")):
        variable = tf.compat.v2.Variable([1.0, 2.0], name="w")
        optimizer = to_v1(home.Adam(0.1), name="Adam")
        checkpoint = tf.train.Checkpoint(variable=variable, optimizer=optimizer)
        status = checkpoint.restore(prefix)
        steps = 2
        if prefix is None:
            steps = 4
        for number in range(steps):
            optimizer.apply_gradients([(variable * 2, variable)])
            if number == 1 and prefix is None:
                checkpoint.save(str(tmp_path / "eager"))
        if prefix is not None:
            status.assert_existing_objects_matched()
        lasts.append({each.name: each.numpy() for each in [variable] + optimizer.variables()})
    assert_same(lasts[1], lasts[0])
    assert len(lasts[0]) > 4


@EACH
def test_parameter_servers(keras):
    """Two servers store the variables and slots. A worker trains exactly like a Session."""
    home, cluster = HOMES[keras], {}
    for job, count in (("ps", 2), ("worker", 1)):
        cluster[job] = [f"localhost:{free_port()}" for _ in range(count)]
    places = [("ps", 0), ("ps", 1), ("worker", 0)]
    servers = [v1.train.Server(cluster, job_name=job, task_index=index) for job, index in places]
    with tf.Graph().as_default():
        with v1.device(v1.train.replica_device_setter(cluster=v1.train.ClusterSpec(cluster))):
            train_op = graph(home)
        devices = {each.op.name: each.device for each in v1.global_variables()}
        assert {"/job:ps/task:0", "/job:ps/task:1"} == set(devices.values())
        for name, device in devices.items():
            owner = name.split("/Adam/")[0]
            assert devices.get(owner, device) == device
        with v1.Session(servers[-1].target) as session:
            session.run(v1.global_variables_initializer())
            for _ in range(6):
                session.run(train_op)
            found = state(session)
    assert_same(found, plain(home, 6))


def free_port():
    with socket.socket() as taken:
        taken.bind(("localhost", 0))
        return taken.getsockname()[1]

"""Tests SyncReplicasOptimizer around every optimizer class, with two workers.

The expected gradients are computed with NumPy and applied in a plain Session.
"""

import functools
import io
import threading

import numpy as np
import pytest
import tensorflow as tf

import legacy_opt
from tests.support import running
from tests.support import training_ways as ways
from tests.support.cases import CASES
from tests.support.processes.local_cluster import SECONDS, LocalCluster, limited
from tests.support.processes.programs import wait_until
from tests.training.monitored_sessions import written

v1 = tf.compat.v1
# Some optimizers warn, because they read the step variable of their model instead of the graph's
# global step, or because no global step is passed to them.
pytestmark = pytest.mark.filterwarnings("ignore::legacy_opt.GlobalStepWarning")
PARTS = pytest.mark.parametrize("part", range(3), ids="part {}".format)
ROWS = 5


def build(part, wrap):
    """Builds a train_op for a third of all classes; each class trains a vector and a table.

    Returns:
      The optimizer that `wrap` returns, the placeholders of the gradients, and the train_op.
    """
    made, pairs = [], []
    feeds = (
        v1.placeholder(tf.float32, [3]),
        v1.placeholder(tf.int64, [None]),
        v1.placeholder(tf.float32, [None, 2]),
    )
    for number, name in enumerate(ways.CLASSES[part::3]):
        options = {"use_resource": number % 2 == 0}
        with v1.variable_scope(ways.scope(name)):
            dense = v1.get_variable("dense", initializer=tf.ones([3]), **options)
            table = v1.get_variable("table", initializer=tf.ones([ROWS, 2]), **options)
            step = v1.get_variable("step", initializer=np.int64(0), trainable=False, **options)
        made.append(ways.Model(name, CASES[name].make(step), None, step, [dense, table]))
        rows = tf.IndexedSlices(feeds[2], feeds[1], tf.constant([ROWS, 2], tf.int64))
        pairs += [(feeds[0], dense), (rows, table)]
    optimizer = wrap(ways.SideBySide(made))
    step = v1.train.get_or_create_global_step()
    return optimizer, feeds, optimizer.apply_gradients(pairs, global_step=step)


STARTED = []  # the coordinators of chiefs' threads


@pytest.fixture(autouse=True)
def stop_threads():
    """Stops the threads of chiefs: without it, each logs its timeout into a later test's stderr."""
    yield
    for coordinator in STARTED:
        coordinator.request_stop()
    STARTED.clear()


class Worker:
    """A worker with its graph and session; the first worker is the chief."""

    def __init__(self, cluster, number, part, replicas):
        with tf.Graph().as_default() as graph, cluster.placing(number):
            self.optimizer, self.feeds, self.train_op = build(
                part, lambda inner: v1.train.SyncReplicasOptimizer(inner, replicas, 2)
            )
            self.step = v1.train.get_global_step()
            self.variables = {each.op.name: each for each in v1.global_variables()}
            start = [v1.global_variables_initializer(), self.optimizer.chief_init_op]
            runner = self.optimizer.get_chief_queue_runner()
        filters = ["/job:ps", f"/job:worker/task:{number}"]
        config = limited(device_filters=filters)
        self.session = v1.Session(cluster.servers["worker", number].target, graph, config)
        if number:
            self.session.run(self.optimizer.local_step_init_op)
            return
        for each in start:
            self.session.run(each)
        coordinator = v1.train.Coordinator()
        runner.create_threads(self.session, coordinator, daemon=True, start=True)
        STARTED.append(coordinator)

    def is_at(self, step):
        return self.session.run(self.step) == step

    def train(self, gradients):
        self.session.run(self.train_op, dict(zip(self.feeds, gradients)))


def gradients(random):
    """Returns a dense gradient, and the ids and rows of a sparse gradient."""
    ids = np.sort(random.choice(ROWS, random.randint(1, 4), replace=False))
    return random.randn(3).astype("f"), ids, random.randn(ids.size, 2).astype("f")


def mean(first, second):
    """Averages two workers' gradients; if only one worker has a row, the row stays unchanged."""
    ids, rows = np.union1d(first[1], second[1]), []
    for each in ids:
        found = [rows[ids == each] for _, ids, rows in (first, second)]
        found = np.concatenate(found)
        rows.append(sum(found, np.zeros(2, np.float32)) / np.float32(len(found)))
    return (first[0] + second[0]) / np.float32(2), ids, np.stack(rows)


def in_a_session(part, batches):
    """Applies gradients in a Session; returns all variables by name."""
    with tf.Graph().as_default():
        _, feeds, train_op = build(part, lambda optimizer: optimizer)
        variables = ways.global_variables()
        each_feed = [dict(zip(feeds, batch)) for batch in batches]
        return running.after(train_op, variables, feeds=each_feed)


@PARTS
def test_the_mean_of_two_workers(part):
    cluster, random = LocalCluster(ps=1, worker=2), np.random.RandomState(part)
    chief, other = (Worker(cluster, number, part, replicas=2) for number in range(2))
    batches = []
    for _ in range(5):
        pair = gradients(random), gradients(random)
        thread = threading.Thread(target=other.train, args=pair[1:], daemon=True)
        thread.start()
        chief.train(pair[0])
        thread.join(SECONDS)
        batches.append(mean(*pair))
    ways.assert_same_state(chief.session.run(chief.variables), in_a_session(part, batches))


@PARTS
def test_stale_gradients_are_dropped_and_nothing_else(part):
    """With replicas_to_aggregate=1, each gradient that is not stale makes one update.

    Each update puts two tokens, one per worker, into a queue. A token contains the new global step.
    A worker takes a token after each step. If the global step is larger than this token at the
    worker's next step, the gradient of that step is stale.
    """
    cluster, random = LocalCluster(ps=1, worker=2), np.random.RandomState(part)
    workers = [Worker(cluster, number, part, replicas=1) for number in range(2)]
    step, tokens, known, batches, stale = 0, [], [0, 0], [], 0
    for number in (0, 0, 1, 0, 1, 1, 0, 0, 1, 0):
        batch = gradients(random)
        if known[number] == step:
            batches.append(batch)
            step += 1
            tokens += [step, step]
        else:
            batch = 100 * np.ones_like(batch[0]), np.array([0, 1]), np.full([2, 2], 100, "f")
            stale += 1
        workers[number].train(batch)
        known[number] = tokens.pop(0)
        wait_until(functools.partial(workers[0].is_at, step), SECONDS)
    assert len(batches) >= 3 and stale >= 3
    found = workers[0].session.run(workers[0].variables)
    ways.assert_same_state(found, in_a_session(part, batches))


def hooks_of(optimizer, loss, is_chief, bar, folder):
    hooks = [
        optimizer.make_session_run_hook(is_chief, num_tokens=0),
        legacy_opt.ProgressBarHook(loss, total_steps=6, file=bar, mininterval=0),
        v1.train.StopAtStepHook(last_step=6),
    ]
    if is_chief:
        hooks.append(legacy_opt.SlotSummaryHook(optimizer, folder, every_n_steps=2))
    return hooks


@pytest.mark.parametrize("use_resource", [True, False])
def test_hooks_around_two_workers(use_resource, tmp_path):
    """The chief's summaries and both progress bars show the global step that the workers share."""
    cluster, bars = LocalCluster(ps=1, worker=2), [io.StringIO(), io.StringIO()]
    created = threading.Event()

    def train(number):
        with tf.Graph().as_default():
            with cluster.placing(number):
                w = v1.get_variable("w", initializer=tf.ones([2]), use_resource=use_resource)
                step = v1.train.get_or_create_global_step()
                inner = legacy_opt.AdagradDecayOptimizerV2(0.1, step, 1.0, accumulator_decay_step=3)
                optimizer = v1.train.SyncReplicasOptimizer(inner, 2, 2)
                loss = (number + 1) * tf.reduce_sum(w)  # the mean of the gradients is 1.5
                train_op = optimizer.minimize(loss, step)
            hooks = hooks_of(optimizer, loss, number == 0, bars[number], str(tmp_path))
            if number:
                # If the chief had no session yet, the other worker would wait 30 s for it.
                assert created.wait(SECONDS)
            with v1.train.MonitoredTrainingSession(
                cluster.servers["worker", number].target,
                is_chief=number == 0,
                hooks=hooks,
                config=limited(device_filters=["/job:ps", f"/job:worker/task:{number}"]),
                log_step_count_steps=0,
                stop_grace_period_secs=1,
            ) as session:
                created.set()
                while not session.should_stop():
                    session.run(train_op)

    other = threading.Thread(target=train, args=(1,), daemon=True)
    other.start()
    train(0)
    other.join(SECONDS)
    assert not other.is_alive()
    for bar in bars:
        assert "6/6" in bar.getvalue().rstrip().split("\r")[-1]
    found = written(tmp_path)
    assert {step for _, step in found} == {1, 3, 5, 6}
    accumulator, expected = np.float32(1.0), {}
    for number in range(6):
        # Accumulators decay in the steps 2 and 5, in which (step + 1) // 3 has increased.
        if (number + 1) % 3 == 0:
            accumulator = np.maximum(accumulator * np.float32(0.9), np.float32(1.0))
        accumulator += np.float32(1.5**2)
        expected[number + 1] = accumulator
    for step in (1, 3, 5, 6):
        assert found["slots/w/accumulator/max", step] == pytest.approx(expected[step], rel=1e-6)

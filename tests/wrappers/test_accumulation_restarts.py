"""Tests checkpoints of GradientAccumulationOptimizer that are saved between two updates."""

import os

import numpy as np
import pytest
import tensorflow as tf

from legacy_opt import GradientAccumulationOptimizer
from tests.support import problems, running
from tests.support.fed_training import FedTraining
from tests.wrappers.accumulating import (
    INNER,
    ROWS,
    accumulated,
    assert_equal,
    large_batches,
    mean,
    only,
)

v1 = tf.compat.v1


@pytest.mark.parametrize("use_resource", [True, pytest.param(False, marks=pytest.mark.full)])
def test_a_restart_keeps_accumulated_gradients(use_resource, tmp_path):
    problem = problems.everything(only=("matrix", "table"), steps=8)
    stopping = (1, 5)
    training = FedTraining(accumulated(INNER["Adam"]), problem, use_resource)
    expected, paths = [], []
    for first, last in (0, 1), (1, 5), (5, 8):
        expected += training.train(first, last)
        paths.append(training.save(str(tmp_path / (f"after-{last}"))))
    restarted = FedTraining(accumulated(INNER["Adam"]), problem, use_resource)
    for saved_after, path in zip(stopping, paths):  # the second restore overwrites all state
        restarted.restore(path)
        for one, other in zip(restarted.train(saved_after, 8), expected[saved_after:]):
            assert_equal(one, other)


class SavesAtTheEnd(v1.train.SessionRunHook):
    """Saves a checkpoint at the end, even if this global step has a checkpoint already.

    TensorFlow's own hook does not save a second checkpoint of the same global step.
    """

    def __init__(self, saver, folder):
        self.saver, self.path = saver, os.path.join(folder, "model.ckpt")

    def end(self, session):
        step = v1.train.get_global_step()
        self.saver.save(session, self.path, step, write_meta_graph=False)


def test_sessions_that_end_in_the_middle_of_an_accumulation(tmp_path):
    """The first Session ends at global step 0, for which a checkpoint exists already."""
    problem = problems.everything(only=("matrix", "table"), steps=8)
    folder = str(tmp_path)
    training = FedTraining(accumulated(INNER["Adam"]), problem)
    expected = training.train(0, 8)[-1]
    with training.session.graph.as_default():
        for first, last in (0, 2), (2, 8):
            with v1.train.MonitoredTrainingSession(
                checkpoint_dir=folder,
                scaffold=v1.train.Scaffold(saver=training.saver),
                hooks=[SavesAtTheEnd(training.saver, folder)],
                save_summaries_steps=None,
                save_summaries_secs=None,
                log_step_count_steps=None,
            ) as sess:
                for gradients in problem.gradients[first:last]:
                    sess.run(training.train_op, running._feed(training.placeholders, gradients))
    reader = v1.train.NewCheckpointReader(v1.train.latest_checkpoint(folder))
    actual = {name: reader.get_tensor(name) for name in training.variables}
    assert_equal(actual, expected)
    assert actual["GradientAccumulation/count"] == 2


@pytest.mark.parametrize("way", ["eager", "function"])
def test_an_object_checkpoint_keeps_accumulated_gradients(way, tmp_path):
    problem = only(problems.everything(steps=8), ["scalar", "bias"])

    def objects():
        variables = {name: tf.Variable(value) for name, value in problem.values.items()}
        step = tf.Variable(np.int64(0))
        optimizer = accumulated(INNER["Adam"])(step)
        checkpoint = tf.train.Checkpoint(optimizer=optimizer, step=step, **variables)

        def train(tensors):
            pairs = running._as_gradients(problem, tensors, variables)
            optimizer.apply_gradients(pairs, global_step=step)

        if way == "function":
            signature = [running.signature(problem)]
            train = tf.function(train, input_signature=signature, autograph=False)
        return variables, checkpoint, train

    def run(train, first, last):
        for gradients in problem.gradients[first:last]:
            train(tf.nest.map_structure(tf.constant, running._plain(gradients)))

    expected, checkpoint, train = objects()
    run(train, 0, 5)
    path = checkpoint.save(str(tmp_path / "model"))
    run(train, 5, 8)
    actual, checkpoint, train = objects()
    for before in 0, 2:  # at the first restore no slots exist; the second restore overwrites slots
        run(train, 0, before)
        checkpoint.restore(path).assert_existing_objects_matched()
        run(train, 5, 8)
        for name, variable in expected.items():
            running.assert_equal(actual[name].numpy(), variable.numpy(), name)
        assert int(checkpoint.step.numpy()) == 2


def test_a_checkpoint_continues_with_fewer_steps(tmp_path):
    """The checkpoint has 3 accumulated gradients, and training continues with steps=2.

    The next batch must make an update with the mean of all 4 gradients.
    """
    problem = only(problems.make("dense", steps=5), ["vector"])
    sgd = INNER["SGD"]
    four = FedTraining(accumulated(sgd, 4), problem)
    four.train(0, 3)
    two = FedTraining(accumulated(sgd, 2), problem)
    two.restore(four.save(str(tmp_path / "model")))
    actual = two.train(3, 5)
    (expected,) = running.eager(large_batches(problem, 4)._replace(batches=1), sgd).steps[:1]
    assert_equal(actual[0], expected, only=["vector"])
    assert [int(values["GradientAccumulation/count"]) for values in actual] == [0, 1]


@pytest.mark.in_turn(name=["Adam", "LazyAdam"], use_resource=[True, False])
def test_a_checkpoint_continues_with_another_number_of_steps(name, use_resource, tmp_path):
    """The first update uses the accumulated gradients; only with steps=1 they are ignored."""
    problem = problems.everything(only=("matrix", "table"), steps=14)
    four = FedTraining(accumulated(INNER[name], 4), problem, use_resource)
    paths = {}
    for first, last in (0, 3), (3, 6):
        four.train(first, last)
        paths[last] = four.save(str(tmp_path / (f"after-{last}")))
    for steps in (1, 2, 3, 8):
        other = FedTraining(accumulated(INNER[name], steps), problem, use_resource)
        for saved_after, path in paths.items():
            other.restore(path)
            actual = other.train(saved_after, problem.steps)[-1]
            updates = in_updates(problem, saved_after, steps)
            expected = FedTraining(INNER[name], updates, use_resource)
            expected = expected.train(0, updates.steps)[-1]
            assert_equal(actual, expected, only=expected)


def in_updates(problem, changed_after, steps):
    """Returns the problem with one gradient for each update.

    Before batch `changed_after`, each gradient is the mean of 4 batches. From this batch on, each
    gradient is the mean of `steps` batches. The first of the later gradients also includes the
    batches that were accumulated before, so it may be the mean of more than `steps` batches. With
    steps=1, the batches that were accumulated before are dropped.
    """
    batches, updates = [], []
    for number, gradients in enumerate(problem.gradients):
        if number == changed_after and steps == 1:
            batches = []
        batches.append(gradients)
        if len(batches) >= (4 if number < changed_after else steps):
            updates.append({key: mean([each[key] for each in batches]) for key in gradients})
            batches = []
    return problem._replace(gradients=updates)


def test_partitioned_variables(tmp_path):
    """Accumulated gradients of partitioned variables are saved and restored."""
    path = str(tmp_path / "model")
    with tf.Graph().as_default(), v1.Session() as sess:
        ones, halves = v1.ones_initializer(), v1.fixed_size_partitioner(2)
        table = v1.get_variable("table", [6, 2], initializer=ones, partitioner=halves)
        dense = v1.get_variable("dense", [4, 1], initializer=ones, partitioner=halves)
        ids = v1.placeholder(tf.int64, [None])
        rows = v1.nn.embedding_lookup(table, ids, partition_strategy="div")
        loss = tf.reduce_sum(rows * rows) + tf.reduce_sum(tf.square(tf.convert_to_tensor(dense)))
        optimizer = GradientAccumulationOptimizer(v1.train.AdagradOptimizer(0.5), 2)
        train_op = optimizer.minimize(loss)
        saver, start = v1.train.Saver(), v1.global_variables_initializer()
        sess.run(start)
        sess.run(train_op, {ids: [0, 5]})
        saver.save(sess, path)
        sess.run(start)  # clears the accumulated gradients
        saver.restore(sess, path)
        sess.run(train_op, {ids: [5, 3]})
        actual = sess.run([tf.convert_to_tensor(each) for each in (table, dense)])
    # Each occurrence of an id has the gradient 2, and the mean is half of the sum of both batches.
    # So the mean gradient of a row is the number of its occurrences. `dense` has the mean 2.
    touches = np.array([[1], [0], [0], [1], [0], [2]])
    expected = 1 - 0.5 * touches / np.sqrt(0.1 + touches**2) * np.ones((6, 2))
    np.testing.assert_allclose(actual[0], expected, 1e-6)
    np.testing.assert_allclose(actual[1], 1 - 0.5 * 2 / np.sqrt(0.1 + 4) * np.ones((4, 1)), 1e-6)
    saved = {name for name, _ in v1.train.list_variables(path)}
    rows = {f"table/GradientAccumulation/gradient_{each}" for each in ROWS}
    assert rows | {"dense/GradientAccumulation/gradient_sum"} <= saved


def test_a_call_without_some_partitions_is_refused():
    with tf.Graph().as_default():
        halves = v1.fixed_size_partitioner(2)
        table = list(v1.get_variable("table", [6, 2], partitioner=halves))
        rows = tf.IndexedSlices(tf.ones([1, 2]), tf.constant([0]), tf.constant([3, 2]))
        optimizer = GradientAccumulationOptimizer(v1.train.AdagradOptimizer(0.5), 2)
        optimizer.apply_gradients([(rows, part) for part in table])
        optimizer.apply_gradients([(rows, table[0]), (None, table[1])])
        for some in table[:1], table[1:]:
            with pytest.raises(ValueError, match="variables that this call leaves out"):
                optimizer.apply_gradients([(rows, part) for part in some])

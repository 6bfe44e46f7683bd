"""Tests every optimizer class, with one case (set of arguments) for each class.

The tests cover learning rates of all types, several graphs, partitioned variables and object-based
checkpoints.
"""

import inspect

import numpy as np
import pytest
import tensorflow as tf

from tests.support import problems, running
from tests.support.cases import CASES
from tests.support.every_class import CLASSES, EVERY_CLASS, Eager, make
from tests.support.oracle_runs import assert_close, run_oracles

v1 = tf.compat.v1

RATES = {
    "tensor": tf.constant,
    "variable": lambda rate: v1.get_variable("rate", initializer=rate, trainable=False),
    "callable": lambda rate: lambda: rate,
    "callable that returns a tensor": lambda rate: lambda: tf.constant(rate),
}
KINDS = list(RATES)


@pytest.mark.in_turn(name=CLASSES, use_resource=[False, True], kinds=[KINDS[::2], KINDS[1::2]])
def test_a_learning_rate_of_any_kind_gives_the_bits_of_the_number(name, use_resource, kinds):
    problem = problems.everything(only=("matrix", "table"), steps=3)
    parameters = inspect.signature(CASES[name].optimizer.__init__).parameters
    key = "learning_rate" if "learning_rate" in parameters else "alpha"  # of COCOB
    rate = CASES[name].arguments.get(key, 0.25)
    with tf.Graph().as_default():
        placeholders, variables, train_ops = running._placeholders(problem), {}, []
        for kind in ["number"] + kinds:
            given = RATES.get(kind, lambda rate: rate)
            with v1.variable_scope(kind.replace(" ", "_")):
                variables[kind] = running._variables(problem, use_resource)
                step = running._global_step("int64", use_resource)
                pairs = running._as_gradients(problem, placeholders, variables[kind])
                optimizer = CASES[name].make(step, **{key: given(rate)})
                train_ops.append(optimizer.apply_gradients(pairs, global_step=step))
            del v1.get_collection_ref(v1.GraphKeys.GLOBAL_STEP)[:]
        feeds = [running._feed(placeholders, gradients) for gradients in problem.gradients]
        values = running.after(train_ops, variables, feeds=feeds)
    for kind in kinds:
        for variable, value in values["number"].items():
            np.testing.assert_array_equal(values[kind][variable], value, err_msg=kind)


@EVERY_CLASS
def test_one_optimizer_in_several_graphs_minimising_twice_in_each(name):
    problem = problems.everything(only=("matrix", "table"), steps=4)
    optimizer = make(name)
    for _ in range(2):
        with tf.Graph().as_default() as graph, v1.Session() as sess:
            variables = running._variables(problem, False)
            step = running._global_step("int64", False)
            placeholders = running._placeholders(problem)
            pairs = running._as_gradients(problem, placeholders, variables)
            first = optimizer.apply_gradients(pairs, global_step=step)
            count = len(v1.global_variables())
            second = optimizer.apply_gradients(pairs, global_step=step)
            assert len(v1.global_variables()) == count  # the second train op reuses the slots
            assert {variable.graph for variable in optimizer.variables()} <= {graph}
            sess.run(v1.global_variables_initializer())
            values = []
            for number, gradients in enumerate(problem.gradients):
                feed = running._feed(placeholders, gradients)
                sess.run(second if number % 2 else first, feed)
                values.append(sess.run(variables))
        expected, _ = run_oracles(name, problem)
        assert_close(running.Trace(values, {}), expected, {}, CASES[name].ulps, "float32")


@pytest.mark.in_turn(name=CLASSES, use_resource=[False, True])
def test_partitioned_variables_and_their_checkpoint(name, use_resource, tmp_path):
    """Checks that training continues with the same bits after a checkpoint is restored.

    Also checks that two slices train like the whole variable, except with optimizers that need the
    whole variable for an update (attribute `whole_tensor`), or the norm of the whole gradient.
    """
    problem = problems.everything(only=("table", "bias"), steps=6)
    with tf.Graph().as_default(), v1.Session() as sess:
        train = in_parts(name, problem, use_resource)
        saver = v1.train.Saver()
        sess.run(v1.global_variables_initializer())
        train(sess, 0, 3)
        path = saver.save(sess, str(tmp_path / "half"))
        expected = train(sess, 3, 6)
        saver.restore(sess, path)
        for key, value in train(sess, 3, 6).items():
            np.testing.assert_array_equal(value, expected[key], err_msg=key)
        path = saver.save(sess, str(tmp_path / "last"))
    if not getattr(make(name), "whole_tensor", False) and name not in (
        "ConditionalGradient",
        "NovoGrad",
    ):
        reader = v1.train.NewCheckpointReader(path)
        parts = {key: reader.get_tensor(key) for key in problem.values}
        values, _ = run_oracles(name, problem)
        ulps = CASES[name].ulps * problem.steps
        assert_close(running.Trace([parts], {}), values[-1:], {}, ulps, "float32")


def in_parts(name, problem, use_resource):
    """Builds a graph that trains variables, each partitioned into two slices.

    Returns:
      A function that runs the training steps from `first` to `last` - 1, and returns the values of
      all variables by name.
    """
    placeholders, losses = running._placeholders(problem), []
    for key, value in problem.values.items():
        table = running.in_parts(key, value, 2, use_resource=use_resource)
        values, ids = placeholders[key]
        rows = v1.nn.embedding_lookup(table, ids, partition_strategy="div")
        losses.append(tf.reduce_sum(rows * values))
    step = v1.train.get_or_create_global_step()
    train_op = CASES[name].make(step).minimize(tf.add_n(losses), global_step=step)
    everything = {variable.op.name: variable for variable in v1.global_variables()}

    def train(sess, first, last):
        for gradients in problem.gradients[first:last]:
            sess.run(train_op, running._feed(placeholders, gradients))
        return sess.run(everything)

    return train


@pytest.mark.in_turn(name=CLASSES, steps_before=[0, 1])
def test_object_checkpoints_in_eager_code(name, steps_before, tmp_path):
    problem = problems.everything(only=("matrix", "scalar", "table"), steps=4)
    unstopped = Eager(name, problem).train(0, 2)
    path = unstopped.checkpoint.save(str(tmp_path / "object"))
    expected = unstopped.train(2, 4).state()
    # With steps_before=0, the slots do not exist yet when the checkpoint is restored.
    restored = Eager(name, problem).train(0, steps_before)
    restored.checkpoint.restore(path)
    state = restored.train(2, 4).state()
    assert set(state) == set(expected)
    for key, value in expected.items():
        np.testing.assert_array_equal(state[key], value, err_msg=str(key))

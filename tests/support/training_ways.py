"""Makes a small model for every optimizer class, for tests that train like TF1 programs."""

import contextlib
import functools
import re
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from tests.support.cases import CASES, one_of_each_class

v1 = tf.compat.v1


STEPS = 11


CLASSES = one_of_each_class()


# Each value is a dict from class names to the argument `use_resource` of the class's variables.
# None means TensorFlow's default.
KINDS: Any = {
    "in turn": {name: number % 2 == 0 for number, name in enumerate(CLASSES)},
    "the other way round": {name: number % 2 == 1 for number, name in enumerate(CLASSES)},
    "by default": dict.fromkeys(CLASSES),
}


def model(use_resource, ids=None):
    """Returns a loss with a sparse gradient for `table` and a dense gradient for `weights`."""
    random = np.random.RandomState(0)
    table, weights = random.randn(9, 4).astype("f"), random.randn(4, 2).astype("f")
    table = v1.get_variable("table", initializer=table, use_resource=use_resource)
    weights = v1.get_variable("weights", initializer=weights, use_resource=use_resource)
    ids = tf.constant([1, 5, 5, 0, 8]) if ids is None else ids
    return tf.reduce_mean(tf.square(tf.matmul(tf.gather(table, ids), weights) - 1.0))


class Model(NamedTuple):
    """An optimizer of one class, with its loss, its step variable and the variables to train."""

    name: str
    optimizer: Any
    loss: Any
    step: Any
    variables: list


@contextlib.contextmanager
def named(name):
    """Adds the optimizer's name to the message of an error that is raised in the `with` block."""
    try:
        yield
    except Exception as error:
        raise AssertionError(f"{name}: {error}") from error


def models(kinds, ids=None):
    """Creates a `Model` for each class, in a variable scope with the class's name."""
    made = []
    for name, use_resource in kinds.items():
        with named(name), v1.variable_scope(scope(name)):
            loss = model(use_resource, ids)
            zeros = v1.zeros_initializer()
            step = v1.get_variable(
                "step", [], tf.int64, zeros, trainable=False, use_resource=use_resource
            )
            variables = v1.trainable_variables(scope(name) + "/")
            made.append(Model(name, CASES[name].make(step), loss, step, variables))
    return made


def minimize(made, wrap=lambda optimizer: optimizer):
    """Returns an operation that runs a step of each model, then increments the global step."""
    train_ops = []
    for each in made:
        with named(each.name):
            optimizer = wrap(each.optimizer)
            train_ops.append(optimizer.minimize(each.loss, each.step, each.variables))
    with tf.control_dependencies(train_ops):
        return v1.assign_add(v1.train.get_or_create_global_step(), 1).op


def global_variables():
    return {variable.op.name: variable for variable in v1.global_variables()}


def plain(kinds, steps=STEPS):
    """Trains in a plain Session; returns all variables by name, as the reference for tests."""
    with tf.Graph().as_default():
        train_op = minimize(models(kinds))
        with v1.Session() as sess:
            return run(sess, train_op, steps)


def run(sess, train_op, steps=STEPS):
    """Initializes and trains; returns all variables by name."""
    variables = global_variables()
    sess.run(v1.global_variables_initializer())
    for _ in range(steps):
        sess.run(train_op)
    return sess.run(variables)


@functools.lru_cache(maxsize=None)
def expected(kind):
    found = plain(KINDS[kind])
    assert all(np.all(np.isfinite(value)) for value in found.values())
    return found


def assert_same_state(actual, expected):
    for name, value in expected.items():
        np.testing.assert_array_equal(actual[name], value, err_msg=name)


def some(kinds, chosen):
    """Returns the items of `kinds` whose name is in `chosen`."""
    return {name: use_resource for name, use_resource in kinds.items() if name in chosen}


def scope(name):
    return re.sub(r"\W", "_", name)


def assert_holds(path, state):
    reader = v1.train.NewCheckpointReader(path)
    assert_same_state({name: reader.get_tensor(name) for name in state}, state)


class SideBySide(v1.train.Optimizer):
    """Applies each gradient with the optimizer of the `Model` that has the gradient's variable."""

    def __init__(self, made):
        super().__init__(False, "SideBySide")
        self._made = made

    def apply_gradients(self, grads_and_vars, global_step=None, name=None):
        grads_and_vars = list(grads_and_vars)
        train_ops = []
        for each in self._made:
            own = {variable.name for variable in each.variables}
            pairs = [pair for pair in grads_and_vars if pair[1].name in own]
            with named(each.name):
                train_ops.append(each.optimizer.apply_gradients(pairs, each.step))
        with tf.control_dependencies(train_ops):
            return v1.assign_add(global_step, 1).op

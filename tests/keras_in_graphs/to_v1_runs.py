"""Trains with Keras' own optimizers: in a tf.function, and through `to_v1` in a Session."""

import functools

import numpy as np
import pytest
import tensorflow as tf

from legacy_opt import versions
from legacy_opt.compat import to_v1
from legacy_opt.compat.in_keras.side_by_side import training_function
from tests.support import installed, running
from tests.support.keras import keras_models
from tests.support.keras.keras_apis import KERAS_3, OPTIMIZER_V2, of_each

v1 = tf.compat.v1


PROBLEM = keras_models.problem(steps=20)  # a matrix, and a table with duplicate ids


def assert_same_steps(actual, expected, what=""):
    assert len(actual) == len(expected)
    for number, (one, other) in enumerate(zip(actual, expected)):
        for name in other:
            same = one[name].dtype == other[name].dtype and np.array_equal(one[name], other[name])
            assert same, f"{what}: {name} after step {number}"


def pairs(problem, tensors, variables):
    """Returns pairs of gradient and variable.

    The dense shapes of sparse gradients are tensors, because Keras 3 requires tensors.
    """
    return [
        (_with_shape(grad), variable)
        for grad, variable in running._as_gradients(problem, tensors, variables)
    ]


def _with_shape(grad):
    if not isinstance(grad, tf.IndexedSlices):
        return grad
    shape = tf.constant(grad.dense_shape.as_list(), tf.int64)
    return tf.IndexedSlices(grad.values, grad.indices, shape)


def in_function(problem, optimizer):
    """Trains with a Keras optimizer in a tf.function; returns the variables after each step."""
    variables = {
        name: tf.compat.v2.Variable(value, name=name) for name, value in problem.values.items()
    }

    def train(tensors):
        grads = [grad for grad, _ in pairs(problem, tensors, variables)]
        if clips_in_minimize_only(optimizer):
            grads = [tf.clip_by_norm(grad, optimizer.clipnorm) for grad in grads]
        optimizer.apply_gradients(list(zip(grads, variables.values())))

    train = training_function(train, [running.signature(problem)])
    steps = []
    for gradients in problem.gradients:
        train(tf.nest.map_structure(tf.constant, running._plain(gradients)))
        steps.append({name: variable.numpy() for name, variable in variables.items()})
    return steps


@functools.lru_cache(maxsize=None)
def functions_know_shapes():
    """Returns whether Grappler knows the shapes of a tf.function's arguments; in 2.1 it does not.

    If it does, it computes ``(x * x) * c`` as ``x * (x * c)`` if c is a number.
    """
    x = np.random.RandomState(0).randn(100).astype(np.float32)
    factor = tf.Variable(np.float32(0.3))
    square = tf.function(lambda x: (x * x) * tf.convert_to_tensor(factor))
    return np.array_equal(square(tf.constant(x)), x * (x * np.float32(0.3)))


def clips_in_minimize_only(optimizer):
    """Returns whether an optimizer is TensorFlow's SGD with clipnorm, in a version up to 2.3.

    This optimizer clips gradients in `minimize`, but not in `apply_gradients`.
    """
    if hasattr(optimizer, "_transform_gradients") or hasattr(optimizer, "add_variable"):
        return False
    return type(optimizer).__name__ == "SGD" and bool(getattr(optimizer, "clipnorm", None))


def in_session(problem, make, fed=False, config=None):
    """Trains with `to_v1` in a Session; returns the variables after each step.

    Args:
      problem: the `Problem`.
      make: a function that returns the argument of `to_v1`, or a v1 optimizer or an `InItsGraph`,
        which is used without `to_v1`.
      fed: whether the gradients are passed in feed_dict. Otherwise they come from a Dataset.
      config: a ConfigProto.
    """
    with tf.Graph().as_default():
        variables = running._variables(problem, True)
        step = running._global_step("int64")
        if fed:
            tensors, feeds = running._placeholders(problem), problem.gradients
        else:
            tensors, feeds = _from_dataset(problem), [None] * problem.steps
        optimizer = make()
        if not hasattr(optimizer, "compute_gradients"):
            optimizer = to_v1(optimizer)
        train_op = optimizer.apply_gradients(pairs(problem, tensors, variables), global_step=step)
        with running.started(config=config) as session:
            session.run(v1.get_collection(v1.GraphKeys.TABLE_INITIALIZERS))
            steps = []
            for feed in feeds:
                session.run(train_op, running._feed(tensors, feed) if feed else None)
                steps.append(session.run(variables))
            assert session.run(step) == problem.steps
        return steps


def _from_dataset(problem):
    specs = running.signature(problem)
    dataset = tf.data.Dataset.from_generator(
        lambda: (running._plain(gradients) for gradients in problem.gradients),
        tf.nest.map_structure(lambda spec: spec.dtype, specs),
        tf.nest.map_structure(lambda spec: spec.shape, specs),
    )
    iterator = v1.data.make_initializable_iterator(dataset)
    v1.add_to_collection(v1.GraphKeys.TABLE_INITIALIZERS, iterator.initializer)
    return iterator.get_next()


class InItsGraph:
    """Uses a Keras 2 optimizer in a TF1 graph without `to_v1`, as the reference of a test."""

    def __init__(self, optimizer):
        self.optimizer = optimizer

    def compute_gradients(self):
        raise NotImplementedError

    def apply_gradients(self, pairs, global_step):
        return tf.group(self.optimizer.apply_gradients(pairs), global_step.assign_add(1))


def _cases(api):
    """Returns a dict from names to functions that make Keras' own optimizers."""
    home, schedules = api.optimizers, api.keras.optimizers.schedules
    cases = {
        "Adadelta": lambda: home.Adadelta(0.5, rho=0.9),
        "Adagrad": lambda: home.Adagrad(0.1),
        "Adam": lambda: home.Adam(0.1),
        "Adam amsgrad": lambda: home.Adam(0.1, amsgrad=True),
        "Adam schedule": lambda: home.Adam(schedules.ExponentialDecay(0.1, 3, 0.5)),
        "Adamax": lambda: home.Adamax(0.1),
        "Ftrl": lambda: home.Ftrl(0.1, l1_regularization_strength=0.01),
        "Nadam": lambda: home.Nadam(0.1),
        "RMSprop": lambda: home.RMSprop(0.01),
        "RMSprop centered": lambda: home.RMSprop(0.01, momentum=0.5, centered=True),
        "SGD": lambda: home.SGD(0.1),
        "SGD clipnorm": lambda: home.SGD(0.1, clipnorm=0.5),
        "SGD momentum": lambda: home.SGD(0.1, 0.9),
        "SGD nesterov": lambda: home.SGD(0.1, 0.9, nesterov=True),
    }
    if hasattr(home.SGD(0.1), "global_clipnorm"):  # Keras 3, and Keras 2 from TensorFlow 2.4 on
        cases["SGD global_clipnorm"] = lambda: home.SGD(0.1, 0.9, global_clipnorm=0.5)
    if api is KERAS_3:
        cases["Adam use_ema"] = lambda: home.Adam(0.1, use_ema=True)
        cases["AdamW"] = lambda: home.AdamW(0.1, weight_decay=0.02)
        cases["Lion"] = lambda: home.Lion(0.01)
        cases["LossScaleOptimizer"] = lambda: home.LossScaleOptimizer(
            home.Adam(0.1), initial_scale=4.0, dynamic_growth_steps=5
        )
    return cases


CASES = {"optimizer_v2": _cases(OPTIMIZER_V2)} if installed.has_keras_2() else {}
if versions.keras_facts()["generation"] == 3:
    CASES["keras3"] = _cases(KERAS_3)


def each_case(*names):
    """Parametrizes a test with the named cases, or with all cases if no name is given.

    For each API in `CASES`, the test runs only with the cases of this API.
    """
    cells = {
        api: [_cell(name) for name in names or cases if name in cases]
        for api, cases in CASES.items()
    }
    return of_each("name", **cells)


def _cell(name):
    """Returns a case as a pytest.param.

    "SGD clipnorm" runs on every lane (TensorFlow version), because `clips_in_minimize_only` depends
    on the version.
    """
    marks = pytest.mark.every_lane if name == "SGD clipnorm" else ()
    return pytest.param(name, marks=marks)


def passed(api, make):
    """Returns the argument for `to_v1`: with Keras 3 the function `make`, else an optimizer."""
    return make if api is KERAS_3 else make()


def small_graph(optimizer, **arguments):
    """Builds a graph; returns its variable and train_op."""
    variable = v1.get_variable("w", initializer=np.float32([1, 2, 3]), use_resource=True)
    return variable, optimizer.minimize(tf.reduce_sum(variable**2), **arguments)


def run(train_op, steps=1):
    return running.after(train_op, steps=steps)

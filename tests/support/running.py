"""Trains v1 optimizers on a `Problem`: in a Session, eagerly or in functions."""

import contextlib
from typing import NamedTuple

import numpy as np
import pytest
import tensorflow as tf

from legacy_opt.compat.in_keras.side_by_side import training_function
from tests.support.problems import Rows

v1 = tf.compat.v1
# Turns graph rewriting off, so that the Session computes each operation as written, like eager
# execution.
AS_WRITTEN = v1.ConfigProto()
AS_WRITTEN.graph_options.rewrite_options.disable_meta_optimizer = True
AS_WRITTEN.graph_options.optimizer_options.opt_level = v1.OptimizerOptions.L0
REF_AND_RESOURCE = pytest.mark.parametrize("use_resource", [False, True], ids=["ref", "resource"])


def on_replicas(strategy):
    """Returns the method of a strategy that runs a function on all replicas."""
    return getattr(strategy, "run", None) or strategy.experimental_run_v2


def config_of(way):
    """Returns the ConfigProto of the Session with which training in the way `way` is compared."""
    return AS_WRITTEN if way == "eager" else None


def inside(construct, train):
    """Returns a tensor that runs one training step inside tf.cond or tf.while_loop.

    Args:
      construct: "cond" or "while_loop".
      train: a function that builds the training step, and returns an int32 scalar that depends on
        the step. For "while_loop", the function gets the loop variable.
    """
    if construct == "cond":
        return v1.cond(v1.placeholder_with_default(True, []), train, lambda: tf.constant(0))
    return v1.while_loop(lambda i: i < 1, train, [tf.constant(0)])


class Trace(NamedTuple):
    """The values of variables and slots in a training.

    Attributes:
      steps: for each step, a dict from variable name to its value after that step.
      slots: a dict from (variable name, slot name) to the slot's value at the end.
    """

    steps: list
    slots: dict


def _variables(problem, use_resource):
    return {
        name: v1.get_variable(
            name,
            value.shape,
            tf.as_dtype(value.dtype),
            v1.constant_initializer(value),
            use_resource=use_resource,
        )
        for name, value in problem.values.items()
    }


def _as_gradients(problem, tensors, variables):
    """Returns pairs of gradient and variable; sparse gradients in `tensors` are (values, ids)."""
    pairs = []
    for name, variable in variables.items():
        gradient = tensors[name]
        if name in problem.sparse:
            gradient = tf.IndexedSlices(gradient[0], gradient[1], variable.shape)
        pairs.append((gradient, variable))
    return pairs


def _placeholders(problem):
    placeholders = {}
    for name, value in problem.values.items():
        if name in problem.sparse:
            placeholders[name] = (
                v1.placeholder(value.dtype, (None,) + value.shape[1:]),
                v1.placeholder(tf.int64, [None]),
            )
        else:
            placeholders[name] = v1.placeholder(value.dtype, value.shape)
    return placeholders


def _feed(placeholders, step):
    feed = {}
    for name, gradient in step.items():
        if isinstance(gradient, Rows):
            feed[placeholders[name][0]], feed[placeholders[name][1]] = gradient
        else:
            feed[placeholders[name]] = gradient
    return feed


def _plain(gradients):
    """Returns the gradients of one training step in the structure of `signature`."""
    return {name: plain(gradient) for name, gradient in gradients.items()}


def plain(gradient):
    """Returns a gradient as a plain tuple if it is `Rows`, otherwise unchanged."""
    return tuple(gradient) if isinstance(gradient, Rows) else gradient


def _global_step(dtype, use_resource=True):
    return v1.get_variable(
        "global_step",
        [],
        dtype,
        v1.zeros_initializer(dtype),
        trainable=False,
        use_resource=use_resource,
        collections=[v1.GraphKeys.GLOBAL_VARIABLES, v1.GraphKeys.GLOBAL_STEP],
    )


def slots_of(optimizer, variables):
    """Returns the slots by (variable name, slot name); variables may have different slots."""
    slots = {
        (name, slot): optimizer.get_slot(variable, slot)
        for slot in optimizer.get_slot_names()
        for name, variable in variables.items()
    }
    return {key: slot for key, slot in slots.items() if slot is not None}


def session(problem, make_optimizer, use_resource=False, between=None, config=None):
    """Trains in a graph-mode Session; returns the `Trace`.

    Args:
      problem: the `Problem`.
      make_optimizer: a function of the global step variable that returns the optimizer.
      use_resource: whether to use resource variables instead of ref variables.
      between: a function that is called before each step with the session, the optimizer, the
        variables and the step number, or None.
      config: a ConfigProto.
    """
    with tf.Graph().as_default():
        variables = _variables(problem, use_resource)
        step = _global_step(problem.global_step, use_resource)
        placeholders = _placeholders(problem)
        before = v1.global_variables()
        optimizer = make_optimizer(step)
        hyperparameters = v1.global_variables()[len(before) :]
        train_op = optimizer.apply_gradients(
            _as_gradients(problem, placeholders, variables), global_step=step
        )
        with v1.Session(config=config) as sess:
            if hyperparameters:  # non-slot variables are initialized with their values
                sess.run(v1.variables_initializer(hyperparameters))
            sess.run(v1.global_variables_initializer())
            values = []
            for number, gradients in enumerate(problem.gradients):
                if between is not None:
                    between(sess, optimizer, variables, number)
                train_op.run(feed_dict=_feed(placeholders, gradients), session=sess)
                values.append(sess.run(variables))
            slots = slots_of(optimizer, variables)
            keys = list(slots)
            return Trace(values, dict(zip(keys, sess.run([slots[key] for key in keys]))))


@contextlib.contextmanager
def started(**options):
    """Yields a Session in which the variables of the default graph have their initial values."""
    with v1.Session(**options) as session:
        session.run(v1.global_variables_initializer())
        yield session


def in_parts(name, value, parts, axis=0, **options):
    """Returns the parts of a partitioned variable, which starts at `value`; 0 parts are a whole."""

    def initializer(shape, dtype=None, partition_info=None):
        offset = partition_info.var_offset if parts else [0] * value.ndim
        return tf.constant(value[tuple(slice(a, a + n) for a, n in zip(offset, shape))], dtype)

    partitioner = v1.fixed_size_partitioner(parts, axis) if parts else None
    made = v1.get_variable(
        name, value.shape, initializer=initializer, partitioner=partitioner, **options
    )
    return list(made) if parts else [made]


def after(train_op, fetches=None, steps=1, feed=None, feeds=None):
    """Returns values after some steps in a Session; by default all variables, by name.

    Each step gets the feed_dict `feed`, or the next one in `feeds`.
    """
    if fetches is None:
        fetches = {each.op.name: each for each in v1.global_variables()}
    with started() as session:
        for each in [feed] * steps if feeds is None else feeds:
            session.run(train_op, each)
        return session.run(fetches)


def session_ref(problem, make_optimizer):
    return session(problem, make_optimizer, use_resource=False)


def session_without_rewriting(problem, make_optimizer):
    return session(problem, make_optimizer, config=AS_WRITTEN)


def session_resource(problem, make_optimizer):
    return session(problem, make_optimizer, use_resource=True)


def _eagerly(problem, make_optimizer, wrap):
    """Trains eager variables; `wrap(train, problem)` returns the function to call in each step."""
    variables = {
        name: tf.Variable(value, name=name, dtype=value.dtype)
        for name, value in problem.values.items()
    }
    step = tf.Variable(tf.constant(0, problem.global_step), name="global_step", trainable=False)
    optimizer = make_optimizer(step)

    def train(tensors):
        optimizer.apply_gradients(_as_gradients(problem, tensors, variables), global_step=step)

    train = wrap(train, problem)
    values = []
    for gradients in problem.gradients:
        train(tf.nest.map_structure(tf.constant, _plain(gradients)))
        values.append({name: variable.numpy() for name, variable in variables.items()})
    slots = {key: slot.numpy() for key, slot in slots_of(optimizer, variables).items()}
    assert int(step.numpy()) == problem.steps // problem.batches
    return Trace(values, slots)


def eager(problem, make_optimizer):
    return _eagerly(problem, make_optimizer, lambda train, _: train)


def function(problem, make_optimizer, **options):
    def wrap(train, problem):
        return training_function(train, [signature(problem)], **options)

    return _eagerly(problem, make_optimizer, wrap)


def signature(problem):
    """Returns the TensorSpecs of a step's gradients, with any number of rows if they are sparse."""
    specs = {}
    for name, value in problem.values.items():
        dtype = tf.as_dtype(value.dtype)
        if name in problem.sparse:
            specs[name] = (
                tf.TensorSpec((None,) + value.shape[1:], dtype),
                tf.TensorSpec([None], tf.int64),
            )
        else:
            specs[name] = tf.TensorSpec(value.shape, dtype)
    return specs


def wrap_function(problem, make_optimizer):
    """Trains with `v1.wrap_function`; the wrapped function creates the variables."""
    structure = signature(problem)
    slot_keys = []

    def train(*flat):
        tensors = tf.nest.pack_sequence_as(structure, flat)
        variables = _variables(problem, True)
        step = _global_step(problem.global_step)
        optimizer = make_optimizer(step)
        train_op = optimizer.apply_gradients(
            _as_gradients(problem, tensors, variables), global_step=step
        )
        slots = slots_of(optimizer, variables)
        slot_keys[:] = slots
        with tf.control_dependencies([train_op]):
            return (
                {name: variable.read_value() for name, variable in variables.items()},
                [slot.read_value() for slot in slots.values()],
            )

    wrapped = v1.wrap_function(train, tf.nest.flatten(structure))
    values = []
    for gradients in problem.gradients:
        now, slots = wrapped(
            *tf.nest.flatten(tf.nest.map_structure(tf.constant, _plain(gradients)))
        )
        values.append({name: value.numpy() for name, value in now.items()})
    return Trace(values, {key: value.numpy() for key, value in zip(slot_keys, slots)})


WAYS = {
    "session-ref": session_ref,
    "session-resource": session_resource,
    "eager": eager,
    "function": function,
    "wrap_function": wrap_function,
}


def assert_same(actual, expected, what=""):
    """Asserts that two traces are equal bit for bit; the error names the first difference."""
    assert len(actual.steps) == len(expected.steps)
    for number, (one, other) in enumerate(zip(actual.steps, expected.steps)):
        for name in expected.steps[0]:
            assert_equal(one[name], other[name], f"{what} {name} after step {number}")
    assert set(actual.slots) == set(expected.slots)
    for key in expected.slots:
        assert_equal(actual.slots[key], expected.slots[key], f"{what} slot {key}")


def assert_equal(actual, expected, what):
    assert actual.dtype == expected.dtype and actual.shape == expected.shape, what
    if not np.array_equal(actual, expected):
        gap = np.max(np.abs(np.asarray(actual, np.float64) - np.asarray(expected, np.float64)))
        raise AssertionError(f"{what}: largest difference {gap:g}")


def assert_steps_close(actual, expected, rtol=1e-5, atol=1e-6, what=""):
    """Asserts that the values after each step are equal within a tolerance."""
    assert len(actual) == len(expected)
    for one, other in zip(actual, expected):
        for name in other:
            np.testing.assert_allclose(one[name], other[name], rtol, atol, err_msg=f"{name} {what}")


def assert_close(actual, expected, rtol, atol):
    """Asserts that two traces are equal within a tolerance."""
    assert_steps_close(actual.steps, expected.steps, rtol, atol)
    assert set(actual.slots) == set(expected.slots)
    for key in expected.slots:
        one, other = actual.slots[key], expected.slots[key]
        np.testing.assert_allclose(one, other, rtol, atol, err_msg=str(key))

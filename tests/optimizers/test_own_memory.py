"""Tests gradients that share the buffer of a variable or slot, such as `tf.identity(ref_variable)`.

An update must use the values that the gradient had before the training step. So each update is
compared with an update that is fed copies of these values.
"""

import numpy as np
import pytest
import tensorflow as tf

import legacy_opt
from tests.support.own_memory import MAKERS
from tests.support.running import REF_AND_RESOURCE

v1 = tf.compat.v1
SHAPE = [128, 32]  # so large that a wrong update could write elements before it has read them
STEPS = 2


def crossed(one, two):
    """Returns `two` and `one`, passed through operations that do not copy values."""
    with tf.control_dependencies([tf.reshape(two, [-1])]):
        return tf.reshape(tf.stop_gradient(tf.reshape(two, [-1])), SHAPE), tf.slice(
            one, [0, 0], SHAPE
        )


def in_a_condition(one, two):
    doubled = v1.placeholder_with_default(False, [])
    return tf.cond(doubled, lambda: one * 2, lambda: tf.identity(one)), tf.identity(two)


# Functions from two variables to two gradients that may share the buffers of the variables.
ALIASES = {
    "own": lambda one, two: (tf.identity(one), two),
    "crossed": crossed,
    "in a condition": in_a_condition,
    "rows": lambda one, two: (tf.identity(two), tf.identity(one)),
}


def slots_as_gradients(optimizer, one, two):
    """Returns a slot of `two` and a slot of `one`, to use as the gradients of `one` and `two`.

    If a variable has no slot of its shape and dtype, the variable is used instead of a slot.
    """
    found = []
    for variable in (two, one):
        slots = [optimizer.get_slot(variable, name) for name in optimizer.get_slot_names()]
        fit = [slot for slot in slots if getattr(slot, "shape", None) == variable.shape]
        fit = [slot for slot in fit if slot.dtype.base_dtype == tf.float32]
        found.append(tf.identity((fit or [variable])[-1]))
    return found


class Graph:
    """Builds an optimizer, two variables, and a train op for each kind of gradient."""

    def __init__(self, name, use_resource):
        self.graph = tf.Graph()
        with self.graph.as_default(), v1.variable_scope("", use_resource=use_resource):
            values = np.random.RandomState(1).randn(2, *SHAPE).astype(np.float32)
            self.one, self.two = (
                v1.get_variable(each, initializer=value)
                for each, value in zip(["one", "two"], values)
            )
            step = v1.train.get_or_create_global_step()
            optimizer = MAKERS[name](step)
            self.fed = [v1.placeholder(tf.float32, SHAPE) for _ in range(2)]

            def apply(gradients, key=None):
                if key == "rows":
                    ids = np.arange(SHAPE[0])[::-1].copy()
                    gradients = [tf.IndexedSlices(each, ids, SHAPE) for each in gradients]
                pairs = list(zip(gradients, [self.one, self.two]))
                return optimizer.apply_gradients(pairs, global_step=step)

            self.train, self.train_rows = apply(self.fed), apply(self.fed, "rows")
            self.values, self.ops = {}, {}
            for key, alias in ALIASES.items():
                self.values[key] = gradients = alias(self.one, self.two)
                self.ops[key] = apply(gradients, key)
            self.values["slots"] = slots_as_gradients(optimizer, self.one, self.two)
            self.ops["slots"] = apply(self.values["slots"])
            self.initializer = v1.global_variables_initializer()
            self.variables = {each.op.name: each for each in v1.global_variables()}
            self.initial = [v1.placeholder(each.dtype.base_dtype) for each in v1.global_variables()]
            pairs = zip(v1.global_variables(), self.initial)
            self.reset = [v1.assign(variable, value) for variable, value in pairs]

    def start(self, session):
        """Initializes all variables; each call of `run` starts from the initial values."""
        session.run(self.initializer)
        values = self.copies(session, self.variables.values())
        self.values_at_start = dict(zip(self.initial, values))

    @staticmethod
    def copies(session, tensors):
        """Returns copies of values, because a Session's arrays may share memory with variables."""
        return [value.copy() for value in session.run(list(tensors))]

    def run(self, session, key, feed):
        """Updates once with random gradients, and then `STEPS` times with the gradients of `key`.

        If `feed` is true, copies of the gradients of `key` are fed.

        Returns:
          The final values of all variables.
        """
        random = np.random.RandomState(0)
        session.run(self.reset, self.values_at_start)
        session.run(self.train, dict(zip(self.fed, random.randn(2, *SHAPE))))
        for _ in range(STEPS):
            if feed:
                values = self.copies(session, self.values[key])
                train = self.train_rows if key == "rows" else self.train
                session.run(train, dict(zip(self.fed, values)))
            else:
                session.run(self.ops[key])
        return dict(zip(self.variables, self.copies(session, self.variables.values())))


@pytest.mark.in_turn(name=MAKERS, use_resource=[False, True])
def test_gradients_have_their_values_from_before_the_step(name, use_resource):
    graph = Graph(name, use_resource)
    with v1.Session(graph=graph.graph) as session:
        graph.start(session)
        for key in graph.ops:
            expected, found = (graph.run(session, key, feed) for feed in (True, False))
            for variable, value in expected.items():
                np.testing.assert_array_equal(found[variable], value, f"{key}: {variable}")


@REF_AND_RESOURCE
def test_a_hyperparameter_that_the_step_trains_has_its_value_from_before(use_resource):
    with tf.Graph().as_default(), v1.variable_scope("", use_resource=use_resource):
        rate = v1.get_variable("rate", initializer=0.5)
        others = [v1.get_variable(f"w{n}", initializer=tf.ones(SHAPE)) for n in range(20)]
        decaying = legacy_opt.extend_with_decoupled_weight_decay(legacy_opt.RegAdagradOptimizer)
        optimizer = decaying(rate, 0.25, initial_accumulator_value=3.0)
        pairs = [(tf.constant(1.0), rate)] + [(tf.ones(SHAPE), each) for each in others]
        train_op = optimizer.apply_gradients(pairs)
        with v1.Session() as session:
            session.run(v1.global_variables_initializer())
            session.run(train_op)
            # The weight decay is `rate`, that is 0.5. So the decay subtracts 0.5 * 0.5 from `rate`,
            # and 0.5 * 1 from each other variable. RegAdagrad's update subtracts 0.25 * 1 /
            # sqrt(3 + 1) = 0.125 from each variable.
            np.testing.assert_allclose(session.run(rate), 0.5 - 0.25 - 0.125)
            for value in session.run(others):
                np.testing.assert_allclose(value, np.full(SHAPE, 1 - 0.5 - 0.125), rtol=1e-6)

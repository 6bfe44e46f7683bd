"""Trains a case's variable in a Session, eagerly or in a tf.function; returns all states.

A state is a dict of arrays. The keys are "value" (the variable), "global_step" and the names of the
slots.
"""

import numpy as np
import tensorflow as tf

from tests.support import running
from tests.support.problems import Rows

v1 = tf.compat.v1
# The operations are so small that more threads would take longer.
ONE_THREAD = v1.ConfigProto(intra_op_parallelism_threads=1, inter_op_parallelism_threads=1)


def state_of(optimizer, variable, step):
    """Returns a dict like a state, but with variables instead of arrays."""
    slots = running.slots_of(optimizer, {"": variable})
    return dict({name: slot for (_, name), slot in slots.items()}, value=variable, global_step=step)


def as_gradient(gradient, shape):
    if isinstance(gradient, tuple):
        return tf.IndexedSlices(*gradient, dense_shape=shape)
    return gradient


class InSession:
    """Trains in a graph-mode Session."""

    def __init__(self, case, use_resource):
        self.case = case
        with tf.Graph().as_default() as graph:
            start = v1.constant_initializer(case.start())
            dtype = tf.as_dtype(case.dtype)
            variable = v1.get_variable(
                case.variable, case.shape, dtype, start, use_resource=use_resource
            )
            step = running._global_step(tf.as_dtype(case.step_dtype), use_resource)
            self.gradient = self.placeholders()
            optimizer = case.make(step)
            pair = as_gradient(self.gradient, case.shape), variable
            train_op = optimizer.apply_gradients([pair], global_step=step)
            variables = state_of(optimizer, variable, step)
            self.state = {key: each.read_value() for key, each in variables.items()}
            with tf.control_dependencies([train_op]):
                self.next_state = {key: each.read_value() for key, each in variables.items()}
            self.init = v1.global_variables_initializer()
        self.session = v1.Session(graph=graph, config=ONE_THREAD)

    def placeholders(self):
        case = self.case
        if not case.sparse:
            return v1.placeholder(case.dtype, case.shape)
        rows = v1.placeholder(case.dtype, (None,) + case.shape[1:])
        return rows, v1.placeholder(case.id_dtype, [None])

    def begin(self):
        self.session.run(self.init)

    def train(self, gradient):
        """Does one training step and returns the state after the step."""
        feed = {self.gradient: gradient}
        if isinstance(gradient, Rows):
            feed = dict(zip(self.gradient, gradient))
        return self.session.run(self.next_state, feed)

    def look(self):
        """Returns the present state."""
        return self.session.run(self.state)

    def close(self):
        self.session.close()


class InEager:
    """Trains eagerly. The optimizer's first update creates its slots."""

    def __init__(self, case):
        self.case = case

    def begin(self):
        case = self.case
        self.variable = tf.Variable(case.start(), name=case.variable, dtype=case.dtype)
        self.step = tf.Variable(tf.constant(0, case.step_dtype), trainable=False)
        self.optimizer = case.make(self.step)

    def apply(self, gradient):
        pair = as_gradient(gradient, self.case.shape), self.variable
        self.optimizer.apply_gradients([pair], global_step=self.step)

    def train(self, gradient):
        self.apply(tf.nest.map_structure(tf.constant, running.plain(gradient)))
        return self.look()

    def look(self):
        variables = state_of(self.optimizer, self.variable, self.step)
        return {key: np.array(each.numpy()) for key, each in variables.items()}

    def close(self):
        pass


class InFunction(InEager):
    """Trains in a tf.function. The number of rows in sparse gradients is unknown."""

    def begin(self):
        super().begin()
        case = self.case
        spec = tf.TensorSpec(case.shape, case.dtype)
        if case.sparse:
            rows = tf.TensorSpec((None,) + case.shape[1:], case.dtype)
            spec = rows, tf.TensorSpec([None], case.id_dtype)
        # AutoGraph takes seconds, so it is off here. tests/support/running.py uses AutoGraph.
        self.apply = tf.function(super().apply, input_signature=[spec], autograph=False)


WAYS = {
    "eager": InEager,
    "function": InFunction,
    "session-ref": lambda case: InSession(case, use_resource=False),
    "session-resource": lambda case: InSession(case, use_resource=True),
}

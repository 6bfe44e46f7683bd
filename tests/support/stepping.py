"""A graph with one variable and known gradients, for tests with results computed by hand."""

import numpy as np
import tensorflow as tf

from tests.support import running

v1 = tf.compat.v1


def variable(name, value, use_resource=True, dtype=tf.float32, **options):
    """Returns a variable with the initial value `value`."""
    value = np.array(value, dtype.as_numpy_dtype)
    start = v1.constant_initializer(value)
    return v1.get_variable(name, value.shape, dtype, start, use_resource=use_resource, **options)


def dot(variable, *gradient):
    """Returns a loss; the elements of its gradient are the given numbers."""
    return tf.reduce_sum(variable * tf.constant(np.array(gradient), variable.dtype.base_dtype))


class Stepping:
    """A graph with the variable w = [0, 0], a global step and a loss.

    The gradient of `loss` is [3, 4].
    """

    def __init__(self, use_resource=True):
        self.graph = tf.Graph()
        with self.graph.as_default():
            self.w = variable("w", [0.0, 0.0], use_resource)
            with v1.variable_scope("", use_resource=use_resource):
                self.step = v1.train.get_or_create_global_step()
            self.loss = 2.0 + dot(self.w, 3.0, 4.0)

    def distance(self):
        """Returns a loss whose gradient is w - [3, 4]."""
        return 0.5 * tf.reduce_sum(tf.square(self.w - [3.0, 4.0]))

    def run(self, train_op, steps=1):
        """Runs `train_op`; returns a list of its results, and the variables' final values."""
        with running.started(graph=self.graph, config=running.AS_WRITTEN) as session:
            losses = [session.run(train_op) for _ in range(steps)]
            variables = {each.op.name: each for each in v1.global_variables()}
            return losses, session.run(variables)

    def written(self, train_op):
        """Runs one training step; returns its summaries, parsed by `by_tag`."""
        losses, _ = self.run([train_op, v1.summary.merge_all()])
        return by_tag(losses[0][1])


def by_tag(text):
    """Returns a dict from the tags in serialized summaries to scalars or histograms' counts."""
    return {
        each.tag: each.histo.num if each.HasField("histo") else each.simple_value
        for each in v1.Summary.FromString(text).value
    }


def sgd(rate=1.0):
    """Returns plain gradient descent."""
    return v1.train.GradientDescentOptimizer(rate)


def trained(optimizer, value, gradients, name="w", dtype="float32"):
    """Trains one variable with the given gradients.

    Returns:
      The variable's value after each step, and its slots at the end by name.
    """
    with tf.Graph().as_default():
        w = v1.get_variable(name, initializer=tf.constant(value, dtype))
        gradient = v1.placeholder(dtype, w.shape)
        step = v1.train.get_or_create_global_step()
        train_op = optimizer.apply_gradients([(gradient, w)], global_step=step)
        slots = {each: optimizer.get_slot(w, each) for each in optimizer.get_slot_names()}
        with running.started() as session:
            seen = []
            for each in gradients:
                session.run(train_op, {gradient: each})
                seen.append(session.run(w).astype(float))
            assert session.run(step) == len(gradients)
            return seen, session.run(slots)

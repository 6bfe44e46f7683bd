"""A simple optimizer, and a function that trains in a Session, for tests of native kernels."""

import numpy as np
import tensorflow as tf

import legacy_opt
from tests.support import running

v1 = tf.compat.v1
START = np.arange(20, dtype=np.float32).reshape(5, 4)


class Sgd(legacy_opt.RuleOptimizer):
    """Updates w -= learning_rate * g, and sums the gradients in a slot."""

    slots = {"sum": legacy_opt.Slot()}

    def __init__(self, learning_rate=0.5, **options):
        super().__init__(False, "Sgd", learning_rate=learning_rate, **options)

    def rule(self, grad, value, slots, hyper):
        return hyper.learning_rate * grad, {"sum": slots.sum + grad}


def trained(optimizer, gradient=None, use_resource=True, feed=None, steps=1):
    """Trains in a Session; returns the variable, the slot, and the types of all operations."""
    with tf.Graph().as_default() as graph:
        variable = v1.get_variable("w", initializer=START, use_resource=use_resource)
        gradient = tf.ones_like(START) if gradient is None else gradient(variable)
        train_op = optimizer.apply_gradients([(gradient, variable)])
        fetches = [variable, optimizer.get_slot(variable, "sum")]
        types = {each.type for each in graph.get_operations()}
        return [*running.after(train_op, fetches, steps, feed), types]


def is_native(types):
    return any(each.startswith("LegacyOptUpdate") for each in types)


def native(**options):
    optimizer = Sgd(**options)
    optimizer.native = "require"
    return optimizer

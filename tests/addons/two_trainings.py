"""Trains by a Keras optimizer of Addons and by one of this package, step for step."""

import numpy as np
import tensorflow as tf

KERAS = getattr(tf.keras.optimizers, "legacy", tf.keras.optimizers)  # with the OptimizerV2 classes
IDS = [3, 1, 3]  # of the rows that get a gradient; rows with equal ids are summed


def new_variables(names=("kernel", "bias", "table"), dtype="float32"):
    """Returns a dict of variables with the same initial values in each call."""
    random = np.random.RandomState(0)
    shapes = {"kernel": (3, 2), "bias": (2,), "table": (5, 2)}
    return {name: tf.Variable(random.randn(*shapes[name]).astype(dtype)) for name in names}


def gradients(step, variables):
    """Returns the (gradient, variable) pairs of a step; the gradient of "table" is sparse."""
    random = np.random.RandomState(100 + step)
    pairs = []
    for name, variable in variables.items():
        grad = random.randn(*variable.shape)
        if name == "table":
            rows = tf.constant(random.randn(len(IDS), 2), variable.dtype)
            pairs.append((tf.IndexedSlices(rows, tf.constant(IDS), variable.shape), variable))
        else:
            pairs.append((tf.constant(grad, variable.dtype), variable))
    return pairs


def gap(ones, others):
    """Returns the largest absolute difference between two dicts of variables."""
    return max(np.abs(ones[name].numpy() - others[name].numpy()).max() for name in ones)

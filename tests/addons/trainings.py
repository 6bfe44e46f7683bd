"""Trains with optimizers of Addons (OptimizerV2 of Keras 2) and with those of this package."""

import numpy as np
import tensorflow as tf

v1 = tf.compat.v1
KERAS = getattr(tf.keras.optimizers, "legacy", tf.keras.optimizers)  # with the OptimizerV2 classes
SHAPES = {"kernel": (3, 2), "bias": (2,), "table": (5, 2)}
IDS = [3, 1, 3]  # of the rows that get a gradient; rows with equal ids are summed


def new_variables():
    """Returns a dict of variables with the same initial values in each call."""
    random = np.random.RandomState(0)
    return {
        name: tf.Variable(random.randn(*shape).astype("f"), name=name)
        for name, shape in SHAPES.items()
    }


def gradient_values(step, variables):
    """Returns a dict of the gradients' values in a step; of the table only rows have a gradient."""
    random = np.random.RandomState(100 + step)
    found = {}
    for name in variables:
        rows = len(IDS) if name == "table" else SHAPES[name][0]
        found[name] = random.randn(rows, *SHAPES[name][1:]).astype("float32")
    return found


def gradients(step, variables):
    """Returns the (gradient, variable) pairs of a step; the table's gradient is sparse."""
    pairs = []
    for name, value in gradient_values(step, variables).items():
        grad = tf.constant(value)
        if name == "table":
            grad = tf.IndexedSlices(grad, tf.constant(IDS), tf.constant(SHAPES[name]))
        pairs.append((grad, variables[name]))
    return pairs


def train(optimizer, variables, first=0, steps=20):
    """Trains eagerly with an optimizer of Keras or v1; returns the values after each step."""
    # Only the optimizers of v1 take a step. LAMB needs it.
    step = v1.train.get_or_create_global_step() if hasattr(optimizer, "compute_gradients") else None
    if step is not None:
        step.assign(first)
    found = []
    for number in range(first, first + steps):
        pairs = gradients(number, variables)
        if step is None:
            optimizer.apply_gradients(pairs)
        else:
            optimizer.apply_gradients(pairs, global_step=step)
        found.append(values(variables))
    return found


def values(variables):
    """Returns a dict of the variables' values."""
    return {name: variable.numpy() for name, variable in variables.items()}


def largest_difference(one, other):
    """Returns the largest absolute difference between the values of two trainings."""
    return max(np.abs(a[name] - b[name]).max() for a, b in zip(one, other) for name in a)

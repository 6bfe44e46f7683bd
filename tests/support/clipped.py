"""NumPy references for gradient clipping, and for gradient descent with clipped gradients."""

import numpy as np

from tests.support.keras import keras_models

RATE = np.float32(0.5)


def summed(rows, size):
    """Converts a sparse gradient to a dense array; rows with equal ids are summed."""
    result = np.zeros([size, rows.values.shape[1]], "f")
    np.add.at(result, rows.ids, rows.values)
    return result


def by_value(gradients):
    return {name: np.clip(gradient, -0.4, 0.4) for name, gradient in gradients.items()}


def by_norm(gradients):
    return {
        name: gradient * min(1.0, 0.7 / np.linalg.norm(gradient.ravel()))
        for name, gradient in gradients.items()
    }


def by_global_norm(gradients):
    norm = np.sqrt(sum(np.sum(np.square(gradient)) for gradient in gradients.values()))
    return {name: gradient * min(1.0, 0.9 / norm) for name, gradient in gradients.items()}


def descended(clip):
    """Trains `keras_models.problem` by gradient descent; returns the values after each step."""
    problem = keras_models.problem()
    now = dict(problem.values)
    steps = []
    for gradients in problem.gradients:
        dense = clip({"table": summed(gradients["table"], 9), "matrix": gradients["matrix"]})
        now = {name: now[name] - RATE * dense[name] for name in now}
        steps.append(now)
    return steps

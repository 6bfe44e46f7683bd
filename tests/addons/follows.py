"""Trains an optimizer of TensorFlow Addons and one of legacy_opt from its state, eagerly."""

import numpy as np
import tensorflow as tf

from legacy_opt.compat import to_keras
from tests.support import running


class Training:
    """The variables of a problem, and an optimizer of Keras 2 that trains them."""

    def __init__(self, problem, optimizer):
        self.problem, self.optimizer = problem, optimizer
        self.variables = {
            key: tf.Variable(value, name=key) for key, value in problem.values.items()
        }
        self.checkpoint = tf.train.Checkpoint(optimizer=optimizer, **self.variables)

    def train(self, first, last):
        """Returns the values of the variables and slots after each step."""
        states = []
        for gradients in self.problem.gradients[first:last]:
            tensors = tf.nest.map_structure(tf.constant, running._plain(gradients))
            pairs = running._as_gradients(self.problem, tensors, self.variables)
            self.optimizer.apply_gradients(pairs)
            states.append(self.state())
        return states

    def state(self):
        slots = {
            (key, slot): self.optimizer.get_slot(variable, slot).numpy()
            for key, variable in self.variables.items()
            for slot in self.optimizer.get_slot_names()
        }
        return {**{key: each.numpy() for key, each in self.variables.items()}, **slots}


def addons_and_ours(problem, theirs, ours, folder):
    """Trains with both, and from the half on also with ours from a checkpoint of Addons.

    Returns:
      Three lists of states: of Addons, of ours, and of ours from the checkpoint.
    """
    half = problem.steps // 2
    addons = Training(problem, theirs)
    states = addons.train(0, half)
    path = addons.checkpoint.save(str(folder / "half"))
    states += addons.train(half, problem.steps)
    followed = Training(problem, to_keras(ours(), api="optimizer_v2")).train(0, problem.steps)
    restored = Training(problem, to_keras(ours(), api="optimizer_v2"))
    restored.checkpoint.restore(path).expect_partial()  # numbers may be variables in one of them
    assert int(restored.optimizer.iterations) == half
    return states, followed, restored.train(half, problem.steps)


def largest_ulps(actual, expected):
    """Returns the largest difference in units in the last place of the largest number."""
    found = [0.0]
    for one, other in zip(actual, expected):
        for key in one:
            unit = np.spacing(np.abs(other[key]).max(initial=1).astype(other[key].dtype))
            found.append(np.abs(one[key] - other[key]).max(initial=0) / unit)
    return max(found)

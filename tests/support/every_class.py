"""Parameters and helpers for tests that run with every optimizer class."""

import pytest
import tensorflow as tf

from tests.support import running
from tests.support.cases import CASES, one_of_each_class

CLASSES = one_of_each_class()
EVERY_CLASS = pytest.mark.parametrize("name", CLASSES)


def make(name, step=None, **overrides):
    """Returns a new optimizer that issues no `GlobalStepWarning`."""
    optimizer = CASES[name].make(step, **overrides)
    optimizer.global_step_is_advanced = True
    return optimizer


class Eager:
    """An optimizer, its variables and their tf.train.Checkpoint, in eager execution."""

    def __init__(self, name, problem, step_dtype=tf.int64):
        self.problem = problem
        self.variables = {
            key: tf.Variable(value, name=key) for key, value in problem.values.items()
        }
        self.step = tf.Variable(0, dtype=step_dtype, trainable=False)
        self.optimizer = CASES[name].make(self.step)
        self.checkpoint = tf.train.Checkpoint(
            optimizer=self.optimizer, step=self.step, **self.variables
        )

    def train(self, first, last):
        for gradients in self.problem.gradients[first:last]:
            tensors = tf.nest.map_structure(tf.constant, running._plain(gradients))
            pairs = running._as_gradients(self.problem, tensors, self.variables)
            self.optimizer.apply_gradients(pairs, global_step=self.step)
        return self

    def values(self):
        return {key: variable.numpy() for key, variable in self.variables.items()}

    def state(self):
        """Returns the variables and the slots."""
        slots = running.slots_of(self.optimizer, self.variables)
        return {**self.values(), **{key: slot.numpy() for key, slot in slots.items()}}

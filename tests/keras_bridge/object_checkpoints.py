"""Trains with `to_keras` optimizers on Keras 2 or 3, and resumes from a tf.train.Checkpoint."""

import numpy as np
import tensorflow as tf

from legacy_opt import AdagradDecayOptimizer, AdagradDecayOptimizerV2
from tests.support import rules, running
from tests.support.keras import keras_models
from tests.support.keras.keras_apis import KERAS_3
from tests.support.keras.row_adagrad import RowAdagrad

PROBLEM = keras_models.problem(steps=8)
MAKERS = {
    "Adam": lambda step: keras_models.make("Adam"),
    "Momentum": lambda step: keras_models.make("Momentum"),
    "AdagradDecay": lambda step: AdagradDecayOptimizer(0.1, step, 0.1, 2, 0.5),
    "AdagradDecayV2": lambda step: AdagradDecayOptimizerV2(0.1, step, 0.1, 2, 0.5),
    "DiffGrad": lambda step: rules.MyDiffGradOptimizer(0.1),
    "RowAdagrad": lambda step: RowAdagrad(0.1),
}


def make(api, name, **arguments):
    return api.bridged(MAKERS[name](None), **arguments)


def keras_variables(values):
    return {name: KERAS_3.variable(value, name=name) for name, value in values.items()}


def tf_variables(values):
    return {name: tf.compat.v2.Variable(value, name=name) for name, value in values.items()}


class Training:
    """An optimizer and the variables that it trains, with a tf.train.Checkpoint to save them."""

    def __init__(self, optimizer, start=0.0, make_variables=tf_variables):
        self.optimizer = optimizer
        self.variables = make_variables({k: value * start for k, value in PROBLEM.values.items()})
        self.checkpoint = tf.train.Checkpoint(optimizer=optimizer, **self.variables)

    def steps(self, first, last):
        for gradients in PROBLEM.gradients[first:last]:
            self.optimizer.apply_gradients(keras_models.pairs(gradients, self.variables))
        return self

    def values(self):
        return [variable.numpy() for variable in self.variables.values()]

    def state(self):
        variables = self.optimizer.variables
        variables = variables() if callable(variables) else variables
        return [variable.numpy() for variable in variables]

    def assert_same(self, other):
        for one, another in zip(self.values() + self.state(), other.values() + other.state()):
            assert one.dtype == another.dtype and np.array_equal(one, another)
        assert len(self.state()) == len(other.state())


def saved(optimizer, path, make_variables=tf_variables):
    """Saves a checkpoint after four training steps, then trains to the end.

    Returns:
      The checkpoint's path and the `Training`.
    """
    training = Training(optimizer, 1.0, make_variables).steps(0, 4)
    path = training.checkpoint.save(str(path / "saved"))
    return path, training.steps(4, 8)


def assert_goes_on(make_optimizer, make_v1, kind, steps_before, path):
    """Asserts that a new training can restore a checkpoint and continue.

    The final values must be equal, bit for bit, to those of an uninterrupted training and to those
    of a Session.

    Args:
      make_optimizer: a function that returns the Keras optimizer.
      make_v1: a function of the global step that returns the v1 optimizer for the Session.
      kind: the function that makes the variables: `tf_variables` or `keras_variables`.
      steps_before: how many steps the new training runs before it restores the checkpoint. The
        variables of the new training are 0 at the start.
      path: the folder for the checkpoint.
    """
    path, unstopped = saved(make_optimizer(), path, kind)
    training = Training(make_optimizer(), 0.0, kind).steps(0, steps_before)
    status = training.checkpoint.restore(path)
    status.assert_existing_objects_matched()
    training.steps(4, 8)
    training.assert_same(unstopped)
    status.assert_existing_objects_matched()
    status.assert_consumed()
    expected = running.session(PROBLEM, make_v1, True, config=running.AS_WRITTEN)
    for name, value in expected.steps[-1].items():
        assert np.array_equal(training.variables[name].numpy(), value), name
    for (name, slot), value in expected.slots.items():
        own = training.optimizer.get_slot(training.variables[name], slot).numpy()
        assert own.dtype == value.dtype and np.array_equal(own, value), (name, slot)

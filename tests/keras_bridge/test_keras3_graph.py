"""Tests the Keras 3 bridge (`to_keras`) in TF1 graphs, where Keras' own optimizers fail."""

import numpy as np
import pytest
import tensorflow as tf

from legacy_opt.compat import compare_with_session, to_keras
from tests.support import problems, running
from tests.support.keras.keras_cases import CASES

pytestmark = pytest.mark.keras3

v1 = tf.compat.v1


class InSession:
    """Gives a bridged optimizer the methods that `running.session` calls."""

    def __init__(self, optimizer):
        self.bridged = to_keras(optimizer, api="keras3")

    def apply_gradients(self, pairs, global_step):
        train_op = self.bridged.apply_gradients(pairs)
        assert isinstance(train_op, tf.Operation)
        return train_op

    def get_slot_names(self):
        return self.bridged.get_slot_names()

    def get_slot(self, variable, name):
        return self.bridged.get_slot(variable, name).value


def assert_same(actual, expected):
    for number, (one, other) in enumerate(zip(actual.steps, expected.steps)):
        for name in other:
            assert np.array_equal(one[name], other[name]), (number, name)
    assert set(actual.slots) == set(expected.slots)
    for key, value in expected.slots.items():
        assert np.array_equal(actual.slots[key], value), key


@pytest.mark.parametrize("name", ["Adam", "Momentum", "AdagradDecay", "AdagradDecayV2", "RMSProp"])
@pytest.mark.parametrize("kind", ["dense", "duplicates"])
def test_a_session_computes_the_same(name, kind):
    problem, make = problems.make(kind), CASES[name].make
    expected = running.session(problem, make, use_resource=True)
    actual = running.session(problem, lambda step: InSession(make(step)), use_resource=True)
    assert_same(actual, expected)


def test_other_hyperparameters_are_constants_of_the_graph():
    with tf.Graph().as_default():
        variable = tf.compat.v2.Variable([1.0])
        bridged = to_keras(v1.train.MomentumOptimizer(1.0, 0.9), api="keras3")
        bridged.momentum = 0.5
        train_op = bridged.apply_gradients([(tf.ones([1]), variable)])
        with pytest.raises(RuntimeError, match="momentum can no longer be set to 0.25"):
            bridged.momentum = 0.25
        with running.started() as session:
            session.run(train_op)
            session.run(train_op)
            # The first update subtracts 1, and the second one subtracts 0.5 * 1 + 1.
            assert session.run(variable) == [-1.5]
            assert session.run(bridged.iterations.value) == 2


@pytest.mark.parametrize("name", ["Adam", "Ftrl", "AdagradDecayV2"])
def test_compare_with_session_in_a_graph(name):
    with tf.Graph().as_default():
        assert compare_with_session(CASES[name].make(None), api="keras3")

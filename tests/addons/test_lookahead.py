"""Compares LookaheadOptimizer with Lookahead of Addons, bit for bit."""

import pytest
import tensorflow as tf
import tensorflow_addons as tfa

from legacy_opt import LookaheadOptimizer
from legacy_opt.compat import to_keras
from tests.addons.two_trainings import KERAS, gap, gradients, new_variables

v1 = tf.compat.v1
DENSE, ALL = ("kernel", "bias"), ("kernel", "bias", "table")
INNER = {  # Addons' optimizer, ours, the variables, and the largest difference
    "SGD": (
        lambda: KERAS.SGD(0.1),
        lambda: v1.train.GradientDescentOptimizer(0.1),
        DENSE,  # Addons raises a KeyError for sparse gradients
        0,
    ),
    "Momentum": (  # Keras' velocity contains the learning rate, and rounds differently
        lambda: KERAS.SGD(0.1, momentum=0.9),
        lambda: v1.train.MomentumOptimizer(0.1, 0.9),
        DENSE,
        2e-6,
    ),
    "Adagrad": (
        lambda: KERAS.Adagrad(0.1, epsilon=0.0),
        lambda: v1.train.AdagradOptimizer(0.1),
        ALL,
        2e-6,
    ),
}
ARGUMENTS = [{}, {"sync_period": 1}, {"sync_period": 4, "slow_step_size": 0.3}]


def slow(optimizer, variables):
    return {name: optimizer.get_slot(each, "slow") for name, each in variables.items()}


@pytest.mark.parametrize("bridge", [False, True])
@pytest.mark.parametrize("arguments", ARGUMENTS)
@pytest.mark.parametrize("inner", INNER)
def test_trains_as_addons(inner, arguments, bridge):
    theirs, ours, names, bound = INNER[inner]
    theirs = tfa.optimizers.Lookahead(theirs(), **arguments)
    ours = LookaheadOptimizer(ours(), **arguments)
    ours = to_keras(ours) if bridge else ours
    one, other = new_variables(names), new_variables(names)
    for step in range(20):
        for optimizer, variables in (theirs, one), (ours, other):
            optimizer.apply_gradients(gradients(step, variables))
        assert gap(one, other) <= bound
        assert gap(slow(theirs, one), slow(ours, other)) <= bound
    assert gap(one, new_variables(names)) > 0.05


def test_a_missing_gradient():
    theirs = tfa.optimizers.Lookahead(KERAS.SGD(0.1), 2, 0.3)
    ours = LookaheadOptimizer(v1.train.GradientDescentOptimizer(0.1), 2, 0.3)
    one, other = new_variables(DENSE), new_variables(DENSE)
    for step in range(9):
        for optimizer, variables in (theirs, one), (ours, other):
            (grad, variable), *others = gradients(step, variables)
            optimizer.apply_gradients([(None if step % 3 else grad, variable), *others])
        assert gap(one, other) == gap(slow(theirs, one), slow(ours, other)) == 0


def test_addons_fails_with_sparse_gradients_around_sgd():
    variables = new_variables(["table"])
    theirs = tfa.optimizers.Lookahead(KERAS.SGD(0.1))
    with pytest.raises(KeyError):
        theirs.apply_gradients(gradients(0, variables))

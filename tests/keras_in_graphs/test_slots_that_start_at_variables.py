"""Tests of slots that start at their variables, as those of Addons' Lookahead and MovingAverage."""

import numpy as np
import pytest
import tensorflow as tf

from legacy_opt import versions
from legacy_opt.compat import to_v1
from tests.support.keras.keras_apis import KERAS_3, OPTIMIZER_V2

v1 = tf.compat.v1
STARTS = {
    "variable": lambda variable: variable,
    "read": lambda variable: variable.read_value(),
    "product": lambda variable: variable * 1.0,
    "function": lambda variable: lambda shape, dtype=None: tf.identity(variable),
}


class Slow(OPTIMIZER_V2.optimizers.SGD):
    """Has a slot that starts at its variable, and then does not change."""

    start = "variable"

    def _create_slots(self, var_list):
        for variable in var_list:
            self.add_slot(variable, "slow", initializer=STARTS[self.start](variable))


def graph(optimizer):
    """Returns the operation that trains a random variable, and the first variable and the slot."""
    start = v1.random_uniform_initializer(1, 2)
    variable = v1.get_variable("w", [3], initializer=start, use_resource=True)
    optimizer = to_v1(optimizer)
    train = optimizer.minimize(tf.reduce_sum(tf.square(variable)))
    return train, [variable, optimizer.get_slot(variable, "slow")]


def check(optimizer):
    """Initializes all variables, also a second time, in several orders of threads."""
    for _ in range(6):
        with tf.Graph().as_default(), v1.Session() as session:
            train, both = graph(optimizer)
            for _ in range(2):
                session.run(v1.global_variables_initializer())
                variable, slot = start = session.run(both)
                assert np.array_equal(variable, slot)
                session.run(train)
                variable, slot = session.run(both)
                assert np.array_equal(slot, start[0]) and not np.array_equal(variable, slot)


@pytest.mark.parametrize("start", STARTS)
def test_a_slot_starts_at_the_initial_value(start):
    optimizer = Slow(0.1)
    optimizer.start = start
    check(optimizer)


@pytest.mark.keras3
def test_a_slot_of_keras_3_starts_at_the_initial_value():
    class Slow3(KERAS_3.keras.optimizers.SGD):
        def build(self, variables):
            super().build(variables)
            for each in variables:
                start = lambda shape, dtype=None, each=each: tf.identity(  # noqa: E731
                    versions.tf_variable(each)
                )
                self.slow = self.add_variable_from_reference(each, "slow", initializer=start)

    check(Slow3(0.1))


def test_reading_a_variable_afterwards_gives_its_value():
    with tf.Graph().as_default(), v1.Session() as session:
        train, both = graph(Slow(0.1))
        session.run(v1.global_variables_initializer())
        session.run(train)
        variable = both[0]
        assert np.array_equal(session.run(variable * 1.0), session.run(variable.read_value()))
        assert not np.array_equal(*session.run([variable * 1.0, both[1]]))

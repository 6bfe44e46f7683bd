"""Tests of TF1 learning rate decays in bridged optimizers (Keras optimizers made by `to_keras`)."""

import numpy as np
import pytest
import tensorflow as tf

from legacy_opt.compat import to_keras, to_v1
from tests.support.checkpoints.v1_checkpoints import EVERY_API, keras_of

v1 = tf.compat.v1
RATES = [0.5, 0.25, 0.125, 0.0625]
# Above 2**24, float32 cannot represent every step. From 2**31 on, steps do not fit into int32.
LATE = {"2**24": 2**24, "2**31": 2**31}
DECAYS = {
    "piecewise": lambda step, late: v1.train.piecewise_constant(
        step, [late + 1, late + 3], [0.5, 0.25, 0.125]
    ),
    "exponential": lambda step, late: v1.train.exponential_decay(0.5, step, late // 7, 0.5),
    "staircase": lambda step, late: v1.train.exponential_decay(0.5, step, late, 0.5, True),
    "polynomial": lambda step, late: v1.train.polynomial_decay(0.5, step, late + 9, 0.01),
}


def sgd(rate):
    return v1.train.GradientDescentOptimizer(rate)


def new_step(value=0):
    return tf.compat.v2.Variable(value, dtype=tf.int64, trainable=False)


def halving(step):
    return v1.train.exponential_decay(0.5, step, 1, 0.5)


def rates_of(optimizer, steps, first=0, in_function=True):
    """Returns the learning rates that a Keras optimizer uses in consecutive training steps."""
    variable = tf.compat.v2.Variable(np.zeros(1, "f"))
    if hasattr(optimizer, "build"):
        optimizer.build([variable])
    optimizer.iterations.assign(first)

    def step():
        optimizer.apply_gradients([(tf.constant([-1.0]), variable)])

    return _moves(tf.function(step) if in_function else step, variable, steps)


def rates_in_v1(optimizer, steps, first=0, global_step=None):
    variable = tf.compat.v2.Variable(np.zeros(1, "f"))
    global_step = new_step(first) if global_step is None else global_step

    def step():
        optimizer.apply_gradients([(tf.constant([-1.0]), variable)], global_step)

    return _moves(step, variable, steps)


def _moves(step, variable, steps):
    found = []
    for _ in range(steps):
        variable.assign([0.0])
        step()
        found.append(variable.numpy().item())
    return found


@pytest.mark.parametrize("how", ["as it is", "loaded", "with Keras' decay"])
@pytest.mark.parametrize("late", LATE)
@pytest.mark.parametrize("decay", DECAYS)
@EVERY_API
def test_decays_at_late_steps(api, decay, late, how):
    late = LATE[late]
    if how == "with Keras' decay" and api == "keras3":
        return
    step = new_step(late - 1)
    expected = rates_in_v1(sgd(DECAYS[decay](step, late)), 7, global_step=step)
    options = {"decay": 1e-30} if how == "with Keras' decay" else {}
    optimizer = to_keras(sgd(DECAYS[decay](new_step(), late)), api=api, **options)
    if how == "loaded":
        optimizer = type(optimizer).from_config(optimizer.get_config())
    rates = rates_of(optimizer, 7, late - 1, in_function=decay == "piecewise")
    np.testing.assert_array_equal(rates, expected)
    if decay == "piecewise":  # computed by hand
        assert expected == [0.5, 0.5, 0.5, 0.25, 0.25, 0.125, 0.125]


@pytest.mark.parametrize("name", ["learning_rate", "lr"])
@EVERY_API
def test_a_decay_that_is_set_depends_on_iterations(api, name):
    """Checks that the decay reads `iterations`, not the variable that `halving` received."""
    optimizer = to_keras(sgd(lambda: 1.0), api=api)
    setattr(optimizer, "learning_rate" if api == "keras3" else name, halving(new_step()))
    again = type(optimizer).from_config(optimizer.get_config())
    assert rates_of(optimizer, 4) == rates_of(again, 4) == RATES


@EVERY_API
def test_an_invalid_learning_rate_is_not_set(api):
    optimizer = to_keras(sgd(0.5), api=api)
    with pytest.raises(ValueError, match="learning_rate must be finite, got nan"):
        optimizer.learning_rate = float("nan")
    assert rates_of(optimizer, 2) == [0.5, 0.5]


# `to_v1` with bridged optimizers.


@EVERY_API
def test_to_v1_keeps_an_assigned_learning_rate(api):
    optimizer = to_keras(sgd(1.0), api=api)
    rates_of(optimizer, 1)  # in Keras 2, the first step creates the learning rate's variable
    optimizer.learning_rate.assign(0.25)
    assert rates_in_v1(to_v1(optimizer), 1) == [0.25]


@EVERY_API
def test_to_v1_keeps_a_schedule_that_was_set(api):
    schedule = keras_of(api).optimizers.schedules.ExponentialDecay(0.5, 1, 0.5)
    optimizer = to_keras(sgd(lambda: 1.0), api=api)
    optimizer.learning_rate = schedule
    assert rates_in_v1(to_v1(optimizer), 4) == RATES


@EVERY_API
def test_to_v1_keeps_a_decay_that_was_set(api):
    step = new_step()
    optimizer = to_keras(sgd(lambda: 1.0), api=api)
    optimizer.learning_rate = halving(step)
    assert rates_in_v1(to_v1(optimizer), 4, global_step=step) == RATES


@EVERY_API
def test_to_v1_keeps_a_decay_that_was_loaded(api):
    optimizer = to_keras(sgd(halving(new_step())), api=api)
    loaded = type(optimizer).from_config(optimizer.get_config())
    assert rates_in_v1(to_v1(loaded), 4) == RATES

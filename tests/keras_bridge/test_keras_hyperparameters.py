"""Learning rates and other hyperparameters that change while training, on the bridge.

The expectation is the v1 optimizer in a Session whose learning rate is a variable, loaded anew at
the same steps.
"""

import numpy as np
import pytest
import tensorflow as tf

from legacy_opt import versions
from tests.support import running
from tests.support.keras import keras_models as models
from tests.support.keras.changing_rates import (
    DECAYS,
    MAKERS,
    NOT_READ_AGAIN,
    PROBLEM,
    RATES,
    SETTABLE,
    session,
    with_change,
)
from tests.support.keras.keras_apis import OPTIMIZER_V2 as api

v1 = tf.compat.v1
K = api.keras.backend
schedules = api.keras.optimizers.schedules


def bridged(name, rate, **arguments):
    return api.bridged(MAKERS[name](rate), **arguments)


def by_attribute(optimizer, rate):
    optimizer.learning_rate = rate


def by_short_attribute(optimizer, rate):
    optimizer.lr = rate


def by_set_value(optimizer, rate):
    K.set_value(optimizer.learning_rate, rate)


def by_assign(optimizer, rate):
    if not hasattr(optimizer.learning_rate, "assign"):  # a number until the weights are made
        _ = optimizer.iterations
        optimizer._create_hypers()
    optimizer.learning_rate.assign(rate)


@pytest.mark.parametrize("way", ["function", "eager"])
@pytest.mark.parametrize("change", [by_attribute, by_short_attribute, by_set_value, by_assign])
@pytest.mark.parametrize("name", ["AdagradDecay", "Adam", "Ftrl"])
def test_the_learning_rate_can_be_set_between_steps(name, change, way):
    optimizer = bridged(name, float(RATES[0]))

    def between(variables, number):
        if number:
            change(optimizer, float(RATES[number]))

    actual, again = models.loop(PROBLEM, optimizer, way, between)
    if way == "function":
        assert again == 0
    running.assert_same(actual, session(name, config=running.config_of(way)))
    assert float(K.get_value(optimizer.lr)) == RATES[-1]


@pytest.mark.parametrize("name", sorted(MAKERS))
def test_the_learning_rate_can_be_set_in_graph_mode(name):
    def between(sess, optimizer, number):
        sess.run(tf.compat.v1.get_default_graph().get_collection("set"), {"rate:0": RATES[number]})

    def build(optimizer, gradients, variables):
        op = optimizer.apply_gradients(models.pairs(gradients, variables))
        rate = v1.placeholder("float32", [], name="rate")
        v1.add_to_collection("set", optimizer.learning_rate.assign(rate))
        return op

    actual = models.graph(PROBLEM, lambda: bridged(name, 1.0), build, between)
    running.assert_same(actual, session(name))


@pytest.mark.parametrize("name", ["AdagradDecay", "Adam"])
def test_the_callback_learning_rate_scheduler(name):
    problem = models.problem(steps=4)
    rates = [0.3, 0.1, 0.05]
    callback = api.keras.callbacks.LearningRateScheduler(lambda epoch: rates[epoch])
    optimizer = bridged(name, 1.0)
    actual, model = api.fit(problem, optimizer, epochs=3, callbacks=[callback])
    thrice = problem._replace(gradients=problem.gradients * 3)
    running.assert_same(actual, session(name, np.repeat(np.float32(rates), 4), thrice))
    assert model.get_layer("fed").runs <= 5  # building, and no more for the third epoch


def test_the_callback_reduce_lr_on_plateau():
    """Nothing gets better than the first epoch by 1000, so each later one halves the rate."""
    problem = models.problem(steps=4)
    callback = api.keras.callbacks.ReduceLROnPlateau(
        "loss", factor=0.5, patience=1, min_delta=1000.0
    )
    optimizer = bridged("Adam", 0.5)
    actual, _ = api.fit(problem, optimizer, epochs=4, callbacks=[callback])
    rates = np.repeat(np.float32([0.5, 0.5, 0.25, 0.125]), 4)
    fourfold = problem._replace(gradients=problem.gradients * 4)
    running.assert_same(actual, session("Adam", rates, fourfold))
    assert float(K.get_value(optimizer.learning_rate)) == 0.0625


@pytest.mark.parametrize("way", ["function", "eager", "graph"])
@pytest.mark.parametrize("name", ["AdagradDA", "Adam", "Ftrl"])
def test_keras_schedules(name, way):
    """Constants between boundaries: the same numbers wherever they are computed."""
    schedule = schedules.PiecewiseConstantDecay([2, 6], [0.3, 0.1, 0.05])
    rates = np.float32([0.3] * 3 + [0.1] * 4 + [0.05] * 5)
    if way == "graph":
        actual = models.graph(PROBLEM, lambda: bridged(name, 1.0, learning_rate=schedule))
    else:
        optimizer = bridged(name, 1.0, learning_rate=schedule)
        actual, _ = models.loop(PROBLEM, optimizer, way)
        assert optimizer.learning_rate is schedule
    config = running.config_of(way)
    running.assert_same(actual, session(name, rates, config=config))


def test_a_schedule_can_take_the_place_of_a_number_before_training():
    optimizer = bridged("Adam", 1.0)
    optimizer.learning_rate = schedules.PiecewiseConstantDecay([5], [0.3, 0.1])
    actual, _ = models.loop(PROBLEM, optimizer)
    running.assert_same(actual, session("Adam", np.float32([0.3] * 6 + [0.1] * 6)))


@pytest.mark.parametrize("way", ["function", "eager"])
@pytest.mark.parametrize("where", ["the v1 optimizer", "to_keras"])
def test_callables_are_called_at_each_step(where, way):
    rate = tf.Variable(0.0, trainable=False)

    def function():
        return rate.read_value()

    if where == "to_keras":
        optimizer = bridged("Adam", 1.0, learning_rate=function)
    else:
        optimizer = bridged("Adam", function)
    between = lambda _, number: rate.assign(RATES[number])  # noqa: E731
    actual, _ = models.loop(PROBLEM, optimizer, way, between)
    config = running.config_of(way)
    running.assert_same(actual, session("Adam", config=config))


@pytest.mark.parametrize("way", ["function", "eager"])
def test_a_variable_stays_the_users(way):
    rate = tf.Variable(0.0, trainable=False)
    optimizer = bridged("Adam", rate)
    between = lambda _, number: rate.assign(RATES[number])  # noqa: E731
    actual, _ = models.loop(PROBLEM, optimizer, way, between)
    config = running.config_of(way)
    running.assert_same(actual, session("Adam", config=config))


def test_keras_inverse_time_decay():
    """`decay=` divides the learning rate by 1 + decay * iterations."""
    optimizer = bridged("Adam", 0.3, decay=0.25)
    actual, _ = models.loop(PROBLEM, optimizer)
    rates = np.float32(0.3) / (np.float32(1.0) + np.float32(0.25) * np.arange(12, dtype="f"))
    running.assert_same(actual, session("Adam", rates))


@pytest.mark.parametrize("decay", sorted(DECAYS))
@pytest.mark.parametrize("way", ["function", "eager", "graph"])
def test_the_decays_of_v1_go_by_iterations(way, decay):
    """Executing eagerly, they are functions with the step bound to them; in a graph, a tensor."""

    def make(step):
        return v1.train.MomentumOptimizer(DECAYS[decay](step), 0.9)

    config = running.config_of(way)
    expected = running.session(PROBLEM, make, True, config=config)
    if way == "graph":
        actual = models.graph(
            PROBLEM, lambda: api.bridged(make(v1.train.get_or_create_global_step()))
        )
    else:
        step = tf.Variable(0, dtype=tf.int64, trainable=False)
        actual, _ = models.loop(PROBLEM, api.bridged(make(step)), way)
        assert int(step.numpy()) == 0
    running.assert_same(actual, expected)


# Other hyperparameters.


@pytest.mark.parametrize("argument", sorted(SETTABLE))
def test_what_v1_reads_in_each_step_can_be_set(argument):
    make, first, second, _ = SETTABLE[argument]
    optimizer = api.bridged(make(first))
    assert np.float32(K.get_value(getattr(optimizer, argument))) == np.float32(first)

    def between(_, number):
        if number == 6:
            setattr(optimizer, argument, second)

    if versions.regroups_constant_factors():
        with pytest.raises(RuntimeError, match=r"%s=0\.5 comes too late" % argument):
            models.loop(PROBLEM, optimizer, "function", between)
        return
    actual, again = models.loop(PROBLEM, optimizer, "function", between)
    assert again == 0
    running.assert_same(actual, with_change(argument))


@pytest.mark.parametrize("way", ["function", "eager"])
@pytest.mark.parametrize("argument", sorted(SETTABLE))
def test_it_can_be_set_before_the_first_step_everywhere(argument, way):
    make, first, second, _ = SETTABLE[argument]
    optimizer = api.bridged(make(first))
    setattr(optimizer, argument, second)
    actual, _ = models.loop(PROBLEM, optimizer, way)
    config = running.config_of(way)
    running.assert_same(
        actual, running.session(PROBLEM, lambda _: make(second), True, config=config)
    )


@pytest.mark.parametrize("argument", sorted(SETTABLE))
def test_a_graph_that_is_built_holds_them_as_v1_does(argument):
    make, _, second, _ = SETTABLE[argument]

    def between(sess, optimizer, number):
        with pytest.raises(RuntimeError, match=r"%s=0\.5 comes too late" % argument):
            setattr(optimizer, argument, second)

    models.graph(models.problem(steps=1), lambda: api.bridged(make(0.9)), between=between)


@NOT_READ_AGAIN
def test_what_v1_does_not_read_again_cannot_be_set(name, argument, value):
    optimizer = api.bridged(name)
    with pytest.raises(AttributeError, match="does not read %s anew in each step" % argument):
        setattr(optimizer, argument, value)

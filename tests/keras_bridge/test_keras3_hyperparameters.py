"""Learning rates and other hyperparameters that change while training, on the Keras 3 bridge.

The expectations are those of test_keras_hyperparameters: the v1 optimizer in a Session.
"""

import numpy as np
import pytest
import tensorflow as tf

from legacy_opt import versions
from legacy_opt.compat import compare_with_session, register_optimizer, to_keras
from tests.support import running
from tests.support.keras import keras_models
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
from tests.support.keras.keras_apis import KERAS_3

bridged = KERAS_3.bridged

pytestmark = pytest.mark.keras3

v1 = tf.compat.v1
keras = versions.keras_3()
tf_keras = versions.keras_2()
schedules = keras.optimizers.schedules


def loop(optimizer, way, between=None):
    """Trains; the step must be traced once."""
    actual, again = keras_models.loop(PROBLEM, optimizer, way, between)
    assert way == "eager" or again == 0
    return actual


def by_attribute(optimizer, rate):
    optimizer.learning_rate = rate


def by_assign(optimizer, rate):
    optimizer.learning_rate.assign(rate)


@pytest.mark.cells(name=sorted(MAKERS), change=[by_attribute, by_assign], way=["function", "eager"])
def test_the_learning_rate_can_be_set_between_steps(name, change, way):
    optimizer = bridged(MAKERS[name](float(RATES[0])))

    def between(variables, number):
        change(optimizer, float(RATES[number]))

    running.assert_same(loop(optimizer, way, between), session(name, config=running.config_of(way)))
    assert optimizer.learning_rate.numpy() == RATES[-1]
    assert np.float32(optimizer.get_config()["learning_rate"]) == RATES[-1]


def test_the_callback_learning_rate_scheduler():
    problem = keras_models.problem(steps=4)
    rates = [0.3, 0.1, 0.05]
    callback = keras.callbacks.LearningRateScheduler(lambda epoch: rates[epoch])
    optimizer = bridged(MAKERS["Adam"](1.0))
    actual, model = KERAS_3.fit(problem, optimizer, [callback], epochs=3)
    thrice = problem._replace(gradients=problem.gradients * 3)
    running.assert_same(actual, session("Adam", np.repeat(np.float32(rates), 4), thrice))
    assert model.get_layer("fed").runs <= 5  # building, and no more for the third epoch


def test_the_callback_reduce_lr_on_plateau():
    """Nothing gets better than the first epoch by 1000, so each later one halves the rate."""
    problem = keras_models.problem(steps=4)
    callback = keras.callbacks.ReduceLROnPlateau("loss", factor=0.5, patience=1, min_delta=1000.0)
    optimizer = bridged(MAKERS["AdagradDecay"](0.5))
    actual, _ = KERAS_3.fit(problem, optimizer, [callback], epochs=4)
    rates = np.repeat(np.float32([0.5, 0.5, 0.25, 0.125]), 4)
    fourfold = problem._replace(gradients=problem.gradients * 4)
    running.assert_same(actual, session("AdagradDecay", rates, fourfold))
    assert optimizer.learning_rate.numpy() == 0.0625


THREE_RATES = np.float32([0.3] * 3 + [0.1] * 4 + [0.05] * 5)


def piecewise(home):
    return home.optimizers.schedules.PiecewiseConstantDecay([2, 6], [0.3, 0.1, 0.05])


@pytest.mark.parametrize("home", [keras, tf_keras], ids=["Keras 3", "tf_keras"])
@pytest.mark.parametrize("how", ["of v1", "to_keras", "assigned"])
@pytest.mark.parametrize("way", ["function", "eager"])
def test_schedules(way, how, home):
    """Those of the other Keras become this one's, where it has the same."""
    if how == "of v1":
        optimizer = bridged(v1.train.AdamOptimizer(piecewise(home)))
    elif how == "to_keras":
        optimizer = bridged(MAKERS["Adam"](1.0), learning_rate=piecewise(home))
    else:
        optimizer = bridged(MAKERS["Adam"](1.0))
        optimizer.learning_rate = piecewise(home)
    expected = session("Adam", THREE_RATES, config=running.config_of(way))
    running.assert_same(loop(optimizer, way), expected)
    with pytest.raises(TypeError, match="learning rate is not settable"):
        optimizer.learning_rate = 0.1


def test_a_schedule_of_keras_3_into_keras_2():
    optimizer = to_keras(MAKERS["Adam"](1.0), piecewise(keras), api="optimizer_v2")
    assert isinstance(optimizer.learning_rate, tf_keras.optimizers.schedules.LearningRateSchedule)
    running.assert_same(loop(optimizer, "function"), session("Adam", THREE_RATES))


@pytest.mark.parametrize("api, home", [("keras3", tf_keras), ("optimizer_v2", keras)])
def test_an_unknown_schedule_of_the_other_keras(api, home):
    class Mine(home.optimizers.schedules.LearningRateSchedule):
        def __call__(self, step):
            return 0.1

        def get_config(self):
            return {}

    with pytest.raises(TypeError, match="is a schedule of another Keras"):
        to_keras(MAKERS["Adam"](1.0), learning_rate=Mine(), api=api)


@pytest.mark.cells(
    source=["function", "read function", "variable"],
    where=["of v1", "to_keras", "assigned"],
    way=["function", "eager"],
)
def test_functions_and_variables_are_read_in_each_step(source, where, way):
    rate = tf.Variable(0.0, trainable=False)
    given = {"function": lambda: rate, "read function": rate.read_value, "variable": rate}[source]
    if where == "of v1":
        optimizer = bridged(MAKERS["Momentum"](given))
    elif where == "to_keras":
        optimizer = bridged(MAKERS["Momentum"](1.0), learning_rate=given)
    else:
        optimizer = bridged(MAKERS["Momentum"](1.0))
        optimizer.learning_rate = given
    actual = loop(optimizer, way, lambda _, number: rate.assign(RATES[number]))
    running.assert_same(actual, session("Momentum", config=running.config_of(way)))


@pytest.mark.parametrize("way", ["function", "eager"])
@pytest.mark.parametrize("rate", [2, np.float32(0.1), np.float64(0.1), tf.constant(0.1)], ids=str)
def test_learning_rates_that_are_no_float(rate, way):
    expected = np.full([PROBLEM.steps], rate, "f")
    expected = session("Adam", expected, config=running.config_of(way))
    running.assert_same(loop(bridged(MAKERS["Adam"](rate)), way), expected)
    optimizer = bridged(MAKERS["Adam"](1.0))
    optimizer.learning_rate = rate
    running.assert_same(loop(optimizer, way), expected)


@pytest.mark.parametrize(
    "rate",
    [lambda: 0.25, tf.Variable(0.25), tf.constant(0.25), lambda: tf.Variable(0.25)],
    ids=["function", "variable", "tensor", "function of a variable"],
)
def test_functions_are_saved_as_the_number_they_are(rate):
    optimizer = bridged(MAKERS["Adam"](rate))
    again = type(optimizer).from_config(optimizer.get_config())
    assert again.get_config()["learning_rate"] == optimizer.get_config()["learning_rate"] == 0.25
    assert again.learning_rate.numpy() == 0.25
    assert float(tf.convert_to_tensor(optimizer.learning_rate)) == 0.25


ALL_DECAYS = dict(
    DECAYS, **{"linear cosine": lambda step: v1.train.linear_cosine_decay(0.3, step, 9)}
)


@pytest.mark.parametrize("decay", sorted(ALL_DECAYS))
@pytest.mark.parametrize("way", ["function", "eager", "graph"])
def test_the_decays_of_v1_go_by_iterations(way, decay):
    def make(step):
        return v1.train.MomentumOptimizer(ALL_DECAYS[decay](step), 0.9)

    expected = running.session(PROBLEM, make, True, config=running.config_of(way))
    if way == "graph":
        actual = keras_models.graph(
            PROBLEM, lambda: bridged(make(v1.train.get_or_create_global_step()))
        )
    else:
        step = tf.Variable(0, dtype=tf.int64, trainable=False)
        actual = loop(bridged(make(step)), way)
        assert int(step.numpy()) == 0
    running.assert_same(actual, expected)


# Other hyperparameters.


@pytest.mark.parametrize("argument", sorted(SETTABLE))
def test_what_v1_reads_in_each_step_can_be_set(argument):
    make, first, second, _ = SETTABLE[argument]
    optimizer = bridged(make(first))
    assert getattr(optimizer, argument).numpy() == np.float32(first)
    assert optimizer.get_config()["optimizer"]["config"][argument] == first

    def between(_, number):
        if number == 6:
            setattr(optimizer, argument, second)

    running.assert_same(loop(optimizer, "function", between), with_change(argument))
    assert optimizer.get_config()["optimizer"]["config"][argument] == second


@pytest.mark.parametrize("argument", sorted(SETTABLE))
@pytest.mark.parametrize("way", ["function", "eager"])
def test_it_can_be_set_before_the_first_step(argument, way):
    make, first, second, _ = SETTABLE[argument]
    optimizer = bridged(make(first))
    setattr(optimizer, argument, second)
    expected = running.session(PROBLEM, lambda _: make(second), True, config=running.config_of(way))
    running.assert_same(loop(optimizer, way), expected)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), "0.5", True, None])
@pytest.mark.parametrize("name", ["learning_rate", "beta1"])
def test_what_is_no_number_is_refused(name, value):
    optimizer = bridged(v1.train.AdamOptimizer(0.1))
    before = getattr(optimizer, name).numpy()
    with pytest.raises((TypeError, ValueError), match="%s must be" % name):
        setattr(optimizer, name, value)
    assert getattr(optimizer, name).numpy() == before


@NOT_READ_AGAIN
def test_what_v1_does_not_read_again_cannot_be_set(name, argument, value):
    optimizer = bridged(name)
    with pytest.raises(AttributeError, match="does not read %s anew in each step" % argument):
        setattr(optimizer, argument, value)


@register_optimizer
class Constant(v1.train.Optimizer):
    """Has no learning rate."""

    def __init__(self):
        super().__init__(False, "Constant")

    def _resource_apply_dense(self, grad, handle):
        return handle.assign_sub(0.125 * grad, read_value=False)


def test_without_a_learning_rate():
    with pytest.raises(ValueError, match="lr_attr"):
        bridged(Constant())
    with pytest.raises(ValueError, match="learning_rate=0.1 with lr_attr=False"):
        bridged(Constant(), learning_rate=0.1, lr_attr=False)
    optimizer = bridged(Constant(), lr_attr=False)
    with pytest.raises(AttributeError, match="Constant has no learning rate"):
        optimizer.learning_rate = 0.1
    for one in (optimizer, type(optimizer).from_config(optimizer.get_config())):
        w = tf.Variable([1.0])
        one.apply_gradients([(tf.constant([8.0]), w)])
        assert w.numpy() == 0.0
    assert compare_with_session(Constant(), api="keras3", lr_attr=False)

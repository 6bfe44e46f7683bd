"""Tests changes of learning rates and other hyperparameters of optimizers made by `to_keras`.

The expected values come from the v1 optimizer in a Session. If a test sets the learning rate of the
bridged optimizer between steps, the same values are assigned to the v1 optimizer's learning rate.
"""

import itertools

import numpy as np
import pytest
import tensorflow as tf

import legacy_opt
from legacy_opt import versions
from legacy_opt.compat import compare_with_session, register_optimizer
from tests.keras_bridge.changing_rates import (
    DECAYING,
    DECAYS,
    MAKERS,
    NOT_READ_AGAIN,
    PROBLEM,
    RATES,
    SETTABLE,
    session,
    with_change,
)
from tests.support import running
from tests.support.keras import keras_models
from tests.support.keras.keras_apis import KERAS_3, OPTIMIZER_V2, of_each

v1 = tf.compat.v1
THREE_RATES = np.float32([0.3] * 3 + [0.1] * 4 + [0.05] * 5)


def loop(optimizer, way, between=None):
    """Trains, and asserts that a tf.function is not traced again after the first step."""
    actual, again = keras_models.loop(PROBLEM, optimizer, way, between)
    assert way == "eager" or again == 0
    return actual


def piecewise(home):
    """Returns a schedule without arithmetic. Its values are the same in every execution mode."""
    return home.keras.optimizers.schedules.PiecewiseConstantDecay([2, 6], [0.3, 0.1, 0.05])


def by_attribute(optimizer, rate):
    optimizer.learning_rate = rate


def by_short_attribute(optimizer, rate):
    optimizer.lr = rate


def by_set_value(optimizer, rate):
    OPTIMIZER_V2.keras.backend.set_value(optimizer.learning_rate, rate)


def by_assign(optimizer, rate):
    optimizer.learning_rate.assign(rate)


@pytest.mark.parametrize("way", ["function", "eager"])
@of_each(
    "name, change",
    optimizer_v2=itertools.product(
        ["AdagradDecay", "Adam", "Ftrl"],
        [by_attribute, by_short_attribute, by_set_value, by_assign],
    ),
    keras3=itertools.product(sorted(MAKERS), [by_attribute, by_assign]),
)
def test_the_learning_rate_can_be_set_between_steps(api, name, change, way):
    optimizer = api.bridged(MAKERS[name](float(RATES[0])))

    def between(variables, number):
        if number:
            change(optimizer, float(RATES[number]))

    running.assert_same(loop(optimizer, way, between), session(name, config=running.config_of(way)))
    assert api.number(optimizer.learning_rate) == RATES[-1]
    assert np.float32(optimizer.get_config()["learning_rate"]) == RATES[-1]
    if api is OPTIMIZER_V2:
        assert api.number(optimizer.lr) == RATES[-1]


@pytest.mark.parametrize("name", sorted(MAKERS))
def test_the_learning_rate_can_be_set_in_graph_mode(name):
    def between(sess, optimizer, number):
        sess.run(v1.get_default_graph().get_collection("set"), {"rate:0": RATES[number]})

    def build(optimizer, gradients, variables):
        op = optimizer.apply_gradients(keras_models.pairs(gradients, variables))
        rate = v1.placeholder("float32", [], name="rate")
        v1.add_to_collection("set", optimizer.learning_rate.assign(rate))
        return op

    make = lambda: OPTIMIZER_V2.bridged(MAKERS[name](1.0))  # noqa: E731
    actual = keras_models.graph(PROBLEM, make, build, between)
    running.assert_same(actual, session(name))


@pytest.mark.parametrize("name", ["AdagradDecay", "Adam"])
def test_the_callback_learning_rate_scheduler(api, name):
    problem = keras_models.problem(steps=4)
    rates = [0.3, 0.1, 0.05]
    callback = api.keras.callbacks.LearningRateScheduler(lambda epoch: rates[epoch])
    optimizer = api.bridged(MAKERS[name](1.0))
    actual, model = api.fit(problem, optimizer, [callback], epochs=3)
    thrice = problem._replace(gradients=problem.gradients * 3)
    running.assert_same(actual, session(name, np.repeat(np.float32(rates), 4), thrice))
    # The model is traced while it is built and in the first two epochs, but not in the third.
    assert model.get_layer("fed").runs <= 5
    logged = model.history.history["lr" if api is OPTIMIZER_V2 else "learning_rate"]
    np.testing.assert_allclose(logged, rates, rtol=1e-6)


@of_each("name", optimizer_v2=["Adam"], keras3=["AdagradDecay"])
def test_the_callback_reduce_lr_on_plateau(api, name):
    """The callback halves the rate after epochs 2, 3 and 4, which improve the loss too little."""
    problem = keras_models.problem(steps=4)
    plateau = api.keras.callbacks.ReduceLROnPlateau
    callback = plateau("loss", factor=0.5, patience=1, min_delta=1000.0)
    optimizer = api.bridged(MAKERS[name](0.5))
    actual, _ = api.fit(problem, optimizer, [callback], epochs=4)
    rates = np.repeat(np.float32([0.5, 0.5, 0.25, 0.125]), 4)
    fourfold = problem._replace(gradients=problem.gradients * 4)
    running.assert_same(actual, session(name, rates, fourfold))
    assert api.number(optimizer.learning_rate) == 0.0625


# Schedules, functions and variables.


@pytest.mark.parametrize("way", ["function", "eager", "graph"])
@pytest.mark.parametrize("name", ["AdagradDA", "Adam", "Ftrl"])
def test_schedules_of_keras_2(name, way):
    schedule = piecewise(OPTIMIZER_V2)
    make = lambda: OPTIMIZER_V2.bridged(MAKERS[name](1.0), learning_rate=schedule)  # noqa: E731
    if way == "graph":
        actual = keras_models.graph(PROBLEM, make)
    else:
        optimizer = make()
        actual = loop(optimizer, way)
        assert optimizer.learning_rate is schedule
    running.assert_same(actual, session(name, THREE_RATES, config=running.config_of(way)))


def test_a_schedule_can_replace_a_number_before_training():
    optimizer = OPTIMIZER_V2.bridged(MAKERS["Adam"](1.0))
    optimizer.learning_rate = piecewise(OPTIMIZER_V2)
    running.assert_same(loop(optimizer, "function"), session("Adam", THREE_RATES))


@pytest.mark.keras3
@pytest.mark.parametrize("home", [KERAS_3, OPTIMIZER_V2], ids=["Keras 3", "tf_keras"])
@pytest.mark.parametrize("how", ["of v1", "to_keras", "assigned"])
@pytest.mark.parametrize("way", ["function", "eager"])
def test_schedules_given_to_keras_3(way, how, home):
    """A schedule of tf_keras becomes the Keras 3 schedule of the same name, if there is one."""
    optimizer = with_learning_rate(KERAS_3, "Adam", piecewise(home), how)
    expected = session("Adam", THREE_RATES, config=running.config_of(way))
    running.assert_same(loop(optimizer, way), expected)
    with pytest.raises(TypeError, match="learning rate cannot be set"):
        optimizer.learning_rate = 0.1


@pytest.mark.keras3
def test_a_schedule_of_keras_3_given_to_keras_2():
    optimizer = OPTIMIZER_V2.bridged(MAKERS["Adam"](1.0), learning_rate=piecewise(KERAS_3))
    schedules = OPTIMIZER_V2.keras.optimizers.schedules
    assert isinstance(optimizer.learning_rate, schedules.LearningRateSchedule)
    running.assert_same(loop(optimizer, "function"), session("Adam", THREE_RATES))


@pytest.mark.keras3
@pytest.mark.parametrize(
    "target, home", [(KERAS_3, OPTIMIZER_V2), (OPTIMIZER_V2, KERAS_3)], ids=["keras3", "keras2"]
)
def test_an_unknown_schedule_of_the_other_keras(target, home):
    class Mine(home.keras.optimizers.schedules.LearningRateSchedule):
        def __call__(self, step):
            return 0.1

        def get_config(self):
            return {}

    with pytest.raises(TypeError, match="belongs to a different Keras package"):
        target.bridged(MAKERS["Adam"](1.0), learning_rate=Mine())


def with_learning_rate(api, name, rate, how):
    """Returns an optimizer whose learning rate is set in one of three ways (`how`)."""
    if how == "of v1":
        return api.bridged(MAKERS[name](rate))
    if how == "to_keras":
        return api.bridged(MAKERS[name](1.0), learning_rate=rate)
    optimizer = api.bridged(MAKERS[name](1.0))
    optimizer.learning_rate = rate
    return optimizer


@pytest.mark.parametrize("way", ["function", "eager"])
@of_each(
    "name, source, how",
    optimizer_v2=[
        ("Adam", "read function", "of v1"),
        ("Adam", "read function", "to_keras"),
        ("Adam", "variable", "of v1"),
    ],
    keras3=itertools.product(
        ["Momentum"],
        ["function", "read function", "variable"],
        ["of v1", "to_keras", "assigned"],
    ),
)
def test_functions_and_variables_are_read_in_each_step(api, name, source, how, way):
    rate = tf.Variable(0.0, trainable=False)
    what = {"function": lambda: rate, "read function": rate.read_value, "variable": rate}[source]
    actual = loop(
        with_learning_rate(api, name, what, how), way, lambda _, number: rate.assign(RATES[number])
    )
    running.assert_same(actual, session(name, config=running.config_of(way)))


@pytest.mark.keras3
@pytest.mark.parametrize("way", ["function", "eager"])
@pytest.mark.parametrize("rate", [2, np.float32(0.1), np.float64(0.1), tf.constant(0.1)], ids=str)
def test_learning_rates_of_other_number_types(rate, way):
    expected = np.full([PROBLEM.steps], rate, "f")
    expected = session("Adam", expected, config=running.config_of(way))
    for how in "of v1", "assigned":
        running.assert_same(loop(with_learning_rate(KERAS_3, "Adam", rate, how), way), expected)


@pytest.mark.keras3
@pytest.mark.parametrize("kind", ["function", "variable", "tensor", "function of a variable"])
def test_callable_learning_rates_are_saved_as_their_current_value(kind):
    rate = {
        "function": lambda: 0.25,
        "variable": tf.Variable(0.25),
        "tensor": tf.constant(0.25),
        "function of a variable": lambda: tf.Variable(0.25),
    }[kind]
    optimizer = KERAS_3.bridged(MAKERS["Adam"](rate))
    again = type(optimizer).from_config(optimizer.get_config())
    assert again.get_config()["learning_rate"] == optimizer.get_config()["learning_rate"] == 0.25
    assert again.learning_rate.numpy() == 0.25
    assert float(tf.convert_to_tensor(optimizer.learning_rate)) == 0.25


def test_keras_inverse_time_decay():
    """Keras 2's `decay=` divides the learning rate by 1 + decay * iterations."""
    optimizer = OPTIMIZER_V2.bridged(MAKERS["Adam"](0.3), decay=0.25)
    rates = np.float32(0.3) / (np.float32(1.0) + np.float32(0.25) * np.arange(12, dtype="f"))
    running.assert_same(loop(optimizer, "function"), session("Adam", rates))


def bridged_in_graph(api, make):
    step = v1.get_variable(
        "global_step", shape=[], dtype=tf.int64, trainable=False, use_resource=True,
        initializer=v1.zeros_initializer(),
    )  # fmt: skip
    return api.bridged(make(step), global_step=step)


# A v1 decay is a tensor in a graph, and a function in eager execution.
DECAYED = {
    f"learning rate, {name}": lambda step, decay=decay: v1.train.MomentumOptimizer(decay(step), 0.9)
    for name, decay in DECAYS.items()
}
for name, maker in DECAYING.items():
    DECAYED[name] = lambda step, maker=maker: maker(v1.train.polynomial_decay(0.9, step, 8, 0.1))


@pytest.mark.in_turn(name=sorted(DECAYED), way=["function", "eager", "graph"])
def test_v1_decays_depend_on_iterations(api, way, name):
    make = DECAYED[name]
    expected = running.session(PROBLEM, make, True, config=running.config_of(way))
    if way == "graph":
        actual = keras_models.graph(PROBLEM, lambda: bridged_in_graph(api, make))
    else:
        step = tf.Variable(0, dtype=tf.int64, trainable=False)
        actual = loop(api.bridged(make(step)), way)
        assert int(step.numpy()) == 0
    running.assert_same(actual, expected)


# Other hyperparameters.


def test_a_hyperparameter_that_reads_a_step_warns(api):
    mine = tf.Variable(0, dtype=tf.int64, name="mine")
    momentum = lambda: 0.1 * tf.cast(mine, tf.float32)  # noqa: E731
    with pytest.warns(
        legacy_opt.GlobalStepWarning, match="_momentum is a function that may read the"
    ):
        api.bridged(v1.train.MomentumOptimizer(0.1, momentum))


def test_a_function_cannot_be_replaced_by_a_number(api):
    optimizer = api.bridged(v1.train.MomentumOptimizer(0.1, lambda: 0.9))
    with pytest.raises(AttributeError, match="momentum was given as a function"):
        optimizer.momentum = 0.5


@pytest.mark.parametrize("argument", sorted(SETTABLE))
def test_what_v1_reads_in_each_step_can_be_set(api, argument):
    make, first, second, _ = SETTABLE[argument]
    optimizer = api.bridged(make(first))
    assert np.float32(api.number(getattr(optimizer, argument))) == np.float32(first)
    assert optimizer.get_config()["optimizer"]["config"][argument] == first

    def between(_, number):
        if number == 6:
            setattr(optimizer, argument, second)

    if api is OPTIMIZER_V2 and versions.regroups_constant_factors():
        with pytest.raises(RuntimeError, match=rf"{argument} can no longer be set to 0\.5"):
            loop(optimizer, "function", between)
        return
    running.assert_same(loop(optimizer, "function", between), with_change(argument))
    assert optimizer.get_config()["optimizer"]["config"][argument] == second


@pytest.mark.parametrize("argument", sorted(SETTABLE))
@pytest.mark.parametrize("way", ["function", "eager"])
def test_hyperparameters_can_be_set_before_the_first_step_on_every_lane(api, argument, way):
    make, first, second, _ = SETTABLE[argument]
    optimizer = api.bridged(make(first))
    setattr(optimizer, argument, second)
    expected = running.session(PROBLEM, lambda _: make(second), True, config=running.config_of(way))
    running.assert_same(loop(optimizer, way), expected)


@pytest.mark.parametrize("argument", sorted(SETTABLE))
def test_hyperparameters_cannot_be_set_after_a_graph_is_built(argument):
    make, _, second, _ = SETTABLE[argument]

    def between(sess, optimizer, number):
        with pytest.raises(RuntimeError, match=rf"{argument} can no longer be set to 0\.5"):
            setattr(optimizer, argument, second)

    one_step = keras_models.problem(steps=1)
    keras_models.graph(one_step, lambda: OPTIMIZER_V2.bridged(make(0.9)), between=between)


@NOT_READ_AGAIN
def test_arguments_that_v1_reads_once_cannot_be_set(api, name, argument, value):
    optimizer = api.bridged(name)
    with pytest.raises(AttributeError, match=f"does not read {argument} in each step"):
        setattr(optimizer, argument, value)


@pytest.mark.keras3
@pytest.mark.parametrize("value", [float("nan"), float("inf"), "0.5", True, None])
@pytest.mark.parametrize("name", ["learning_rate", "beta1"])
def test_values_that_are_no_finite_numbers_are_refused(name, value):
    optimizer = KERAS_3.bridged(v1.train.AdamOptimizer(0.1))
    before = getattr(optimizer, name).numpy()
    with pytest.raises((TypeError, ValueError), match=f"{name} must be"):
        setattr(optimizer, name, value)
    assert getattr(optimizer, name).numpy() == before


@register_optimizer
class Constant(v1.train.Optimizer):
    """An optimizer without a learning rate."""

    def __init__(self):
        super().__init__(False, "Constant")

    def _resource_apply_dense(self, grad, handle):
        return handle.assign_sub(0.125 * grad, read_value=False)


def test_without_a_learning_rate(api):
    with pytest.raises(ValueError, match="lr_attr"):
        api.bridged(Constant())
    with pytest.raises(ValueError, match="learning_rate=0.1 with lr_attr=False"):
        api.bridged(Constant(), learning_rate=0.1, lr_attr=False)
    optimizer = api.bridged(Constant(), lr_attr=False)
    if api is KERAS_3:
        with pytest.raises(AttributeError, match="Constant has no learning rate"):
            optimizer.learning_rate = 0.1
    for one in (optimizer, type(optimizer).from_config(optimizer.get_config())):
        w = tf.Variable([1.0])
        one.apply_gradients([(tf.constant([8.0]), w)])
        assert w.numpy() == 0.0
    assert compare_with_session(Constant(), api=api.name, lr_attr=False)

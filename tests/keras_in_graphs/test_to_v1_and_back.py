"""Tests the round trips to_v1(to_keras(x)) and to_keras(to_v1(x)).

A round trip returns an optimizer with the class and the configuration of x. If to_keras was given
options that only Keras has, to_v1 returns a v1 optimizer that calls the Keras optimizer.
"""

import pytest
import tensorflow as tf

from legacy_opt import AdagradDecayOptimizer
from legacy_opt.compat import to_keras, to_v1
from tests.support import running
from tests.support.keras import keras_models
from tests.support.keras.keras_apis import KERAS_3, OPTIMIZER_V2, of_each

from .to_v1_runs import (
    CASES,
    PROBLEM,
    assert_same_steps,
    each_case,
    in_function,
    in_session,
    passed,
)

v1 = tf.compat.v1


@pytest.mark.parametrize("name", sorted(keras_models.V1_OPTIMIZERS))
def test_to_v1_of_to_keras_gives_back_the_v1_optimizer(api, name):
    problem = keras_models.problem()
    expected = running.session(problem, lambda step: keras_models.make(name, step), True)

    def make(step):
        original = keras_models.make(name, step)
        back = to_v1(api.bridged(original))
        assert type(back) is type(original) and back.get_name() == original.get_name()
        return back

    running.assert_same(running.session(problem, make, True), expected)


def test_hyperparameters_that_were_set_in_keras_are_kept(api):
    keras = api.bridged(v1.train.MomentumOptimizer(0.1, 0.9))
    keras.learning_rate, keras.momentum = 0.05, 0.8
    want = running.session(PROBLEM, lambda step: v1.train.MomentumOptimizer(0.05, 0.8), True)
    running.assert_same(running.session(PROBLEM, lambda step: to_v1(keras), True), want)


def decaying(api):
    return api.keras.optimizers.schedules.ExponentialDecay(0.3, 3, 0.5)


MORE = {
    "clipnorm": lambda api: {"clipnorm": 0.5},
    "schedule": lambda api: {"learning_rate": decaying(api)},
    "weight_decay": lambda api: {"weight_decay": 0.1},
}


@of_each(
    "more",
    optimizer_v2=["clipnorm", "schedule"],
    keras3=["clipnorm", "schedule", "weight_decay"],
)
def test_a_bridged_optimizer_with_options_of_keras_is_wrapped(api, more):
    cls = v1.train.AdamOptimizer if api is KERAS_3 else v1.train.MomentumOptimizer

    def make():
        return api.bridged(cls(0.1, 0.9), **MORE[more](api))

    assert not isinstance(to_v1(make()), cls)
    assert_same_steps(in_session(PROBLEM, lambda: passed(api, make)), in_function(PROBLEM, make()))


def test_a_bridged_optimizer_with_a_schedule_of_keras(api):
    def make():
        optimizer = AdagradDecayOptimizer(0.3, None, 0.25, 3, 0.7)
        return api.bridged(optimizer, learning_rate=decaying(api))

    assert_same_steps(in_session(PROBLEM, lambda: passed(api, make)), in_function(PROBLEM, make()))


def test_a_global_step_would_count_twice(api):
    with tf.Graph().as_default():
        w = v1.get_variable("w", initializer=[1.0], use_resource=True)
        step = v1.get_variable("step", initializer=0, trainable=False, use_resource=True)
        rate = v1.train.exponential_decay(0.1, step, 3, 0.5)
        optimizer = v1.train.GradientDescentOptimizer(rate)
        with pytest.raises(ValueError, match="integer variable step"):
            to_v1(lambda: api.bridged(optimizer)).minimize(w)
        with pytest.raises(ValueError, match="was made with global_step"):
            to_v1(lambda: api.bridged(optimizer, global_step=step)).minimize(w)


@each_case("Adam schedule", "LossScaleOptimizer", "RMSprop centered", "SGD nesterov")
def test_to_keras_of_to_v1_has_the_same_configuration(api, name):
    keras = CASES[api.name][name]()
    back = to_keras(to_v1(keras), api=api.name)
    assert type(back) is type(keras) and back is not keras
    assert back.get_config() == keras.get_config()
    other = OPTIMIZER_V2 if api is KERAS_3 else KERAS_3
    options = {"learning_rate": 0.1}, {"fused": False}, {"api": other.name}
    for arguments in [dict({"api": api.name}, **each) for each in options]:
        with pytest.raises(ValueError, match="was made by to_v1"):
            to_keras(to_v1(keras), **arguments)

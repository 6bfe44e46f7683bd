"""to_v1 after to_keras, and to_keras after to_v1, are the optimizer that there was."""

import pytest
import tensorflow as tf

from legacy_opt import AdagradDecayOptimizer, versions
from legacy_opt.compat import to_keras, to_v1
from tests.support import running
from tests.support.keras import keras_models
from tests.support.keras.to_v1_runs import (
    PROBLEM,
    assert_same_steps,
    in_function,
    in_session,
    keras_2_cases,
)

v1 = tf.compat.v1
optimizers = versions.keras_2().optimizers
CASES = keras_2_cases(optimizers)


@pytest.mark.parametrize("name", sorted(keras_models.V1_OPTIMIZERS))
def test_to_v1_of_to_keras_is_the_optimizer_again(name):
    expected = running.session(
        keras_models.problem(), lambda step: keras_models.make(name, step), True
    )

    def make(step):
        original = keras_models.make(name, step)
        back = to_v1(to_keras(original, api="optimizer_v2"))
        assert type(back) is type(original) and back.get_name() == original.get_name()
        return back

    running.assert_same(running.session(keras_models.problem(), make, True), expected)


def test_hyperparameters_that_were_set_come_along():
    keras = to_keras(v1.train.MomentumOptimizer(0.1, 0.9), api="optimizer_v2")
    keras.learning_rate, keras.momentum = 0.05, 0.8
    want = running.session(PROBLEM, lambda step: v1.train.MomentumOptimizer(0.05, 0.8), True)
    running.assert_same(running.session(PROBLEM, lambda step: to_v1(keras), True), want)


def test_a_bridged_optimizer_that_does_more_is_wrapped():
    make = lambda: to_keras(  # noqa: E731
        v1.train.MomentumOptimizer(0.1, 0.9), api="optimizer_v2", clipnorm=0.5
    )
    assert not isinstance(to_v1(make()), v1.train.MomentumOptimizer)
    assert_same_steps(in_session(PROBLEM, make), in_function(PROBLEM, make()))


def test_a_bridged_optimizer_with_a_schedule_of_keras():
    make = lambda: to_keras(  # noqa: E731
        AdagradDecayOptimizer(0.3, None, 0.25, 3, 0.7),
        optimizers.schedules.ExponentialDecay(0.3, 3, 0.5),
        api="optimizer_v2",
    )
    assert_same_steps(in_session(PROBLEM, make), in_function(PROBLEM, make()))


def test_a_decay_by_the_global_step_would_count_twice():
    def factory():
        rate = v1.train.exponential_decay(0.1, v1.train.get_global_step(), 3, 0.5)
        return to_keras(v1.train.GradientDescentOptimizer(rate), api="optimizer_v2")

    with tf.Graph().as_default():
        v1.train.get_or_create_global_step()
        with pytest.raises(ValueError, match="would advance once more"):
            to_v1(factory).minimize(v1.get_variable("w", initializer=[1.0], use_resource=True))


@pytest.mark.parametrize("name", ["Adam schedule", "SGD nesterov", "RMSprop centered"])
def test_to_keras_of_to_v1_has_the_same_configuration(name):
    keras = CASES[name]()
    back = to_keras(to_v1(keras), api="optimizer_v2")
    assert type(back) is type(keras) and back is not keras
    assert back.get_config() == keras.get_config()
    with pytest.raises(ValueError, match="was made by to_v1"):
        to_keras(to_v1(keras), api="optimizer_v2", learning_rate=0.1)

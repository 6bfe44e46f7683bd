"""Tests of hyperparameters that are very large, very small or negative."""

import numpy as np
import pytest
import tensorflow as tf

import legacy_opt
from legacy_opt.core import argument_checks


def trained(optimizer, dtype):
    """Returns a variable's value after one training step from [1, 1] with the gradient [2, -3]."""
    w = tf.Variable(np.ones([2]), dtype=dtype)
    optimizer.apply_gradients([(tf.constant([2.0, -3.0], dtype), w)])
    return w.numpy()


@pytest.mark.parametrize("number", [4e38, -1e300, 10**39, pytest.param(10**400, id="googols")])
def test_numbers_beyond_float32_are_refused(number):
    with pytest.raises(ValueError, match="learning_rate must"):
        legacy_opt.LazyAdamOptimizer(learning_rate=number)


def test_tensorflow_refuses_numbers_beyond_float32_too():
    optimizer = tf.compat.v1.train.GradientDescentOptimizer(1e300)
    with pytest.raises(ValueError, match="out of range"):
        trained(optimizer, tf.float64)


@pytest.mark.parametrize("number", [1e-45, 1e-300])
def test_numbers_that_are_zero_in_float32_are_not_positive(number):
    step = tf.Variable(0, dtype=tf.int64)
    with pytest.raises(ValueError, match="initial_accumulator_value must be positive in float32"):
        legacy_opt.AdagradDecayOptimizer(0.1, step, initial_accumulator_value=number)
    with pytest.raises(ValueError, match="clipping_threshold must be positive in float32"):
        legacy_opt.AdafactorOptimizer(clipping_threshold=number)
    legacy_opt.LazyAdamOptimizer(learning_rate=number, epsilon=number)


@pytest.mark.parametrize("number", [3e38, -3e38, 1e-50, 2**63 - 1])
def test_other_numbers_are_not_changed(number):
    assert argument_checks.hyperparameter("x", number) is number


def test_integers_beyond_int64_are_floats():
    assert type(argument_checks.hyperparameter("x", 2**63)) is float
    for make in legacy_opt.LazyAdamOptimizer, legacy_opt.AddSignOptimizer:
        for_int, for_float = (trained(make(number), tf.float32) for number in (10**30, 1e30))
        np.testing.assert_array_equal(for_int, for_float)


@pytest.mark.parametrize(
    "make",
    [
        lambda: legacy_opt.LazyAdamOptimizer(learning_rate=-0.5),
        lambda: legacy_opt.LazyAdamOptimizer(learning_rate=np.float32(-0.5)),
        lambda: legacy_opt.AdamWOptimizer(0.01, learning_rate=-0.5),
        lambda: legacy_opt.ClipByNormOptimizer(legacy_opt.LazyAdamOptimizer(-0.5), 1.0),
        lambda: argument_checks.hyperparameter("lr", -0.5),
    ],
)
def test_a_negative_learning_rate_gives_a_warning(make):
    with pytest.warns(UserWarning, match="=-0.5 is negative.*uphill.*minimize its neg") as caught:
        make()
    assert [warning.filename for warning in caught] == [__file__]


def test_a_callable_learning_rate_that_becomes_negative_gives_a_warning():
    optimizer = legacy_opt.LazyAdamOptimizer(learning_rate=lambda: -0.5)
    with pytest.warns(UserWarning, match="learning_rate=-0.5 is negative"):
        trained(optimizer, tf.float32)


@pytest.mark.parametrize("name, value", [("learning_rate", 0.0), ("lr", -0.0), ("beta1", -0.5)])
def test_other_numbers_give_no_warning(name, value):
    argument_checks.hyperparameter(name, value)  # pytest turns warnings into errors


@pytest.mark.filterwarnings("ignore::legacy_opt.GlobalStepWarning")
@pytest.mark.parametrize("dtype", [tf.int32, tf.int64])
def test_a_decay_period_may_exceed_the_step_dtype(dtype):
    values = []
    for period in 10**6, 2**31, 2**63:
        step = tf.Variable(tf.constant(5, dtype))
        optimizer = legacy_opt.AdagradDecayOptimizer(0.1, step, accumulator_decay_step=period)
        values.append(trained(optimizer, tf.float32))
    np.testing.assert_array_equal(values[1:], values[:1] * 2)


@pytest.mark.parametrize("dtype", [tf.float16, tf.float32, tf.float64])
def test_a_clipping_limit_beyond_float32_clips_nothing(dtype):
    sgd = tf.compat.v1.train.GradientDescentOptimizer(1.0)
    clips = legacy_opt.ClipByValueOptimizer(sgd, -1e300, 1.0)
    np.testing.assert_array_equal(trained(clips, dtype), [0.0, 4.0])

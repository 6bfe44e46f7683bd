"""Tests what RectifiedAdam, AdaBelief, NovoGrad and Yogi share: the counter and its powers."""

import fractions

import numpy as np
import pytest
import tensorflow as tf

import legacy_opt
from tests.support import running
from tests.support.running import REF_AND_RESOURCE

v1 = tf.compat.v1
CLASSES = {
    "AdaBelief": legacy_opt.AdaBeliefOptimizer,
    "NovoGrad": legacy_opt.NovoGradOptimizer,
    "RectifiedAdam": legacy_opt.RectifiedAdamOptimizer,
    "Yogi": legacy_opt.YogiOptimizer,
}
EACH_CLASS = pytest.mark.parametrize("name", sorted(CLASSES))


@EACH_CLASS
@REF_AND_RESOURCE
def test_step_counts_updates_in_float64(name, use_resource):
    with tf.Graph().as_default():
        w = v1.get_variable("w", initializer=[1.0, 2.0], use_resource=use_resource)
        optimizer = CLASSES[name]()
        train_op = optimizer.apply_gradients([(tf.constant([1.0, 2.0]), w)])
        (step,) = (each for each in v1.global_variables() if each.op.name == "step")
        assert step.dtype.base_dtype == tf.float64 and step not in v1.trainable_variables()
        with running.started() as session:
            assert session.run(step) == 0
            for _ in range(3):
                session.run(train_op)
            assert session.run(step) == 3
            step.load(2.0**24, session)  # where a count in float32 would stand still
            session.run(train_op)
            assert session.run(step) == 2**24 + 1
            assert np.isfinite(session.run(w)).all()


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("steps", [1, 2, 7, 300])
def test_powers_are_those_of_fractions(dtype, steps):
    class PowersOptimizer(legacy_opt.RectifiedAdamOptimizer):
        """Subtracts the power of beta_2."""

        def formula(self, grad, value, slots, hyper):
            return hyper.beta_2_power * grad, {}

    w = tf.Variable(tf.zeros([1], dtype))
    optimizer = PowersOptimizer(beta_2=0.875)
    optimizer._create_slots([w])
    optimizer._non_slot("step").assign(steps - 1)
    optimizer.apply_gradients([(tf.ones([1], dtype), w)])
    expected = np.dtype(dtype).type(float(fractions.Fraction(7, 8) ** steps))
    np.testing.assert_array_equal(-w.numpy(), [expected])


def test_half_precision_trains_with_the_defaults():
    """Epsilon is 0 in float16; the update is computed in float32."""
    for name, cls in sorted(CLASSES.items()):
        w = tf.Variable(tf.constant([1.0, 2.0], tf.float16))
        optimizer = cls(0.1)
        for _ in range(8):
            optimizer.apply_gradients([(tf.constant([0.5, 0.0], tf.float16), w)])
        one, two = w.numpy()
        assert np.isfinite(one) and one < 0.9 and two == 2, name


@pytest.mark.parametrize("cls", [CLASSES["RectifiedAdam"], CLASSES["AdaBelief"]])
@pytest.mark.parametrize(
    "arguments, message",
    [
        ({"total_steps": -1}, "total_steps must not be negative"),
        ({"beta_2": 1.0}, "beta_2"),
        ({"weight_decay": -0.1}, "weight_decay"),
    ],
)
def test_wrong_arguments(cls, arguments, message):
    with pytest.raises((TypeError, ValueError), match=message):
        cls(**arguments)


def test_a_low_threshold_means_4():
    """Between 2 and 4, the rectification would be the root of a negative number."""
    values = []
    for threshold in (1.0, 4.0):
        w = tf.Variable([1.0, 2.0])
        optimizer = CLASSES["RectifiedAdam"](0.1, beta_2=0.75, sma_threshold=threshold)
        for _ in range(8):
            optimizer.apply_gradients([(tf.constant([0.5, 1.0]), w)])
        values.append(w.numpy())
    np.testing.assert_array_equal(*values)
    assert np.isfinite(values).all()


@pytest.mark.parametrize("cls", [CLASSES["RectifiedAdam"], CLASSES["AdaBelief"]])
def test_learning_rate_rises_and_falls(cls):
    # 10 steps, the first 4 of which rise: t/4; then 1 - (t - 4)/6 * (1 - 0.1).
    # The betas of 0 make the update of a gradient of 1 equal to 1 while n < sma_threshold = 4.
    w = tf.Variable([0.0])
    optimizer = cls(
        1.0, 0.0, 0.5, sma_threshold=4.0, total_steps=10, warmup_proportion=0.4, min_lr=0.1
    )
    values = [0.0]
    for _ in range(12):
        optimizer.apply_gradients([(tf.constant([1.0]), w)])
        values.append(float(w.numpy()[0]))
    rates = -np.diff(values)
    expected = [0.25, 0.5, 0.75, 1.0, 0.85, 0.7, 0.55, 0.4, 0.25, 0.1, 0.1, 0.1]
    np.testing.assert_allclose(rates, expected, rtol=1e-5)

"""Tests optimizers and decay functions that read the global step, at very large global steps."""

import math

import numpy as np
import pytest
import tensorflow as tf

import legacy_opt
from tests.support.cases import CASES

v1 = tf.compat.v1
LAST = np.iinfo(np.int32).max
VALUE = [[1.0, 2.0], [3.0, 4.0]]
GRADIENT = [[0.5, -0.25], [0.125, 0.25]]


def reads_the_global_step(name):
    with tf.Graph().as_default():
        optimizer = CASES[name].make(v1.train.get_or_create_global_step())
        return getattr(optimizer, "uses_global_step", False)


BY_STEP = [name for name in CASES if reads_the_global_step(name)]


def trained_from(step, make, dtype="float32", steps=2):
    """Trains from the global step `step` (a NumPy integer).

    Returns:
      A list with the value of the trained variable after each step.
    """
    with tf.Graph().as_default(), v1.Session() as session:
        kept = [v1.GraphKeys.GLOBAL_STEP, v1.GraphKeys.GLOBAL_VARIABLES]
        global_step = v1.get_variable(
            "global_step", initializer=step, trainable=False, collections=kept
        )
        variable = v1.get_variable("w", initializer=np.array(VALUE, dtype))
        pairs = [(tf.constant(GRADIENT, dtype), variable)]
        train_op = make(global_step).apply_gradients(pairs, global_step=global_step)
        session.run(v1.global_variables_initializer())
        return [(session.run(train_op), session.run(variable))[1] for _ in range(steps)]


def test_optimizers_that_read_the_step_have_a_case():
    classes = {CASES[name].optimizer.__name__.replace("Optimizer", "") for name in BY_STEP}
    assert classes >= {"Adafactor", "AdagradDecay", "AdagradDecayV2", "AdamGS", "LazyAdamGS"}
    assert classes >= {"AddSign", "LAMB", "PowerSign", "Shampoo"}


# Shampoo is excluded because, like tf.contrib's Shampoo, it rounds the global step to float32.
@pytest.mark.parametrize("name", [name for name in BY_STEP if "Shampoo" not in name])
@pytest.mark.parametrize("step", [2**24 + 1, 2**31, 2**53])
def test_a_step_means_what_its_formula_says(name, step):
    case = CASES[name]
    oracle = case.oracle(np.array(VALUE), "w")
    found = trained_from(np.int64(step), case.make, "float64")
    for number, actual in enumerate(found):
        oracle.apply(np.array(GRADIENT), step + number)
        # The values are not exact, because hyperparameters are rounded to float32.
        np.testing.assert_allclose(actual, oracle.value, rtol=1e-6)


def is_refused(step, make):
    with pytest.raises(tf.errors.InvalidArgumentError, match="an int32 global_step must be from 0"):
        trained_from(step, make, steps=1)


@pytest.mark.parametrize("name", BY_STEP)
def test_an_int32_step_that_cannot_advance_is_an_error(name):
    is_refused(np.int32(LAST), CASES[name].make)
    assert np.all(np.isfinite(trained_from(np.int32(LAST - 1), CASES[name].make, steps=1)))


@pytest.mark.parametrize("step", [-1, -LAST - 1])
def test_a_negative_int32_step_is_an_error(step):
    is_refused(np.int32(step), legacy_opt.AdamGSOptimizer)


@pytest.mark.parametrize("traced", [False, True])
def test_a_negative_int32_step_is_an_error_without_a_session_too(traced):
    step, variable = tf.Variable(LAST, dtype=tf.int32), tf.Variable(VALUE)
    optimizer = legacy_opt.AdamGSOptimizer(step)

    def train():
        optimizer.apply_gradients([(tf.constant(GRADIENT), variable)], global_step=step)

    with pytest.raises(tf.errors.InvalidArgumentError, match="an int32 global_step must be"):
        (tf.function(train, autograph=False) if traced else train)()
    assert np.array_equal(variable.numpy(), VALUE)


# Adafactor's default decay rate is 1 - (step + 1)**-0.8. From global step 2.6e9 on, this formula
# gives 1 in float32. With a rate of 1, the accumulators would ignore all gradients. Therefore
# AdafactorOptimizer keeps the rate below 1.


@pytest.mark.parametrize("factored", [True, False])
def test_adafactor_starts_at_any_step(factored):
    def make(_):
        return legacy_opt.AdafactorOptimizer(learning_rate=0.1, factored=factored, epsilon1=0.0)

    early, late = (trained_from(np.int64(step), make) for step in (2**31, 2**53))
    # The accumulators start at 0, so in the first steps the decay rate only scales the update.
    # Clipping the update to an RMS (root mean square) of 1 removes this scale.
    np.testing.assert_allclose(late, early, rtol=1e-6)


@pytest.mark.parametrize("exponent, step", [(1.0, 2**25), (0.8, 2**32)])
def test_an_increasing_decay_rate_stays_below_1(exponent, step):
    rate = legacy_opt.adafactor_decay_rate_pow(exponent)
    assert rate(tf.constant(step, tf.int64)).numpy() == 1 - 2.0**-24
    before = tf.constant(step // 4, tf.int64)
    assert rate(before).numpy() == np.float32(1) - np.float32(float(step // 4 + 1) ** -exponent)


# The sign decays of AddSign and PowerSign.


DECAYS = {
    legacy_opt.get_linear_decay_fn: lambda part: 1 - part,
    legacy_opt.get_cosine_decay_fn: lambda part: 0.5 * (1 + math.cos(math.pi * part)),
    legacy_opt.get_restart_decay_fn: lambda part: 0.5 * (1 + math.cos(math.pi * (part % 1))),
}


@pytest.mark.parametrize("make", DECAYS)
@pytest.mark.parametrize("decay_steps", [2**24, 2**30, 2**53, 2**62])
def test_decays_over_many_steps(make, decay_steps):
    decay = make(decay_steps)
    steps = {int(share * decay_steps): share for share in (0.0, 0.25, 0.75, 1.0)}
    for step, share in {**steps, 2**63 - 1: 1.0}.items():
        found = decay(tf.constant(step, tf.int64)).numpy()
        np.testing.assert_allclose(found, DECAYS[make](share), rtol=0, atol=1e-6)


@pytest.mark.parametrize("make", DECAYS)
def test_an_int32_step_with_more_decay_steps_than_int32_has(make):
    for decay_steps in (2**31, 2**33):
        decay = make(decay_steps)(tf.constant(2**30))
        np.testing.assert_allclose(decay.numpy(), DECAYS[make](2**30 / decay_steps), atol=1e-6)


@pytest.mark.parametrize("make", DECAYS)
def test_decay_steps_beyond_int64(make):
    with pytest.raises(ValueError, match="decay_steps must be an int64"):
        make(2**63)

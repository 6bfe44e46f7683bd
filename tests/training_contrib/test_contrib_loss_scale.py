"""Tests on TensorFlow 1.15: loss scaling has the bits and the names of `tf.contrib`'s."""

import numpy as np
import pytest
import tensorflow as tf

import legacy_opt
from tests.training_contrib.comparison import assert_same

pytestmark = pytest.mark.contrib

v1 = tf.compat.v1
contrib = tf.contrib.mixed_precision
# Factors of the loss: from the fourth step on, gradients overflow, are NaN, or are finite.
FACTORS = [1.0, -0.3, 2.5, np.inf, 1.0, np.nan, np.inf, 0.7, 0.9, 1.1, 1.3, np.inf, np.inf, 0.1]
INNER = {
    "Adam": lambda: v1.train.AdamOptimizer(0.05, epsilon=1e-3),
    "LazyAdam": lambda: legacy_opt.LazyAdamOptimizer(0.05, epsilon=1e-3),
    "Momentum": lambda: v1.train.MomentumOptimizer(0.05, 0.9),
}
MANAGERS = {
    "fixed": lambda home: home.FixedLossScaleManager(37.7),
    "exponential": lambda home: home.ExponentialUpdateLossScaleManager(
        37.7, incr_every_n_steps=2, decr_every_n_nan_or_inf=2, incr_ratio=3.3, decr_ratio=0.7
    ),
    "below 1": lambda home: home.ExponentialUpdateLossScaleManager(1.1, 9, 1, decr_ratio=0.5),
    "infinite": lambda home: home.ExponentialUpdateLossScaleManager(1e38, 1, incr_ratio=10.0),
}


def trained(home, inner, manager, dtype, use_resource):
    """Trains two optimizers in one graph. Returns all variables after each step."""
    random = np.random.RandomState(0)
    with tf.Graph().as_default(), v1.variable_scope("", use_resource=use_resource):
        table = v1.get_variable("table", initializer=random.normal(size=[5, 2]).astype(dtype))
        w = v1.get_variable("w", initializer=random.normal(size=[2]).astype(dtype))
        factor = v1.placeholder(dtype, [])
        rows = tf.gather(table, [1, 1, 3])
        loss = factor * tf.reduce_sum(tf.sin(rows * w))
        step = v1.train.get_or_create_global_step()
        train_ops = []
        for variables in [w], [table]:
            scaled = home.LossScaleOptimizer(INNER[inner](), MANAGERS[manager](home))
            train_ops.append(scaled.minimize(loss, step, variables))
        values = []
        with v1.Session() as session:
            session.run(v1.global_variables_initializer())
            for value in FACTORS:
                for train_op in train_ops:
                    session.run(train_op, {factor: value})
                names = {each.op.name: each for each in v1.global_variables()}
                values.append(session.run(names))
    return values


@pytest.mark.one_lane
@pytest.mark.pairwise(
    inner=list(INNER),
    manager=list(MANAGERS),
    dtype=["float16", "float32"],
    kind=["ref", "resource"],
)
def test_the_bits_and_names_of_the_original(inner, manager, dtype, kind):
    arguments = inner, manager, dtype, kind == "resource"
    ours, expected = trained(legacy_opt, *arguments), trained(contrib, *arguments)
    assert_same(ours, expected)
    before, after = expected[5], expected[6]
    assert np.array_equal(before["table"], after["table"]), "the step was not skipped"


def test_a_manager_of_contrib_in_our_optimizer():
    class Mixed:
        LossScaleOptimizer = legacy_opt.LossScaleOptimizer
        ExponentialUpdateLossScaleManager = contrib.ExponentialUpdateLossScaleManager

    arguments = "Adam", "exponential", "float32", False
    assert_same(trained(Mixed, *arguments), trained(contrib, *arguments))

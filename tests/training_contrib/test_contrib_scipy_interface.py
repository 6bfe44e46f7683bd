"""Tests on TensorFlow 1.15: `ScipyOptimizerInterface` has the bits of `tf.contrib.opt`'s.

The original trains only ref variables: values that it feeds do not reach other variables.
"""

import numpy as np
import pytest
import tensorflow as tf

import legacy_opt

pytestmark = pytest.mark.contrib

v1 = tf.compat.v1
CASES = {
    "L-BFGS-B": lambda w, b: {},
    "few steps": lambda w, b: {"options": {"maxiter": 4}},
    "bounds": lambda w, b: {"var_to_bounds": {w[0]: (0.25, np.inf), b: ([-1.0, None], [1.0, 1.5])}},
    "CG": lambda w, b: {"method": "CG", "options": {"maxiter": 7}},
    "SLSQP": lambda w, b: {
        "method": "SLSQP",
        "equalities": [w[0][0, 0] - 1.0],
        "inequalities": [b[0] - 2.0, 3.0 - tf.reduce_sum(w[-1])],
        "var_to_bounds": {w[0]: (-np.inf, 3.0)},
    },
}


def trained(home, case, use_resource, partitioned):
    """Returns the variables after the training, and all that the callbacks have seen."""
    seen = []
    with tf.Graph().as_default(), v1.Session() as session:
        with v1.variable_scope("", use_resource=use_resource):
            partitioner = v1.fixed_size_partitioner(2) if partitioned else None
            initializer = v1.random_normal_initializer(seed=3)
            w = v1.get_variable("w", [3, 2], initializer=initializer, partitioner=partitioner)
            b = v1.get_variable("b", initializer=[0.5, -0.5])
        x = v1.placeholder(tf.float32, [2])
        y = tf.linalg.matvec(tf.gather(tf.convert_to_tensor(w), [0, 0, 2]), x)
        loss = tf.reduce_sum(tf.square(y - 1.7)) + tf.reduce_sum(tf.square(tf.square(b) - 3.0))
        parts = list(w) if partitioned else [w]
        optimizer = home.ScipyOptimizerInterface(loss, **CASES[case](parts, b))
        session.run(v1.global_variables_initializer())
        optimizer.minimize(
            session,
            feed_dict={x: [1.0, 2.0]},
            fetches=[loss, b],
            loss_callback=lambda *values: seen.append(np.hstack(values)),
            step_callback=lambda vector: seen.append(np.array(vector)),
        )
        return session.run(v1.trainable_variables()), seen


@pytest.mark.one_lane
@pytest.mark.parametrize("partitioned", [False, True])
@pytest.mark.parametrize("use_resource", [False, True])
@pytest.mark.parametrize("case", CASES)
def test_the_bits_of_the_original(case, use_resource, partitioned):
    expected, seen = trained(tf.contrib.opt, case, False, partitioned)
    ours, seen_by_us = trained(legacy_opt, case, use_resource, partitioned)
    assert len(seen) == len(seen_by_us) > 5
    for one, other in zip(expected + seen, ours + seen_by_us):
        assert one.dtype == other.dtype and np.array_equal(one, other)

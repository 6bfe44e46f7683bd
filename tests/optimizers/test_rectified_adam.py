"""Tests RectifiedAdam: values by hand, slots, arguments."""

import numpy as np
import tensorflow as tf

from legacy_opt import RectifiedAdamOptimizer
from tests.support import running
from tests.support.running import REF_AND_RESOURCE

v1 = tf.compat.v1


@REF_AND_RESOURCE
def test_two_steps_by_hand(use_resource):
    # Learning rate 0.5, beta_1 0.5, beta_2 0.75, epsilon 0, sma_threshold 4.3; w 10, gradient 2.
    # n_max = 2 / 0.25 - 1 = 7; power**t = 0.75, 0.5625, 0.421875, 0.31640625
    # n = 7 - 2 t power / (1 - power): 1, 1.857142857, 2.621621622, 3.297142857, 3.888604, 4.401841
    # m / (1 - 0.5**t) = 2 in each step, and v / (1 - 0.75**t) = 4.
    # The first five steps subtract 0.5 * 2; the sixth 0.5 * r * 2 / 2, because n = 4.401841:
    # r = sqrt(0.401841 * 2.401841 * 7 / (3 * 5 * 4.401841)) = 0.319879
    with tf.Graph().as_default():
        w = v1.get_variable("w", initializer=[10.0], use_resource=use_resource)
        optimizer = RectifiedAdamOptimizer(0.5, 0.5, 0.75, 0.0, sma_threshold=4.3)
        train_op = optimizer.apply_gradients([(tf.constant([2.0]), w)])
        names = [variable.op.name for variable in v1.global_variables()]
        assert names == ["w", "step", "w/RectifiedAdam", "w/RectifiedAdam_1"]
        assert [optimizer.get_slot(w, name).op.name for name in ("m", "v")] == names[2:]
        with running.started() as session:
            for number in range(1, 6):
                session.run(train_op)
                np.testing.assert_allclose(session.run(w), [10.0 - number], rtol=1e-6)
            session.run(train_op)
            n = 7 - 12 * 0.75**6 / (1 - 0.75**6)
            r = ((n - 4) * (n - 2) * 7 / (3 * 5 * n)) ** 0.5
            np.testing.assert_allclose([n, r], [4.401841, 0.319879], rtol=1e-5)
            np.testing.assert_allclose(session.run(w), [5 - 0.5 * r], rtol=1e-6)


def test_defaults():
    optimizer = RectifiedAdamOptimizer()
    names = ("learning_rate", "beta_1", "beta_2", "epsilon", "weight_decay", "amsgrad")
    names += ("sma_threshold", "total_steps", "warmup_proportion", "min_lr")
    kept = [getattr(optimizer, "_" + name) for name in names]
    assert kept == [0.001, 0.9, 0.999, 1e-7, 0.0, False, 5.0, 0, 0.1, 0.0]
    assert optimizer.get_name() == "RectifiedAdam"


def test_amsgrad_has_a_third_slot():
    w = tf.Variable([1.0])
    optimizer = RectifiedAdamOptimizer(0.1, amsgrad=True, beta_2=0.5)
    for gradient in (4.0, 0.0):
        optimizer.apply_gradients([(tf.constant([gradient]), w)])
    assert optimizer.get_slot(w, "v").numpy() == [4.0]
    assert optimizer.get_slot(w, "vhat").numpy() == [8.0]


def test_weight_decay_may_be_a_variable():
    # With a gradient of 0, the update is the decay alone: 0.5 * decay * w.
    w, decay = tf.Variable([4.0]), tf.Variable(0.5)
    optimizer = RectifiedAdamOptimizer(0.5, weight_decay=lambda: decay)
    optimizer.apply_gradients([(tf.constant([0.0]), w)])
    assert w.numpy() == [3.0]
    decay.assign(1.0)
    optimizer.apply_gradients([(tf.constant([0.0]), w)])
    assert w.numpy() == [1.5]


def test_a_longest_average_of_4_is_finite():
    # n reaches n_max = 2 / (1 - 0.6) - 1 = 4, whose rectification would be 0 / 0.
    w = tf.Variable([1.0], dtype=tf.float64)
    beta_2 = tf.constant(0.6, tf.float64)
    optimizer = RectifiedAdamOptimizer(0.01, beta_2=beta_2, sma_threshold=4)
    for _ in range(120):
        optimizer.apply_gradients([(tf.constant([1.0], tf.float64), w)])
    assert np.isfinite(w.numpy()).all()

"""Tests AdaBelief: values by hand, slots, rectification."""

import numpy as np
import tensorflow as tf

from legacy_opt import AdaBeliefOptimizer
from tests.support import running
from tests.support.running import REF_AND_RESOURCE

v1 = tf.compat.v1


@REF_AND_RESOURCE
def test_two_steps_by_hand(use_resource):
    # Learning rate 0.5, both betas 0.5, epsilon 0, not rectified; w 10, gradients 4 and 4.
    # t = 1: m = 2; v = 0.5 * (4 - 2)**2 = 2; update = (2 / 0.5) / sqrt(2 / 0.5) = 2
    # t = 2: m = 3; v = 0.5 * 2 + 0.5 * (4 - 3)**2 = 1.5
    #        update = (3 / 0.75) / sqrt(1.5 / 0.75) = 4 / sqrt(2)
    with tf.Graph().as_default():
        w = v1.get_variable("w", initializer=[10.0], use_resource=use_resource)
        optimizer = AdaBeliefOptimizer(0.5, 0.5, 0.5, 0.0, rectify=False)
        train_op = optimizer.apply_gradients([(tf.constant([4.0]), w)])
        names = [variable.op.name for variable in v1.global_variables()]
        assert names == ["w", "step", "w/AdaBelief", "w/AdaBelief_1"]
        with running.started() as session:
            session.run(train_op)
            np.testing.assert_allclose(session.run(w), [9.0], rtol=1e-6)
            session.run(train_op)
            np.testing.assert_allclose(session.run(w), [9.0 - 2 / np.sqrt(2)], rtol=1e-6)
            slots = [optimizer.get_slot(w, name) for name in ("m", "v")]
            assert session.run(slots) == [[3.0], [1.5]]


def test_rectified_steps_begin_as_momentum():
    w = tf.Variable([1.0])
    AdaBeliefOptimizer(0.5).apply_gradients([(tf.constant([0.25]), w)])
    np.testing.assert_allclose(w.numpy(), [1 - 0.5 * 0.25], rtol=1e-6)


def test_epsilon_is_added_to_touched_rows_in_each_update():
    table = tf.Variable(tf.zeros([3, 1]))
    optimizer = AdaBeliefOptimizer(0.5, 0.5, 0.5, 0.25)
    for _ in range(2):
        rows = tf.IndexedSlices(tf.zeros([1, 1]), tf.constant([1]), tf.constant([3, 1]))
        optimizer.apply_gradients([(rows, table)])
    assert optimizer.get_slot(table, "v").numpy().ravel().tolist() == [0.0, 0.375, 0.0]


def test_defaults():
    optimizer = AdaBeliefOptimizer()
    names = ("learning_rate", "beta_1", "beta_2", "epsilon", "weight_decay", "amsgrad", "rectify")
    names += ("sma_threshold", "total_steps", "warmup_proportion", "min_lr")
    kept = [getattr(optimizer, "_" + name) for name in names]
    assert kept == [0.001, 0.9, 0.999, 1e-14, 0.0, False, True, 5.0, 0, 0.1, 0.0]
    assert optimizer.get_name() == "AdaBelief"

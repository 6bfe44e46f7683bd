"""Tests NovoGrad: values by hand, slots, sparse gradients, partitions."""

import numpy as np
import pytest
import tensorflow as tf

from legacy_opt import NovoGradOptimizer
from tests.support import running
from tests.support.running import REF_AND_RESOURCE

v1 = tf.compat.v1


@REF_AND_RESOURCE
@pytest.mark.parametrize("grad_averaging", [False, True])
def test_two_steps_by_hand(use_resource, grad_averaging):
    # Learning rate 0.5, both betas 0.5, epsilon 0, weight decay 0.25; w [8, 8].
    # t = 1, g = [3, 4]: v = 25; u = [0.6, 0.8] + [2, 2]; m = -0.5 u = [-1.3, -1.4];
    #                    w = [6.7, 6.6]
    # t = 2, g = [0, 5]: v = 0.5 * 25 + 0.5 * 25 = 25; u = [0, 1] + [1.675, 1.65]
    #   m = 0.5 m - 0.5 u = [-0.65, -0.7] - [0.8375, 1.325] = [-1.4875, -2.025]
    #   with grad_averaging: [-0.65, -0.7] - [0.41875, 0.6625] = [-1.06875, -1.3625]
    with tf.Graph().as_default():
        w = v1.get_variable("w", initializer=[8.0, 8.0], use_resource=use_resource)
        grad = v1.placeholder(tf.float32, [2])
        optimizer = NovoGradOptimizer(0.5, 0.5, 0.5, 0.0, 0.25, grad_averaging)
        train_op = optimizer.apply_gradients([(grad, w)])
        names = [variable.op.name for variable in v1.global_variables()]
        assert names == ["w", "step", "w/NovoGrad", "w/NovoGrad_1"]
        m, v = (optimizer.get_slot(w, name) for name in ("m", "v"))
        assert v.shape == []
        with running.started() as session:
            session.run(train_op, {grad: [3.0, 4.0]})
            np.testing.assert_allclose(session.run(w), [6.7, 6.6], rtol=1e-6)
            session.run(train_op, {grad: [0.0, 5.0]})
            change = [-1.06875, -1.3625] if grad_averaging else [-1.4875, -2.025]
            np.testing.assert_allclose(session.run(m), change, rtol=1e-6)
            np.testing.assert_allclose(session.run(w), np.add([6.7, 6.6], change), rtol=1e-6)
            assert session.run(v) == 25


def test_norm_is_that_of_summed_rows():
    # Rows 1 and 1 sum to [3, 4], whose norm is 5.
    table = tf.Variable(tf.ones([3, 2]))
    optimizer = NovoGradOptimizer(0.5, amsgrad=True)
    values = tf.constant([[1.0, 4.0], [2.0, 0.0]])
    rows = tf.IndexedSlices(values, tf.constant([1, 1]), tf.constant([3, 2]))
    optimizer.apply_gradients([(rows, table)])
    np.testing.assert_allclose(table.numpy(), [[1, 1], [0.7, 0.6], [1, 1]], rtol=1e-6)
    for name in ("v", "vhat"):
        assert optimizer.get_slot(table, name).numpy() == 25


def test_amsgrad_keeps_the_largest_norm():
    w = tf.Variable([0.0])
    optimizer = NovoGradOptimizer(1.0, 0.0, 0.5, 0.0, amsgrad=True)
    for gradient in (4.0, 0.0, 4.0):
        optimizer.apply_gradients([(tf.constant([gradient]), w)])
    assert optimizer.get_slot(w, "v").numpy() == 12 and optimizer.get_slot(w, "vhat").numpy() == 16
    assert w.numpy() == [-2.0]


def test_each_partition_has_its_own_norm():
    with tf.Graph().as_default():
        partitioner = tf.compat.v1.fixed_size_partitioner(2)
        w = v1.get_variable("w", initializer=tf.zeros([4]), partitioner=partitioner)
        grads = [tf.constant([3.0, 4.0]), tf.constant([60.0, 80.0])]
        train_op = NovoGradOptimizer(1.0).apply_gradients(zip(grads, list(w)))
        with running.started() as session:
            session.run(train_op)
            values = np.concatenate(session.run(list(w)))
    np.testing.assert_allclose(values, [-0.6, -0.8, -0.6, -0.8], rtol=1e-6)


def test_defaults():
    optimizer = NovoGradOptimizer()
    names = ("learning_rate", "beta_1", "beta_2", "epsilon", "weight_decay")
    kept = [getattr(optimizer, "_" + name) for name in (*names, "grad_averaging", "amsgrad")]
    assert kept == [0.001, 0.9, 0.999, 1e-7, 0.0, False, False]
    assert optimizer.get_name() == "NovoGrad"

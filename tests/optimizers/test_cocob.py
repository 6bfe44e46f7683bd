"""Tests COCOB: values by hand, rows, dtypes, and the doors that expect a learning rate."""

import numpy as np
import pytest
import tensorflow as tf

from legacy_opt import COCOBOptimizer
from legacy_opt.compat import compare_with_session, to_keras
from tests.support import problems, running
from tests.support.problems import Rows
from tests.support.running import REF_AND_RESOURCE

v1 = tf.compat.v1


@REF_AND_RESOURCE
def test_two_steps_by_hand(use_resource):
    # alpha 4, w 1, gradients 2 and -2.
    # t = 1: lr = 2; sums: |g| 2, g 2; reward = max(0 - 2*0, 0) = 0
    #        bet = -2 / (2 * max(2 + 2, 4*2)) * (0 + 2) = -0.25; w = 1 - 0 - 0.25 = 0.75
    # t = 2: lr = 2; sums: |g| 4, g 0; reward = max(0 + 2 * -0.25, 0) = 0; bet = 0; w = 1
    # t = 3, gradient -4: lr = 4; sums: |g| 8, g -4; reward = 0
    #        bet = 4 / (4 * max(8 + 4, 4*4)) * (0 + 4) = 0.25; w = 1.25
    # t = 4, gradient -4: sums: |g| 12, g -8; reward = 0 + 4 * 0.25 = 1
    #        bet = 8 / (4 * max(12 + 4, 16)) * (1 + 4) = 0.625; w = 1.625
    with tf.Graph().as_default():
        w = v1.get_variable("w", initializer=[1.0], use_resource=use_resource)
        grad = v1.placeholder(tf.float32, [1])
        optimizer = COCOBOptimizer(4.0)
        train_op = optimizer.apply_gradients([(grad, w)])
        slots = [optimizer.get_slot(w, name) for name in COCOBOptimizer.slots]
        names = ["w/COCOB"] + [f"w/COCOB_{number}" for number in range(1, 5)]
        assert [slot.op.name for slot in slots] == names
        with running.started() as sess:
            assert sess.run(slots)[0] == np.float32(1e-8)
            found = []
            for gradient in [2.0, -2.0, -4.0, -4.0]:
                sess.run(train_op, {grad: [gradient]})
                found.append(sess.run(w).item())
            assert found == [0.75, 1.0, 1.25, 1.625]
            assert sess.run(slots) == [[4.0], [12.0], [-8.0], [0.625], [1.0]]


def test_a_sparse_gradient_is_a_dense_gradient_with_zeros():
    """The rows outside of the gradient differ by the rounding of `w - tilde_w + tilde_w`."""
    sparse = problems.make("duplicates")

    def dense(key, gradient):
        whole = np.zeros_like(sparse.values[key])
        np.add.at(whole, gradient.ids, gradient.values)
        return whole

    steps = [{key: dense(key, each) for key, each in step.items()} for step in sparse.gradients]
    whole = sparse._replace(gradients=steps, sparse=())
    assert all(isinstance(each, Rows) for each in sparse.gradients[0].values())
    by_rows, by_zeros = (
        running.eager(each, lambda _: COCOBOptimizer()) for each in (sparse, whole)
    )
    running.assert_close(by_rows, by_zeros, rtol=0, atol=2e-6)
    for key, slot in by_rows.slots.items():
        if key[1] != "tilde_w":  # the sums of the gradients of an id may be rounded differently
            np.testing.assert_allclose(slot, by_zeros.slots[key], 1e-6, 1e-6, err_msg=str(key))


@pytest.mark.parametrize("dtype", [tf.bfloat16, tf.float32, tf.float64])
def test_elements_without_a_gradient_stay(dtype):
    w = tf.Variable(tf.constant([3.0, 3.0], dtype))
    optimizer = COCOBOptimizer()
    for _ in range(3):
        optimizer.apply_gradients([(tf.constant([0.0, 1.0], dtype), w)])
    still, moved = tf.cast(w, tf.float32).numpy()
    assert still == 3.0 and np.isfinite(moved) and moved < 3.0


def test_arguments():
    assert COCOBOptimizer()._alpha == 100.0 and COCOBOptimizer().get_name() == "COCOB"
    with pytest.raises(ValueError, match="alpha must be at least 1, got 0.5"):
        COCOBOptimizer(0.5)


def test_keras_has_no_learning_rate_to_set():
    assert compare_with_session(COCOBOptimizer())
    with pytest.raises(ValueError, match="learning_rate=0.1 for an optimizer without a learning"):
        to_keras(COCOBOptimizer(), learning_rate=0.1)
    optimizer = to_keras(COCOBOptimizer(alpha=50.0))
    restored = type(optimizer).from_config(optimizer.get_config())
    w = tf.Variable([1.0])
    restored.apply_gradients([(tf.constant([5.0]), w)])
    np.testing.assert_allclose(w.numpy(), [0.98], rtol=1e-6)


def test_float16_is_refused():
    with pytest.raises(TypeError, match="of dtype float16; it trains bfloat16, float32, float64"):
        COCOBOptimizer().apply_gradients(
            [(tf.zeros([2], tf.float16), tf.Variable(tf.zeros([2], tf.float16)))]
        )


def test_a_subclass_without_a_learning_rate_in_keras():
    class Mine(COCOBOptimizer):
        pass

    w = tf.Variable([1.0])
    to_keras(Mine()).apply_gradients([(tf.constant([1.0]), w)])
    assert w.numpy() < 1.0

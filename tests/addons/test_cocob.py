"""Compares COCOBOptimizer with COCOB of TensorFlow Addons, bit for bit."""

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_addons as tfa

import legacy_opt
from tests.addons import follows
from tests.support import problems

SLOTS = ["lr", "grad_norm_sum", "gradients_sum", "tilde_w", "reward"]


@pytest.mark.parametrize("alpha", [100.0, 8.0])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_bits_and_checkpoints(dtype, alpha, tmp_path):
    problem = problems.make("dense", dtype)
    theirs = tfa.optimizers.COCOB(alpha)
    states, ours, restored = follows.addons_and_ours(
        problem, theirs, lambda: legacy_opt.COCOBOptimizer(alpha), tmp_path
    )
    assert theirs.get_slot_names() == SLOTS == list(legacy_opt.COCOBOptimizer.slots)
    np.testing.assert_equal(ours, states)
    np.testing.assert_equal(restored, states[len(states) // 2 :])


def test_addons_is_nan_in_float16_where_ours_is_an_error():
    w = tf.Variable(tf.ones([2], tf.float16))
    tfa.optimizers.COCOB().apply_gradients([(tf.constant([0.0, 1.0], tf.float16), w)])
    assert np.isnan(w.numpy()).tolist() == [True, False]
    with pytest.raises(TypeError, match="of dtype float16; it trains bfloat16, float32, float64"):
        legacy_opt.COCOBOptimizer().apply_gradients([(tf.zeros([2], tf.float16), w)])
    rows = tf.IndexedSlices(tf.ones([1]), tf.constant([0]), tf.constant([2]))
    with pytest.raises(NotImplementedError):  # ours takes sparse gradients
        tfa.optimizers.COCOB().apply_gradients([(rows, tf.Variable([1.0, 2.0]))])

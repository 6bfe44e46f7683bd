"""Tests DiffGrad: values by hand, slots, and large variables, which are updated in pieces."""

import numpy as np
import pytest
import tensorflow as tf

from legacy_opt import DiffGradOptimizer, UseLockingWarning
from legacy_opt.optimizers import diffgrad
from tests.support import problems, running
from tests.support.running import REF_AND_RESOURCE

v1 = tf.compat.v1


@REF_AND_RESOURCE
def test_two_steps_by_hand(use_resource):
    # Learning rate 0.5, both betas 0.5, epsilon 0, w 10, gradients 2 and 2.
    # t = 1: m = 0.5*0 + 0.5*2 = 1; v = 0.5*4 = 2; friction = sigmoid(|0 - 2|)
    #        rate = 0.5 * sqrt(1 - 0.5) / (1 - 0.5) = sqrt(0.5)
    #        update = sqrt(0.5) * sigmoid(2) * 1 / sqrt(2) = sigmoid(2) / 2
    # t = 2: m = 0.5*1 + 0.5*2 = 1.5; v = 0.5*2 + 0.5*4 = 3; friction = sigmoid(|2 - 2|) = 0.5
    #        rate = 0.5 * sqrt(1 - 0.25) / (1 - 0.25) = 0.5 / sqrt(0.75)
    #        update = 0.5 / sqrt(0.75) * 0.5 * 1.5 / sqrt(3) = 0.375 / 1.5 = 0.25
    with tf.Graph().as_default():
        w = v1.get_variable("w", initializer=[10.0], use_resource=use_resource)
        optimizer = DiffGradOptimizer(0.5, 0.5, 0.5, 0.0)
        train_op = optimizer.apply_gradients([(tf.constant([2.0]), w)])
        names = [variable.op.name for variable in v1.global_variables()]
        assert names == [
            "w", "beta1_power", "beta2_power", "w/DiffGrad", "w/DiffGrad_1", "w/DiffGrad_2"
        ]  # fmt: skip
        assert [optimizer.get_slot(w, name).op.name for name in ("m", "v", "prev_grad")] == names[
            3:
        ]
        with running.started() as sess:
            sess.run(train_op)
            first = 0.5 / (1 + np.exp(-2))
            np.testing.assert_allclose(sess.run(w), [10 - first], rtol=1e-6)
            sess.run(train_op)
            values = dict(zip(names, sess.run(v1.global_variables())))
    np.testing.assert_allclose(values.pop("w"), [10 - first - 0.25], rtol=1e-6)
    assert values == {
        "beta1_power": 0.125,
        "beta2_power": 0.125,
        "w/DiffGrad": [1.5],
        "w/DiffGrad_1": [3.0],
        "w/DiffGrad_2": [2.0],
    }


def test_defaults():
    optimizer = DiffGradOptimizer()
    kept = [optimizer._learning_rate, optimizer._beta1, optimizer._beta2, optimizer._epsilon]
    assert kept == [0.001, 0.9, 0.999, 1e-8] and optimizer.get_name() == "DiffGrad"


@pytest.mark.parametrize("piece", [1, 4, 9])
@pytest.mark.parametrize("way", running.WAYS)
def test_pieces_make_no_difference(way, piece, monkeypatch):
    # Vector instructions compute several elements at once. The elements that remain at the end of
    # a piece are computed one by one, so their last bits may differ. Here the length of each row
    # is a multiple of 8, so no elements remain.
    problem = problems.make("dense", steps=4)
    random = np.random.RandomState(0)
    for values in [problem.values] + problem.gradients:
        values["matrix"] = random.randn(5, 16).astype(np.float32)
        values["cube"] = random.randn(3, 2, 8).astype(np.float32)

    def run():
        return running.WAYS[way](problem, lambda _: DiffGradOptimizer(0.05))

    whole = run()
    monkeypatch.setattr(diffgrad, "PIECE", 16 * piece)
    assert len(diffgrad._pieces(tf.TensorShape([5, 16]))) == -(-5 // piece)
    running.assert_same(run(), whole)


@REF_AND_RESOURCE
def test_a_shape_that_is_known_at_run_time_only(use_resource):
    with tf.Graph().as_default():
        initial = v1.placeholder_with_default(np.ones([3, 2], np.float32), [None, 2])
        w = v1.get_variable(
            "w", initializer=initial, validate_shape=False, use_resource=use_resource
        )
        known = v1.get_variable("known", initializer=tf.ones([3, 2]), use_resource=use_resource)
        gradient = tf.constant([[1.0, 2.0], [3.0, 4.0], [0.0, 5.0]])
        train_op = DiffGradOptimizer(0.1).apply_gradients([(gradient, w), (gradient, known)])
        np.testing.assert_array_equal(*running.after(train_op, [w, known], 2))


def test_use_locking_warns():
    w = tf.Variable([1.0])
    with pytest.warns(UseLockingWarning, match="DiffGradOptimizer updates"):
        DiffGradOptimizer(use_locking=True).apply_gradients([(tf.constant([1.0]), w)])

"""Tests ConditionalGradient: values by hand, both norms, ranks, and what has no kernel."""

import numpy as np
import pytest
import tensorflow as tf

from legacy_opt import ConditionalGradientOptimizer, recorded
from legacy_opt.native.updates import kernel_choice
from legacy_opt.programs.program import UnsupportedError
from tests.support import problems, running
from tests.support.running import REF_AND_RESOURCE

v1 = tf.compat.v1


def updated(value, gradient, **arguments):
    """Returns a variable after one step with the learning rate 0.5."""
    w = tf.Variable(value)
    optimizer = ConditionalGradientOptimizer(0.5, **arguments)
    optimizer.apply_gradients([(gradient, w)])
    assert not optimizer.get_slot_names()
    return w.numpy()


@REF_AND_RESOURCE
def test_a_step_by_hand(use_resource):
    # |g| = 5 and epsilon 3: w = 0.5 * [1, 2] - 0.5 * 10 * [3, 4] / 8 = [-1.375, -1.5]
    with tf.Graph().as_default():
        w = v1.get_variable("w", initializer=[1.0, 2.0], use_resource=use_resource)
        optimizer = ConditionalGradientOptimizer(0.5, lambda_=10.0, epsilon=3.0)
        train_op = optimizer.apply_gradients([(tf.constant([3.0, 4.0]), w)])
        with running.started() as sess:
            sess.run(train_op)
            assert sess.run(w).tolist() == [-1.375, -1.5]


def test_the_norm_of_a_sparse_gradient_is_that_of_its_rows():
    # The sum of the rows of id 2 is [3, 4], of norm 5; other rows do not shrink.
    rows = tf.IndexedSlices(
        tf.constant([[1.0, 4.0], [2.0, 0.0]]), tf.constant([2, 2]), tf.constant([3, 2])
    )
    found = updated(np.ones([3, 2], "f"), rows, lambda_=10.0, epsilon=3.0)
    assert found.tolist() == [[1.0, 1.0], [1.0, 1.0], [0.5 - 15 / 8, 0.5 - 20 / 8]]


@pytest.mark.parametrize("shape", [(), (4,), (4, 3), (3, 4)])
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_the_nuclear_norm(dtype, shape):
    gradient = np.asarray(np.random.RandomState(3).randn(*shape)).astype(dtype)
    value = np.ones(shape, dtype)
    matrix = np.atleast_2d(gradient.astype("d"))  # one row for ranks 0 and 1
    u, _, v = np.linalg.svd(matrix, full_matrices=False)
    expected = 0.5 * value - 0.5 * 2 * np.outer(u[:, 0], v[0]).reshape(shape)
    found = updated(value, tf.constant(gradient), lambda_=2.0, ord="nuclear")
    np.testing.assert_allclose(found, expected, atol=8 * float(np.finfo(dtype).eps))


@pytest.mark.parametrize("way", running.WAYS)
@pytest.mark.parametrize("kind", ["dense", "duplicates"])
def test_the_nuclear_norm_has_the_same_bits_in_every_way(way, kind):
    problem = problems.make(kind, steps=4)
    problem.values.pop("cube", None)
    gradients = [{key: step[key] for key in problem.values} for step in problem.gradients]
    problem = problem._replace(gradients=gradients)

    def make(step):
        return ConditionalGradientOptimizer(0.9, 3.0, ord="nuclear")

    running.assert_same(running.WAYS[way](problem, make), running.session_ref(problem, make), way)


def test_the_nuclear_norm_of_three_axes_is_an_error():
    with pytest.raises(ValueError, match=r"rank 0, 1 or 2, got a gradient of shape \(2, 2, 2\)"):
        updated(np.ones([2, 2, 2], "f"), tf.ones([2, 2, 2]), ord="nuclear")


def test_a_step_ends_in_the_ball():
    """From a point in the ball, every step ends in the ball, with any rate from 0 to 1."""
    w = tf.Variable([3.0, -4.0])
    optimizer = ConditionalGradientOptimizer(0.75, lambda_=5.0)
    for gradient in np.random.RandomState(0).randn(20, 2).astype("f"):
        optimizer.apply_gradients([(tf.constant(gradient), w)])
        assert np.linalg.norm(w.numpy()) <= 5.0 + 1e-5


def test_what_has_no_kernel_and_no_record():
    reason = "only TensorFlow computes .*nuclear norms"
    optimizer = ConditionalGradientOptimizer(0.9, ord="nuclear")
    with pytest.raises(recorded.RecordError, match=reason):
        recorded.record(optimizer)
    with pytest.raises(UnsupportedError, match=reason):
        kernel_choice.source_of(
            lambda: ConditionalGradientOptimizer(0.9, ord="nuclear"), tf.float32, sparse=False
        )
    record = recorded.record(ConditionalGradientOptimizer(0.9))
    for group in record.groups:
        assert "only TensorFlow computes norms of rows" in group.sparse


def test_wrong_arguments():
    for wrong in {"ord": "2"}, {"ord": None}, {"epsilon": -1.0}:
        with pytest.raises(ValueError, match=next(iter(wrong))):
            ConditionalGradientOptimizer(0.1, **wrong)

"""Tests RegAdagrad: values computed by hand, equality with Adagrad, and `avoid_updating_slots`."""

import numpy as np
import pytest
import tensorflow as tf

from legacy_opt import RegAdagradOptimizer
from legacy_opt.compat import to_keras
from tests.support import problems, running
from tests.support.running import REF_AND_RESOURCE

v1 = tf.compat.v1


@REF_AND_RESOURCE
@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
@pytest.mark.parametrize("fused", [True, False], ids=["kernel", "rule"])
def test_two_steps_by_hand(use_resource, sparse, fused):
    # Learning rate 0.5. Initially, the accumulator is 1 and w is 2.
    # Gradient 3, slot updated: accumulator = 1 + 9 = 10;  w = 2 - .5 * 3 / sqrt(10) = 1.52565835
    # Gradient 4, slot not updated: accumulator = 10;  w -= .5 * 4 / sqrt(10), so w = 0.89320282
    with tf.Graph().as_default():
        w = v1.get_variable("w", initializer=[2.0, 7.0], use_resource=use_resource)
        optimizer = RegAdagradOptimizer(0.5, 1.0)
        optimizer.use_fused_kernels = fused

        def apply(gradient):
            if sparse:
                rows = tf.IndexedSlices(tf.constant([gradient]), tf.constant([0]))
                return optimizer.apply_gradients([(rows, w)])
            return optimizer.apply_gradients([(tf.constant([gradient, 0.0]), w)])

        counted = apply(3.0)
        with optimizer.avoid_updating_slots():
            spared = apply(4.0)
        accumulator = optimizer.get_slot(w, "accumulator")
        assert accumulator.op.name == "w/RegAdagrad" and optimizer.get_slot_names() == [
            "accumulator"
        ]
        with running.started() as sess:
            for train_op, value in (counted, 1.52565835), (spared, 0.89320282):
                sess.run(train_op)
                np.testing.assert_allclose(sess.run(w), [value, 7.0], rtol=1e-6)
                assert sess.run(accumulator).tolist() == [10.0, 1.0]


@pytest.mark.parametrize("kind", ["dense", "duplicates"])
@pytest.mark.parametrize("way", running.WAYS)
def test_it_is_stock_adagrad(way, kind):
    problem = problems.make(kind, steps=7)
    running.assert_same(
        running.WAYS[way](problem, lambda _: RegAdagradOptimizer(0.3, 0.2)),
        running.WAYS[way](problem, lambda _: v1.train.AdagradOptimizer(0.3, 0.2)),
    )


def counts(optimizer, apply=None):
    """Returns whether an eager update changes the accumulator.

    If `apply` (a Keras optimizer) is given, it is used instead of `optimizer`.
    """
    w = tf.Variable([2.0])
    (apply or optimizer).apply_gradients([(tf.constant([3.0]), w)])
    return (apply or optimizer).get_slot(w, "accumulator").numpy().tolist() != [1.0]


def test_contexts_nest_and_end_with_an_error():
    optimizer = RegAdagradOptimizer(0.5, 1.0)
    with optimizer.avoid_updating_slots():
        with optimizer.avoid_updating_slots():
            assert not counts(optimizer)
        assert not counts(optimizer)
        assert counts(RegAdagradOptimizer(0.5, 1.0))  # another optimizer is not affected
    assert counts(optimizer)
    with pytest.raises(KeyError), optimizer.avoid_updating_slots():
        raise KeyError("x")
    assert counts(optimizer)


def test_a_function_keeps_the_behaviour_of_its_trace():
    w = tf.Variable([2.0])
    optimizer = RegAdagradOptimizer(0.5, 1.0)

    def step():
        optimizer.apply_gradients([(tf.constant([3.0]), w)])

    counting, sparing = tf.function(step), tf.function(step)
    counting()
    with optimizer.avoid_updating_slots():
        counting()
        sparing()
    sparing()
    assert optimizer.get_slot(w, "accumulator").numpy() == [1.0 + 2 * 9.0]


def test_the_context_affects_keras_optimizers_created_from_it():
    optimizer = RegAdagradOptimizer(0.5, 1.0)
    bridged = to_keras(optimizer)
    with optimizer.avoid_updating_slots():
        assert not counts(optimizer, to_keras(optimizer))
    w = tf.Variable([2.0])
    pairs = [(tf.constant([3.0]), w)]
    bridged.apply_gradients(pairs)
    with optimizer.avoid_updating_slots():
        bridged.apply_gradients(pairs)
    assert bridged.get_slot(w, "accumulator").numpy() == [10.0]
    # Two equal updates: 2 - 2 * .5 * 3 / sqrt(10).
    np.testing.assert_allclose(w.numpy(), [1.05131670], rtol=1e-6)


@pytest.mark.parametrize("value", [0.0, -1.0, float("nan")])
def test_the_initial_accumulator_value_is_positive(value):
    with pytest.raises(ValueError, match="initial_accumulator_value"):
        RegAdagradOptimizer(0.1, value)

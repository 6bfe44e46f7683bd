"""Tests values that a `RuleOptimizer` computes once in each training step (`once_per_step`)."""

import numpy as np
import pytest
import tensorflow as tf

import legacy_opt
from legacy_opt import RuleOptimizer, Slot
from tests.support import running

v1 = tf.compat.v1
STEPS = 5
# The change of a weight in step i is 0.5 * (i // 2 + 1), because a period has two steps.
EXPECTED = -sum(0.5 * (i // 2 + 1) for i in range(STEPS))


class Staged(RuleOptimizer):
    """Multiplies the learning rate by the number of a period of two steps."""

    slots = {"last": Slot()}
    uses_global_step = True
    calls = 0

    def __init__(self, learning_rate=0.5):
        super().__init__(False, "Staged", learning_rate=learning_rate)

    def once_per_step(self, hyper):
        self.calls += 1
        return {"period": hyper.global_step // 2 + 1, "rate_in_32_bits": hyper.learning_rate}

    def rule(self, grad, value, slots, hyper):
        period = tf.cast(hyper.period, grad.dtype)
        rate = tf.cast(hyper.rate_in_32_bits, grad.dtype)
        return rate * period * grad, {"last": period * tf.ones_like(slots.last)}


def in_session(optimizer, dtype=tf.float32, use_resource=True, sparse=False):
    """Returns the values of two weights and slots after some steps."""
    with tf.Graph().as_default():
        step = v1.train.get_or_create_global_step()
        pairs = []
        for name in "ab":
            variable = v1.get_variable(
                name, initializer=tf.zeros([2, 1], dtype), use_resource=use_resource
            )
            grad = tf.ones([2, 1], dtype)
            pairs.append((tf.IndexedSlices(grad, [1, 0]) if sparse else grad, variable))
        train_op = optimizer.apply_gradients(pairs, global_step=step)
        found = [each for _, each in pairs]
        found += [optimizer.get_slot(each, "last") for each in found]
        return running.after(train_op, found, STEPS)


@pytest.mark.parametrize("native", ["off", "require"])
@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
@pytest.mark.parametrize("use_resource", [False, True], ids=["ref", "resource"])
def test_in_a_session(native, sparse, use_resource):
    optimizer = Staged()
    optimizer.native = native
    *weights, slot, _ = in_session(optimizer, use_resource=use_resource, sparse=sparse)
    for each in weights:
        np.testing.assert_array_equal(each, [[EXPECTED]] * 2)
    np.testing.assert_array_equal(slot, [[(STEPS - 1) // 2 + 1]] * 2)
    assert optimizer.calls == 1  # once for both variables, also if kernels trace the rule


def test_the_dtype_does_not_change():
    weight, *_ = in_session(Staged(0.1), tf.float64)
    expected = np.float64(np.float32(0.1)) * EXPECTED / 0.5
    np.testing.assert_allclose(weight, [[expected]] * 2, rtol=1e-15)


@pytest.mark.parametrize("native", ["off", "require"])
@pytest.mark.parametrize("in_function", [False, True], ids=["eager", "function"])
def test_outside_of_sessions(native, in_function):
    with tf.init_scope():
        if not tf.executing_eagerly():  # on TensorFlow 1
            return
        step, weight = tf.Variable(0, dtype=tf.int64), tf.Variable([0.0])
        optimizer = Staged()
        optimizer.native, optimizer._global_step = native, step

        def train():
            optimizer.apply_gradients([(tf.ones([1]), weight)], global_step=step)

        train = tf.function(train) if in_function else train
        for _ in range(STEPS):
            train()
        np.testing.assert_array_equal(weight.numpy(), [EXPECTED])


class Late(Staged):
    """Changes the weight only in some steps, which `once_per_step` chooses by a bool."""

    def once_per_step(self, hyper):
        return {"late": hyper.global_step > 1}

    def rule(self, grad, value, slots, hyper):
        return tf.compat.v2.where(hyper.late, grad, tf.zeros_like(grad)), {}


@pytest.mark.parametrize("native", ["off", "require"])
def test_a_bool(native):
    optimizer = Late()
    optimizer.native = native
    weight, *_ = in_session(optimizer)
    np.testing.assert_array_equal(weight, [[2 - STEPS]] * 2)


@pytest.mark.parametrize(
    "result, error, message",
    [
        ({"learning_rate": 1.0}, ValueError, "'learning_rate', which hyper has already"),
        ({"global_step": 1.0}, ValueError, "'global_step', which hyper has already"),
        ({"power": 1.0}, ValueError, "'power', which hyper has already"),
        ({"x": [1.0, 2.0]}, ValueError, r"'x' in shape \(2,\), expected a scalar"),
        ([1.0], TypeError, r"Wrong.once_per_step must return a dict, got \[1.0\]"),
    ],
)
def test_wrong_results(result, error, message):
    class Wrong(Staged):
        def non_slots(self):
            return {"power": 1.0}

        def once_per_step(self, hyper):
            return result

    with pytest.raises(error, match=message):
        in_session(Wrong())


def test_the_period_of_adagrad_decay_is_one_operation_for_all_variables():
    with tf.Graph().as_default() as graph:
        step = v1.train.get_or_create_global_step()
        optimizer = legacy_opt.AdagradDecayOptimizer(0.1, step, accumulator_decay_step=2)
        variables = [v1.get_variable(name, [2], use_resource=True) for name in "abc"]
        optimizer.apply_gradients([(tf.ones([2]), each) for each in variables], step)
        divisions = [each for each in graph.get_operations() if each.type == "FloorDiv"]
    assert len(divisions) == 1

"""Tests compare_with_session, which trains an optimizer through `to_keras` and in a Session.

The function reports the first difference, or that all values are equal.
"""

import numpy as np
import pytest
import tensorflow as tf

import legacy_opt
from legacy_opt import versions
from legacy_opt.compat import compare_with_session

v1 = tf.compat.v1
ONLY_KERAS_2 = versions.keras_facts()["generation"] == 2


@pytest.fixture(params=["optimizer_v2", "auto"] + ([] if ONLY_KERAS_2 else ["keras3"]))
def bridge(request):
    return {"api": request.param}


class DiffersInTheBridge(v1.train.MomentumOptimizer):
    """Scales dense or sparse gradients, but only in the copy that `to_keras` trains.

    Only this copy has the attribute `_driver`.
    """

    def __init__(self, kind, factor):
        super().__init__(0.1, 0.9)
        self.kind = kind
        self.factor = factor

    def _factor(self, kind):
        return self.factor if kind == self.kind and hasattr(self, "_driver") else 1.0

    def _resource_apply_dense(self, grad, handle):
        return super()._resource_apply_dense(grad * self._factor("dense"), handle)

    def _resource_apply_sparse(self, grad, handle, indices):
        return super()._resource_apply_sparse(grad * self._factor("sparse"), handle, indices)


class DenseOnly(v1.train.Optimizer):
    def __init__(self):
        super().__init__(False, "DenseOnly")
        self._lr = 0.1

    def _resource_apply_dense(self, grad, handle):
        return handle.assign_sub(self._lr * grad, read_value=False)


class ForgetsItsSlot(v1.train.MomentumOptimizer):
    """Sets its slot to 0 in the copy that `to_keras` trains. After one step, only slots differ."""

    def _resource_apply_dense(self, grad, handle):
        done = super()._resource_apply_dense(grad, handle)
        if not hasattr(self, "_driver"):
            return done
        with tf.control_dependencies([] if done is None else [done]):
            slot = self.get_slot(handle, "momentum")
            return slot.assign(tf.zeros_like(slot), read_value=False)


def attributes(optimizer):
    """Returns the attributes of an optimizer; dicts, such as `_slots`, are copied."""
    return {
        name: dict(value) if isinstance(value, dict) else value
        for name, value in vars(optimizer).items()
    }


@pytest.mark.parametrize("graph", [False, True])
@pytest.mark.parametrize(
    "optimizer",
    [
        v1.train.AdamOptimizer(0.01),
        legacy_opt.AdagradDecayOptimizerV2(0.1, None, accumulator_decay_step=3),
    ],
    ids=lambda optimizer: type(optimizer).__name__,
)
def test_equal(optimizer, graph, bridge):
    before = attributes(optimizer)
    if graph:
        with tf.Graph().as_default():
            found = compare_with_session(optimizer, **bridge)
    else:
        found = compare_with_session(optimizer, **bridge)
    assert found and found.equal
    assert (found.steps, found.variables) == (20, ("kernel", "bias", "table"))
    assert (found.step, found.variable, found.difference) == (None, None, 0.0)
    assert str(found).startswith("equal bit for bit: 20 steps of kernel, bias, table")
    assert attributes(optimizer) == before


@pytest.mark.parametrize(["kind", "variable"], [("dense", "kernel"), ("sparse", "table")])
def test_reports_the_first_difference(kind, variable, bridge):
    found = compare_with_session(DiffersInTheBridge(kind, 1 + 2**-20), steps=3, **bridge)
    assert not found
    assert (found.step, found.variable) == (1, variable)
    assert 0 < found.difference < 1e-6
    assert str(found) == f"different at step 1 of 3: {variable} by up to {found.difference:g}"


def test_compares_the_slots(bridge):
    found = compare_with_session(ForgetsItsSlot(0.1, 0.9), steps=1, **bridge)
    assert not found
    assert (found.step, found.variable) == (1, "kernel/momentum")
    assert found.difference > 0.1


def test_compares_dense_variables_if_there_is_no_sparse_update(bridge):
    found = compare_with_session(DenseOnly(), **bridge)
    assert found
    assert found.variables == ("kernel", "bias")
    assert str(found).endswith("and all slots (without table: the optimizer has no sparse update)")


def test_compares_a_decay_of_the_global_step(bridge):
    step = tf.Variable(7, dtype=tf.int64)
    rate = v1.train.exponential_decay(0.1, step, 3, 0.5)
    assert compare_with_session(v1.train.MomentumOptimizer(rate, 0.9), **bridge)
    momentum = v1.train.polynomial_decay(0.0, step, 9, 1.0)
    assert compare_with_session(v1.train.MomentumOptimizer(rate, momentum), **bridge)
    assert compare_with_session(v1.train.MomentumOptimizer(0.1, lambda: tf.Variable(0.5)), **bridge)


@pytest.mark.parametrize(
    "rate", [lambda: 0.1, tf.Variable(0.1), np.float32(0.1)], ids=["callable", "variable", "numpy"]
)
def test_compares_callable_variable_and_numpy_learning_rates(rate, bridge):
    assert compare_with_session(v1.train.AdagradOptimizer(rate), **bridge)


def test_bad_arguments(bridge):
    with tf.Graph().as_default():
        rate = tf.constant(0.1)
        with pytest.raises(ValueError, match="but learning_rate is <tf.Tensor"):
            compare_with_session(v1.train.AdagradOptimizer(rate), **bridge)
    with pytest.raises(ValueError, match="steps must be positive, got 0"):
        compare_with_session(v1.train.AdagradOptimizer(0.1), steps=0, **bridge)
    with pytest.raises(TypeError, match="takes a tf.compat.v1.train.Optimizer"):
        compare_with_session("adam", **bridge)
    inner = v1.train.AdagradOptimizer(0.1)
    wrapper = legacy_opt.GradientAccumulationOptimizer(inner, 2)
    with pytest.raises(ValueError, match="wraps other.*one by one: AdagradOptimizer"):
        compare_with_session(wrapper, **bridge)

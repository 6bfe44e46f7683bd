"""Tests native kernels of optimizers with decoupled weight decay."""

import numpy as np
import pytest
import tensorflow as tf

import legacy_opt
from legacy_opt.programs.program import UnsupportedError
from tests.support import running

v1 = tf.compat.v1
START = np.random.RandomState(0).uniform(1, 2, (6, 4)).astype(np.float32)
GRADIENT = np.random.RandomState(1).normal(size=START.shape).astype(np.float32)
IDS = np.array([4, 1, 4], np.int32)  # a repeated id; rows 0, 2, 3 and 5 have no gradient
DECAY, RATE = np.float32(0.25), np.float32(0.5)
DECAYING_OPERATIONS = {
    *("ApplyGradientDescent", "ResourceApplyGradientDescent"),
    *("ScatterSub", "ResourceScatterSub"),
}


def extended(base, **arguments):
    return legacy_opt.extend_with_decoupled_weight_decay(base)(DECAY, RATE, **arguments)


STOCK = {
    "Adadelta": lambda: extended(v1.train.AdadeltaOptimizer),
    "Adagrad": lambda: extended(v1.train.AdagradOptimizer),
    "Adam": lambda: extended(v1.train.AdamOptimizer, epsilon=1e-3),
    "Ftrl": lambda: extended(v1.train.FtrlOptimizer, l1_regularization_strength=0.01),
    "Ftrl, power": lambda: extended(
        v1.train.FtrlOptimizer, learning_rate_power=-0.4, l2_regularization_strength=0.1
    ),
    "GradientDescent": lambda: extended(v1.train.GradientDescentOptimizer),
    "Momentum": lambda: extended(v1.train.MomentumOptimizer, momentum=0.9),
    "Momentum, Nesterov": lambda: extended(
        v1.train.MomentumOptimizer, momentum=0.9, use_nesterov=True
    ),
    "ProximalAdagrad": lambda: extended(
        v1.train.ProximalAdagradOptimizer, l1_regularization_strength=0.01
    ),
    "ProximalGradientDescent": lambda: extended(
        v1.train.ProximalGradientDescentOptimizer, l2_regularization_strength=0.1
    ),
    "RMSProp": lambda: extended(v1.train.RMSPropOptimizer, momentum=0.9),
    "RMSProp, centered": lambda: extended(v1.train.RMSPropOptimizer, centered=True),
    "AdagradDA": lambda: extended(
        v1.train.AdagradDAOptimizer,
        global_step=v1.train.get_or_create_global_step(),
        l1_regularization_strength=0.01,
    ),
    "AdagradDecay": lambda: legacy_opt.extend_with_decoupled_weight_decay(
        legacy_opt.AdagradDecayOptimizer
    )(DECAY, RATE, None, accumulator_decay_step=2),
}


def gradient(sparse):
    """Returns the gradient, which is equal in all steps. If `sparse`, it has three rows."""
    if sparse:
        return tf.IndexedSlices(tf.constant(GRADIENT[:3]), tf.constant(IDS), START.shape)
    return tf.constant(GRADIENT)


def trained(make, sparse, use_resource=True, setting="require", **arguments):
    """Returns all variables after three steps, by name, and the types of all operations."""
    with tf.Graph().as_default() as graph:
        optimizer = make()
        optimizer.native = setting
        step = v1.train.get_or_create_global_step()
        variable = v1.get_variable("w", initializer=START, use_resource=use_resource)
        bias = v1.get_variable("bias", initializer=START[0], use_resource=use_resource)
        pairs = [(gradient(sparse), variable), (tf.constant(GRADIENT[0]), bias)]
        if "decay_var_list" in arguments:
            arguments["decay_var_list"] = [bias]
        train_op = optimizer.apply_gradients(pairs, step, **arguments)
        values = running.after(train_op, steps=3)
        return values, {each.type for each in graph.get_operations()}


@pytest.mark.in_turn(name=STOCK, sparse=[False, True], use_resource=[False, True])
def test_kernels_compute_what_tensorflow_computes(name, sparse, use_resource, fresh):
    expected, _ = trained(STOCK[name], sparse, use_resource, "off")
    actual, types = trained(STOCK[name], sparse, use_resource)
    assert "LegacyOptUpdate" + ("Rows" if sparse else "") + ("" if use_resource else "Ref") in types
    assert sorted(actual) == sorted(expected)
    for each, value in expected.items():
        # TensorFlow's kernels approximate 1/sqrt and pow. In Ftrl, the slots nearly cancel when
        # they are summed, so errors grow.
        np.testing.assert_allclose(actual[each], value, rtol=3e-5, atol=1e-6, err_msg=each)


@pytest.mark.parametrize("use_resource", [False, True])
def test_one_operation_decays_and_updates(use_resource, fresh):
    values, types = trained(STOCK["GradientDescent"], False, use_resource)
    expected = START.copy()
    for _ in range(3):
        expected -= DECAY * expected
        expected -= RATE * GRADIENT
    np.testing.assert_array_equal(values["w"], expected)
    assert not types & DECAYING_OPERATIONS


@pytest.mark.parametrize("sparse", [False, True])
def test_only_the_chosen_variables_decay(sparse, fresh):
    values, types = trained(STOCK["GradientDescent"], sparse, decay_var_list=...)
    expected = START.copy()
    for _ in range(3):
        if sparse:
            expected[1] -= RATE * GRADIENT[1]
            expected[4] -= RATE * (GRADIENT[0] + GRADIENT[2])
        else:
            expected -= RATE * GRADIENT
    np.testing.assert_array_equal(values["w"], expected)
    assert not types & DECAYING_OPERATIONS


def test_rows_decay_before_adam_updates_all_rows(fresh):
    """Adam updates every row, but a separate operation decays only the rows of the gradient."""
    values, types = trained(STOCK["Adam"], True)
    assert "ResourceScatterSub" in types
    assert "LegacyOptUpdateRows" in types
    np.testing.assert_array_equal(values["w"][0], START[0])


def test_an_update_waits_for_all_gradients(fresh):
    """No variable may decay before all gradients are computed, because gradients read variables."""
    optimizer = extended(v1.train.MomentumOptimizer, momentum=0.9)
    optimizer.native = "require"
    with tf.Graph().as_default() as graph:
        pairs = []
        for name, size in ("large", 2_000_000), ("small", 3):
            variable = v1.get_variable(name, [size], use_resource=False)
            pairs.append((tf.ones([size], name="gradient_of_" + name), variable))
        optimizer.apply_gradients(pairs)
        updates = [each for each in graph.get_operations() if each.type == "LegacyOptUpdateRef"]
        assert len(updates) == 2
        for update in updates:
            waits_for = {
                each.name
                for control in update.control_inputs
                for each in [control, *control.control_inputs]
            }
            assert {"gradient_of_large", "gradient_of_small"} <= waits_for


def test_ftrl_with_shrinkage_has_no_kernel(fresh):
    def make():
        return extended(v1.train.FtrlOptimizer, l2_shrinkage_regularization_strength=0.1)

    with pytest.raises(UnsupportedError, match="l2_shrinkage_regularization_strength is not 0"):
        trained(make, False)


class OwnUpdate(v1.train.MomentumOptimizer):
    """A user-defined class whose update differs from Momentum's."""

    def _resource_apply_dense(self, grad, var):
        return super()._resource_apply_dense(2 * grad, var)


def test_an_overridden_update_method_has_no_kernel(fresh):
    def make():
        return extended(OwnUpdate, momentum=0.9)

    with pytest.raises(UnsupportedError, match="OwnUpdate has update methods of its own"):
        trained(make, False)
    expected, _ = trained(make, False, setting="off")
    with pytest.warns(UserWarning, match="runs without a native kernel: OwnUpdate has"):
        actual, types = trained(make, False, setting="auto")
    np.testing.assert_array_equal(actual["w"], expected["w"])
    assert "ResourceApplyGradientDescent" in types


class Recording(legacy_opt.MomentumWOptimizer):
    """A user-defined class that records each update, and then calls its base class."""

    def _resource_apply_dense(self, grad, handle):
        self.updated.append(handle.op.name)
        return super()._resource_apply_dense(grad, handle)


def test_a_method_that_calls_the_kernel(fresh):
    optimizer = Recording(DECAY, RATE, 0.9)
    optimizer.updated = []
    actual, types = trained(lambda: optimizer, False)
    assert optimizer.updated == ["w", "bias"]
    assert not types & DECAYING_OPERATIONS
    expected, _ = trained(lambda: legacy_opt.MomentumWOptimizer(DECAY, RATE, 0.9), False)
    np.testing.assert_array_equal(actual["w"], expected["w"])

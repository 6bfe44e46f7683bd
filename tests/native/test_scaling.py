"""Tests that native kernels compute products of gradients and scalars, which may change later."""

import operator

import numpy as np
import pytest
import tensorflow as tf

import legacy_opt
from tests.native.training import START, Sgd
from tests.support import running

v1 = tf.compat.v1
GRADIENT = np.random.RandomState(1).normal(size=START.shape).astype(np.float32)


def by_global_norm(grads):
    return tf.clip_by_global_norm(grads, 0.5)[0]


def by_norm(grads):
    return [tf.clip_by_norm(grad, 0.5) for grad in grads]


def mean_of_three(grads):
    return [grad / 3 for grad in grads]


def in_a_chain(grads):
    return [tf.identity(0.3 * (grad / tf.reduce_max(grad))) * 7 for grad in grads]


SCALINGS = [by_global_norm, by_norm, mean_of_three, in_a_chain]


def trained(scale, setting, dtype=tf.float32, wrap=lambda optimizer: optimizer, use_resource=True):
    """Returns the values of two variables after a step, and the operations that run kernels."""
    with tf.Graph().as_default() as graph:
        grads = [tf.negative(tf.cast(-each, dtype), name="raw") for each in (GRADIENT, GRADIENT[0])]
        variables = [
            v1.get_variable(f"v{i}", initializer=tf.cast(each, dtype), use_resource=use_resource)
            for i, each in enumerate((START, START[0]))
        ]
        optimizer = Sgd()
        optimizer.native = setting
        train_op = wrap(optimizer).apply_gradients(list(zip(scale(grads), variables)))
        values = running.after(train_op, variables)
        return values, [each for each in graph.get_operations() if "LegacyOpt" in each.type]


def gradients_of(operations):
    """Returns the names of the kernel inputs that are unscaled gradients."""
    names = [each.op.name for operation in operations for each in operation.inputs]
    return sorted(name for name in names if name.startswith("raw"))


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("scale", SCALINGS)
def test_a_kernel_gets_the_gradient_before_the_product(scale, dtype, fresh):
    dtype = getattr(tf, dtype)
    actual, operations = trained(scale, "require", dtype)
    expected, _ = trained(scale, "off", dtype)
    assert gradients_of(operations) == ["raw", "raw_1"]
    # Only updates with the same scalar share an operation.
    assert len(operations) == (1 if scale in (by_global_norm, mean_of_three) else 2)
    for each, value in zip(actual, expected):
        np.testing.assert_array_equal(each, value)


def test_the_products_of_a_wrapper(fresh):
    def wrap(optimizer):
        return legacy_opt.ClipByGlobalNormOptimizer(optimizer, 0.5)

    actual, operations = trained(list, "require", wrap=wrap)
    assert gradients_of(operations) == ["raw", "raw_1"]
    for each, value in zip(actual, trained(list, "off", wrap=wrap)[0]):
        np.testing.assert_array_equal(each, value)


def times_value(grads):
    """Returns products of tensors that share the memory of a variable in a Session."""
    del grads
    return [2 * variable.read_value() for variable in v1.global_variables()[:2]]


def after_a_check(grads):
    factor = tf.constant(2.0)
    with tf.control_dependencies([tf.debugging.assert_all_finite(grads[0], "not finite")]):
        return [factor * grad for grad in grads]


def by_elements(grads):
    return [grad * tf.ones_like(grad) for grad in grads]


def of_another_shape(grads):
    """Multiplies a gradient of one element by a tensor of the variable's shape."""
    return [tf.reduce_sum(grad, keepdims=True) * tf.ones(grad.shape) for grad in grads]


@pytest.mark.parametrize("scale", [after_a_check, by_elements])
def test_products_that_tensorflow_computes(scale, fresh):
    actual, operations = trained(scale, "require")
    assert {operation.inputs[-1].op.type for operation in operations} == {"Mul"}
    for each, value in zip(actual, trained(scale, "off")[0]):
        np.testing.assert_array_equal(each, value)


@pytest.mark.parametrize("use_resource", [False, True])
def test_products_of_values(use_resource, fresh):
    """A ref variable may change before the kernel reads it, so TensorFlow computes the product."""
    actual, operations = trained(times_value, "require", use_resource=use_resource)
    gradients = {each.op.type for operation in operations for each in operation.inputs[-2:]}
    assert ("ReadVariableOp" if use_resource else "Mul") in gradients
    for each, value in zip(actual, trained(times_value, "off", use_resource=use_resource)[0]):
        np.testing.assert_array_equal(each, value)


def test_a_product_of_a_smaller_tensor(fresh):
    actual, _ = trained(of_another_shape, "require")
    for each, value in zip(actual, trained(of_another_shape, "off")[0]):
        np.testing.assert_array_equal(each, value)


def test_a_function(fresh):
    optimizer, variable = Sgd(), tf.Variable(START)
    optimizer.native = "require"

    @tf.function
    def step():
        (grad,) = by_global_norm([tf.negative(tf.constant(-GRADIENT), name="raw")])
        optimizer.apply_gradients([(grad, variable)])

    graph = step.get_concrete_function().graph
    operations = [each for each in graph.get_operations() if "LegacyOpt" in each.type]
    assert gradients_of(operations) == ["raw"]
    step()
    (clipped,) = by_global_norm([tf.constant(GRADIENT)])
    np.testing.assert_array_equal(variable.numpy(), START - np.float32(0.5) * clipped.numpy())


def by_computed(scale):
    return 1 / (2 * tf.convert_to_tensor(scale))


def changed_after_the_product(setting, operate, by, use_resource):
    with tf.Graph().as_default():
        variable = v1.get_variable("w", initializer=START, use_resource=use_resource)
        scale = v1.get_variable(
            "scale", initializer=0.5, trainable=False, use_resource=use_resource
        )
        grad = operate(tf.constant(START - 7), by(scale))
        with tf.control_dependencies([grad]):
            changed = scale.assign(100.0)
        optimizer = Sgd()
        optimizer.native = setting
        with tf.control_dependencies([changed.op if hasattr(changed, "op") else changed]):
            train_op = optimizer.apply_gradients([(grad, variable)])
        return running.after(train_op, variable)


@pytest.mark.parametrize("use_resource", [False, True])
@pytest.mark.parametrize(
    "by",
    [tf.convert_to_tensor, tf.identity, lambda scale: tf.reshape(scale, [1, 1]), by_computed],
)
@pytest.mark.parametrize(
    "operate",
    [operator.mul, operator.truediv, lambda grad, factor: 0.5 * (2.0 * grad * factor)],
)
def test_a_factor_that_changes_after_the_product(operate, by, use_resource, fresh):
    gradient = operate(START - 7, 1.0 if by is by_computed else 0.5)
    for setting in ("off", "require"):
        actual = changed_after_the_product(setting, operate, by, use_resource)
        np.testing.assert_array_equal(actual, START - np.float32(0.5) * gradient)

"""Tests that a native kernel computes the global norm of gradients."""

import warnings

import numpy as np
import pytest
import tensorflow as tf

import legacy_opt
from legacy_opt.core import gradient_values
from legacy_opt.core.user_warnings import NativeKernelWarning
from legacy_opt.native import accelerate
from legacy_opt.native.updates import norms
from legacy_opt.programs.program import UnsupportedError
from tests.native.training import START, Sgd
from tests.support import running

v1 = tf.compat.v1
RANDOM = np.random.RandomState(3)
SHAPES = [(300, 257), (7,), (), (0, 4), (1, 1, 3)]
ARRAYS = [np.asarray(RANDOM.normal(size=shape)) for shape in SHAPES]


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_the_norm_is_that_of_numpy(dtype, fresh):
    with tf.Graph().as_default(), v1.Session() as session:
        tensors = [tf.cast(array, dtype) for array in ARRAYS]
        norm = norms.global_norm(tensors, "require")
        assert norm.dtype == dtype and norm.shape == []
        norm, *rounded = session.run([tf.cast(norm, tf.float64)] + tensors)
    squares = [np.sum(np.square(each.astype(np.float64))) for each in rounded]
    # Except for float64, the kernel rounds each square to float32. Finally, the kernel rounds the
    # norm to the dtype.
    resolution = {"float64": 1e-15, "float32": 1e-7, "float16": 1e-3, "bfloat16": 1e-2}[dtype]
    np.testing.assert_allclose(norm, np.sqrt(sum(squares)), rtol=resolution)


def trained(make, types=None):
    with tf.Graph().as_default() as graph:
        table = v1.get_variable("table", initializer=START, use_resource=True)
        bias = v1.get_variable("bias", initializer=START[0], use_resource=True)
        unused = v1.get_variable("unused", initializer=START[0], use_resource=True)
        rows = tf.IndexedSlices(tf.constant(START[:3]), tf.constant([4, 1, 4]), START.shape)
        pairs = [(rows, table), (tf.constant(START[3]), bias), (None, unused)]
        train_op = make().apply_gradients(pairs)
        types = {each.type for each in graph.get_operations()}
        return running.after(train_op, [table, bias]), types


def clipping():
    return legacy_opt.ClipByGlobalNormOptimizer(Sgd(), 2.0)


def test_accelerate_includes_the_norm_of_a_wrapper(fresh):
    expected, types = trained(clipping)
    assert "L2Loss" in types
    actual, types = trained(lambda: accelerate(clipping(), require=True))
    assert "LegacyOptSums" in types and "L2Loss" not in types
    for found, wanted in zip(actual, expected):
        np.testing.assert_allclose(found, wanted, rtol=1e-6)


def test_enable_includes_the_norms_of_functions(fresh):
    legacy_opt.native.enable(require=True)
    with tf.Graph().as_default() as graph:
        pairs = [(tf.constant(START), None), (None, None)]
        _, norm = legacy_opt.clip_gradients_by_global_norm(pairs, 2.0)
        with v1.Session() as session:
            found = session.run(norm)
        assert "LegacyOptSums" in {each.type for each in graph.get_operations()}
    np.testing.assert_allclose(found, np.linalg.norm(START), rtol=1e-6)


def pairs_on(*devices):
    for device in devices:
        with tf.device(device):
            yield tf.constant(START), None


def with_setting(native):
    """Returns an optimizer that allows or requires kernels."""
    optimizer = legacy_opt.LazyAdamOptimizer()
    optimizer.native = native
    return optimizer


def test_gradients_in_several_processes(fresh):
    with tf.Graph().as_default():
        pairs = list(pairs_on("/job:ps/cpu:0", "/cpu:0"))
        with pytest.raises(UnsupportedError, match="the gradients are in several processes: "):
            gradient_values.global_norm(pairs, with_setting("require"))
        with pytest.warns(NativeKernelWarning, match="There is no native global norm: "):
            assert gradient_values.global_norm(pairs, with_setting("auto")).op.type == "Sqrt"


def test_gradients_on_several_devices_of_a_process(fresh):
    config = v1.ConfigProto(device_count={"CPU": 2})
    with tf.Graph().as_default(), v1.Session(config=config) as session:
        norm = gradient_values.global_norm(
            list(pairs_on("/cpu:0", "/cpu:1", None)), with_setting("require")
        )
        found = session.run(norm)
    np.testing.assert_allclose(found, np.sqrt(3) * np.linalg.norm(START), rtol=1e-6)


def test_gradients_on_a_gpu(fresh):
    message = "a gradient is on /device:GPU:0; kernels run"
    with tf.Graph().as_default(), pytest.raises(UnsupportedError, match=message):
        gradient_values.global_norm(list(pairs_on("/cpu:0", "/gpu:0")), with_setting("require"))


def test_eager_execution(fresh):
    with tf.init_scope():
        norm = norms.global_norm([tf.constant(START), tf.constant(START[0])], "require")
        if tf.executing_eagerly():  # not on TensorFlow 1
            expected = np.sqrt(np.sum(np.square(START)) + np.sum(np.square(START[0])))
            np.testing.assert_allclose(norm.numpy(), expected, rtol=1e-6)


WITHOUT_KERNEL = {
    "ClipByValueOptimizer clips values": lambda inner: legacy_opt.ClipByValueOptimizer(
        inner, -1.0, 1.0
    ),
    "ClipByNormOptimizer computes the norm": lambda inner: legacy_opt.ClipByNormOptimizer(
        inner, 1.0
    ),
    "GradientAccumulationOptimizer adds up gradients": (
        lambda inner: legacy_opt.GradientAccumulationOptimizer(inner, 2)
    ),
    "VariableClippingOptimizer clips variables": (
        lambda inner: legacy_opt.VariableClippingOptimizer(inner, {}, 1.0)
    ),
    "LossScaleOptimizer tests whether": lambda inner: legacy_opt.LossScaleOptimizer(
        inner, legacy_opt.FixedLossScaleManager(64.0)
    ),
    "MultitaskOptimizerWrapper tests whether": legacy_opt.MultitaskOptimizerWrapper,
}


@pytest.mark.parametrize("text", WITHOUT_KERNEL)
def test_a_wrapper_says_once_what_has_no_kernel(text, fresh):
    def make():
        return accelerate(WITHOUT_KERNEL[text](Sgd()), require=True)

    with pytest.warns(NativeKernelWarning, match=f"{text}.* by TensorFlow operations, for which"):
        _, types = trained(make)
    assert any("LegacyOptUpdate" in each for each in types)
    with warnings.catch_warnings():
        warnings.simplefilter("error", NativeKernelWarning)
        trained(make)

"""Tests of the linear layer of `tf.contrib.rnn`'s private module."""

import importlib

import numpy as np
import pytest
import tensorflow as tf

from legacy_opt import compat
from tests.contrib.pieces import run

v1 = tf.compat.v1
ONE, OTHER = np.float64([[1.0, 2.0], [3.0, 5.0]]), np.float64([[7.0], [11.0]])


def private_names():
    """Returns `_linear` and `_Linear` as old programs import them: tf.contrib's on 1.15."""
    with compat.patch_tensorflow():
        home = importlib.import_module("tensorflow.contrib.rnn.python.ops.core_rnn_cell")
        return home._linear, home._Linear


def test_linear_of_several_tensors():
    linear, layer = private_names()

    def build():
        inputs = [tf.constant(ONE), tf.constant(OTHER)]
        with v1.variable_scope("a", initializer=v1.ones_initializer()):
            first = linear(inputs, 2, True, v1.constant_initializer(0.5))
        with v1.variable_scope("b", partitioner=v1.fixed_size_partitioner(2)):
            second = linear(inputs[0], 3, True, None, v1.constant_initializer(2.0))
        with v1.variable_scope("c"):
            shared = layer(inputs, 2, False, kernel_initializer=v1.constant_initializer(3.0))
            third = shared(inputs) + shared(inputs[::-1])
        names = [each.op.name for each in v1.global_variables()]
        assert names == ["a/kernel", "a/bias", "b/kernel/part_0", "b/kernel/part_1", "b/bias"] + [
            "c/kernel"
        ]
        return first, second, third

    first, second, third = run(build)
    np.testing.assert_array_equal(first, [[10.5, 10.5], [19.5, 19.5]])
    np.testing.assert_array_equal(second, [[6.0] * 3, [16.0] * 3])
    np.testing.assert_array_equal(third, [[60.0, 60.0], [114.0, 114.0]])


@pytest.mark.parametrize("args", [None, [], np.float32([1.0])])
def test_linear_refuses(args):
    linear, _ = private_names()
    with tf.Graph().as_default(), pytest.raises(ValueError):
        linear(tf.constant(args) if isinstance(args, np.ndarray) else args, 2, True)

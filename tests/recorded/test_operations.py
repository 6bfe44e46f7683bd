"""Tests each row of the table of operations on each target that needs no library of its own.

tests/recorded/torch and tests/recorded/jax compare the same records in PyTorch and in JAX.
"""

import itertools
import math
import re

import numpy as np
import pytest
import tensorflow as tf

from legacy_opt import recorded
from legacy_opt.programs.operations import OPERATIONS, SUMS
from legacy_opt.recorded.arrays.interpreter import Computation
from legacy_opt.recorded.native import NativeOptimizer
from legacy_opt.recorded.numpy import NumpyLibrary
from tests.recorded import operation_records
from tests.support.paths import DOCS

v1 = tf.compat.v1
# What Python's numbers say of each operation of floats, besides the four arithmetical ones.
MEANINGS = {
    "Abs": abs,
    "AddN": lambda a, b, c: a + b + c,
    "ClipByValue": lambda a, b, c: min(max(a, b), c),
    "DivNoNan": lambda a, b: a / b if b else 0.0,
    "Exp": math.exp,
    "Expm1": math.expm1,
    "Log": lambda a: math.log(a) if a > 0 else -math.inf if a == 0 else math.nan,
    "Log1p": lambda a: math.log1p(a) if a > -1 else -math.inf if a == -1 else math.nan,
    "Maximum": max,
    "Minimum": min,
    "Pow": lambda a, b: math.nan if a < 0 and b != int(b) else math.inf if a == 0 > b else a**b,
    "Reciprocal": lambda a: 1 / a if a else math.inf,
    "Rsqrt": lambda a: math.nan if a < 0 else a**-0.5 if a else math.inf,
    "Sigmoid": lambda a: 1 / (1 + math.exp(-a)),
    "Sign": lambda a: (a > 0) - (a < 0),
    "SoftplusGrad": lambda a, b: a / (math.exp(-b) + 1),
    "Sqrt": lambda a: math.nan if a < 0 else a**0.5,
    "SquaredDifference": lambda a, b: (a - b) ** 2,
    "Tanh": math.tanh,
}
NUMBERS = [-30.0, -2.5, -1.0, -1e-9, 0.0, 1e-9, 0.3, 1.0, 2.0, 40.5]


@pytest.mark.parametrize("name", sorted(MEANINGS))
def test_operations_mean_what_python_computes(name):
    count = OPERATIONS[name].operands or 3
    operands = np.array(list(itertools.product(NUMBERS, repeat=count))).T
    with np.errstate(all="ignore"):
        found = Computation(NumpyLibrary(), "float64")(name, *operands)
    expected = [float(MEANINGS[name](*each)) for each in operands.T.tolist()]
    # The error of a power grows with its exponent: see "The bits of the result" in docs/native.md.
    rtol = 1e-13 if name == "Pow" else 4e-16
    np.testing.assert_allclose(found, expected, rtol=rtol, atol=1e-300)


@pytest.mark.one_lane  # neither NumPy nor a kernel calls TensorFlow
@operation_records.EVERY
def test_kernels_and_numpy_compute_the_same_bits(name, record):
    assert recorded.loads(recorded.dumps(record)) == record
    found = operation_records.in_numpy(name, record, NativeOptimizer)
    assert operation_records.same(found, operation_records.in_numpy(name, record))


@pytest.mark.one_lane
@operation_records.EVERY
def test_operations_are_those_of_tensorflow(name, record):
    """TensorFlow may differ in the last bits, and older versions at infinities and NaN."""
    gradient, value = operation_records.operands(name, record.dtype)
    with tf.Graph().as_default(), v1.Session() as session:
        results = []
        for node in record.groups[0].dense.nodes:
            operands = [results[each] for each in node.inputs]
            results.append(in_tensorflow(node, operands, {"gradient": gradient, "value": value}))
        expected = np.broadcast_to(session.run(results[-1]), value.shape)
    # The error of a power grows with its exponent.
    units = 1024 if name == "Pow" else 64 if OPERATIONS[name].rounds else 0
    rtol = units * np.finfo(record.dtype).eps
    found = operation_records.in_numpy(name, record)
    usual = np.isfinite(gradient) & np.isfinite(value) & np.isfinite(expected)
    assert usual.mean() > 0.25
    atol = np.finfo(record.dtype).eps if units else 0
    np.testing.assert_allclose(found[usual], expected[usual], rtol=rtol, atol=atol)


def test_the_page_names_the_elementary_functions():
    page = (DOCS / "recorded_rules.md").read_text(encoding="utf-8")
    (sentence,) = re.findall(r"rounded to nearest\. (.*?) are computed in float64", page, re.S)
    functions = {name for name, row in OPERATIONS.items() if row.function}
    assert set(re.findall(r"`(\w+)`", sentence)) == functions


def in_tensorflow(node, operands, tensors):
    """Returns the tensor of a node."""
    name = node.operation
    if name == "Input":
        return tf.constant(tensors[node.detail[1]])
    if name == "Const":
        return tf.constant(node.detail, node.dtype)
    if name == "Cast":
        return tf.cast(operands[0], node.dtype)
    if name in SUMS:
        return getattr(tf, f"reduce_{name.lower()}")(operands[0])
    if name == "AddN":
        shape = tf.shape(operands[0])
        return tf.add_n([tf.broadcast_to(each, shape) for each in operands])
    if name == "Select":
        return tf.where(*operands)
    if name == "ClipByValue":
        limits = {"clip_value_min": operands[1], "clip_value_max": operands[2]}
        return tf.raw_ops.ClipByValue(t=operands[0], **limits)
    if name == "SoftplusGrad":
        return tf.raw_ops.SoftplusGrad(gradients=operands[0], features=operands[1])
    return FUNCTIONS[name](*operands)


FUNCTIONS = {
    "Abs": tf.abs,
    "Add": tf.add,
    "DivNoNan": tf.math.divide_no_nan,
    "Equal": tf.equal,
    "Exp": tf.exp,
    "Expm1": tf.math.expm1,
    "FloorDiv": tf.math.floordiv,
    "FloorMod": tf.math.floormod,
    "Greater": tf.greater,
    "GreaterEqual": tf.greater_equal,
    "Less": tf.less,
    "LessEqual": tf.less_equal,
    "Log": tf.math.log,
    "Log1p": tf.math.log1p,
    "LogicalAnd": tf.logical_and,
    "LogicalNot": tf.logical_not,
    "LogicalOr": tf.logical_or,
    "Maximum": tf.maximum,
    "Minimum": tf.minimum,
    "Mul": tf.multiply,
    "Neg": tf.negative,
    "NotEqual": tf.not_equal,
    "Pow": tf.pow,
    "RealDiv": tf.realdiv,
    "Reciprocal": tf.math.reciprocal,
    "Rsqrt": tf.math.rsqrt,
    "Sigmoid": tf.sigmoid,
    "Sign": tf.sign,
    "Sqrt": tf.sqrt,
    "Square": tf.square,
    "SquaredDifference": tf.math.squared_difference,
    "Sub": tf.subtract,
    "Tanh": tf.tanh,
}

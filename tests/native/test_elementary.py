"""Compares functions of native kernels, such as exp, with NumPy functions of higher precision."""

import numpy as np
import pytest
import tensorflow as tf

from legacy_opt.native.runtime import standalone
from tests.native.rules import kernel

FUNCTIONS = {
    "exp": (tf.exp, np.exp, (-87, 88)),
    "expm1": (tf.math.expm1, np.expm1, (-30, 80)),
    "log": (tf.math.log, np.log, (1e-30, 1e30)),
    "log1p": (tf.math.log1p, np.log1p, (-0.999, 1e6)),
    "tanh": (tf.tanh, np.tanh, (-12, 12)),
    "sigmoid": (tf.sigmoid, lambda x: 1 / (1 + np.exp(-x)), (-80, 80)),
    "sqrt": (tf.sqrt, np.sqrt, (0, 1e30)),
    "rsqrt": (tf.math.rsqrt, lambda x: 1 / np.sqrt(x), (1e-30, 1e30)),
}


def arguments(low, high, dtype):
    """Returns random numbers between two bounds. Some are uniform, others log-uniform."""
    random = np.random.RandomState(0)
    even = random.uniform(low, high, 20000)
    signs = np.where(low < 0, random.choice([-1, 1], 20000), 1)
    spread = signs * np.exp(random.uniform(np.log(1e-8), np.log(high), 20000))
    return np.concatenate([even, spread[(spread > low) & (spread < high)]]).astype(dtype)


def computed(function, x, dtype):
    value = np.zeros_like(x)
    standalone.update(kernel(function, dtype), value, x, {}, {})
    return value


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_errors_in_units_of_the_last_place(name, dtype):
    function, expected, bounds = FUNCTIONS[name]
    x = arguments(*bounds, dtype)
    found = computed(function, x, dtype)
    wide = expected(x.astype(np.float64 if dtype == "float32" else np.longdouble))
    units = np.abs(found - wide) / np.spacing(np.abs(wide.astype(dtype)))
    # In kernels, a float32 function computes in float64 and rounds the result once. Only
    # 1 / sqrt(x) rounds twice.
    assert np.max(units) <= (0.501 if dtype == "float32" and name != "rsqrt" else 3)


@pytest.mark.parametrize("stride", [257, pytest.param(1, marks=pytest.mark.full)])
def test_exp_of_float32_has_the_bits_of_exp_of_float64(stride):
    def wide(x):
        return tf.cast(tf.exp(tf.cast(x, tf.float64)), tf.float32)

    kernels = [kernel(function, "float32") for function in (tf.exp, wide)]
    for start in range(0, 2**32, 2**22 * stride):
        stop = min(2**32, start + 2**22 * stride)
        x = np.arange(start, stop, stride, np.int64).astype(np.uint32).view(np.float32)
        values = [np.zeros_like(x), np.zeros_like(x)]
        for each, value in zip(kernels, values):
            standalone.update(each, value, x, {}, {})
        np.testing.assert_array_equal(*values)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_special_arguments(dtype):
    x = np.array([np.nan, np.inf, -np.inf, 0.0, -1.0], dtype)
    with np.errstate(all="ignore"):
        for name, (function, expected, _) in FUNCTIONS.items():
            wanted = expected(x.astype(np.float64)).astype(dtype)
            np.testing.assert_array_equal(computed(function, x[:4], dtype), wanted[:4], name)
        log = computed(tf.math.log, x, dtype)
    assert np.isnan(log[4]) and log[3] == -np.inf


def test_powers_of_numbers_that_are_not_positive():
    base = np.array([-2.0, -2.0, 0.0, 0.0, -2.0, 3.0], np.float32)
    for exponent, expected in (2.0, [4, 4, 0, 0, 4, 9]), (3.0, [-8, -8, 0, 0, -8, 27]):
        np.testing.assert_array_equal(
            computed(lambda x, exponent=exponent: x**exponent, base, "float32"), expected
        )
    assert np.isnan(computed(lambda x: x**0.5, base, "float32")[0])


def test_all_numbers_of_float16_are_read_and_written():
    x = np.arange(65536).astype(np.uint16).view(np.float16)
    found = computed(tf.identity, x, "float16")
    np.testing.assert_array_equal(found, x)
    finite = np.isfinite(x)
    doubled = computed(lambda each: each + each, x[finite], "float16")
    with np.errstate(over="ignore"):
        np.testing.assert_array_equal(doubled, x[finite] + x[finite])


@pytest.mark.parametrize("dtype", [tf.float16, tf.bfloat16])
def test_results_in_16_bits_are_rounded_to_the_nearest(dtype):
    """TensorFlow's own casts from float32 are the reference."""
    random = np.random.RandomState(1)
    x = (random.standard_normal(50000) * 10.0 ** random.randint(-7, 6, 50000)).astype(np.float32)
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        wanted = session.run(tf.cast(x, dtype))
    source = kernel(lambda each: tf.cast(tf.cast(each, dtype), tf.float32), "float32")
    found = np.zeros_like(x)
    standalone.update(source, found, x, {}, {})
    np.testing.assert_array_equal(found, wanted.astype(np.float32))

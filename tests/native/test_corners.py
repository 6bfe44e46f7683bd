"""Compares casts, floor divisions and powers of native kernels with other programs' results."""

import ctypes

import numpy as np
import pytest
import tensorflow as tf

from legacy_opt.native.compiler.emit import emit
from legacy_opt.native.compiler.inputs import inputs_of
from legacy_opt.native.runtime import cache, compiled_kernels, standalone
from legacy_opt.programs.program import UnsupportedError
from tests.native.rules import traced
from tests.support import native_corners
from tests.tools import bits

v1 = tf.compat.v1
FLOATS = tuple(each for each in native_corners.DTYPES if each not in native_corners.DIVISORS)


@pytest.fixture(scope="module")
def found():
    """Returns {dtype: {name of an operation: results}}."""
    return {
        dtype: {
            name: result
            for group in native_corners.groups(dtype)
            for name, result in native_corners.run(
                compiled_kernels.compiled(*native_corners.program(group, dtype)), dtype
            ).items()
        }
        for dtype in native_corners.DTYPES
    }


def plain(array):
    """Returns an array in a dtype that NumPy knows."""
    return array.astype(np.float32) if array.dtype.kind == "V" else array


@pytest.mark.parametrize("dtype", native_corners.DTYPES)
def test_casts_are_those_of_tensorflow(dtype, found):
    with tf.Graph().as_default(), v1.Session() as session:
        given = tf.constant(native_corners.numbers(dtype)[0])
        for name, result in found[dtype].items():
            kind, _, other = name.rpartition(" ")
            if kind in ("cast to", "through"):
                wanted = plain(session.run(tf.cast(tf.cast(given, other), result.dtype)))
                np.testing.assert_array_equal(plain(result), wanted, name)
                is_zero = wanted == 0  # a zero from an integer is positive
                np.testing.assert_array_equal(
                    np.signbit(plain(result)[is_zero]), np.signbit(wanted[is_zero]), name
                )


@pytest.mark.parametrize("dtype", native_corners.DIVISORS)
def test_floor_divisions_are_those_of_python(dtype, found):
    first, limits = native_corners.numbers(dtype)[0], np.iinfo(dtype)
    for divisor in native_corners.DIVISORS[dtype]:
        wanted = [divmod(int(each), divisor) for each in first]
        # The lowest integer, divided by -1, is itself: it has no counterpart.
        quotients = [limits.min if each > limits.max else each for each, _ in wanted]
        np.testing.assert_array_equal(found[dtype][f"// {divisor}"], quotients)
        np.testing.assert_array_equal(found[dtype][f"% {divisor}"], [each for _, each in wanted])


@pytest.mark.parametrize("dtype", FLOATS)
def test_powers_have_the_corners_of_c99(dtype, found):
    first, second = (plain(each).astype(np.longdouble) for each in native_corners.numbers(dtype))
    power = found[dtype]["power"]
    with np.errstate(all="ignore"):
        exact = np.power(first, second)
        wanted = plain(
            exact.astype(np.float64 if dtype == "float64" else np.float32).astype(power.dtype)
        )
        exponent = np.abs(second * np.log(np.abs(first)))
    power = plain(power)
    is_corner = ~np.isfinite(wanted) | (wanted == 0) | (np.abs(wanted) == 1) | (second == 1)
    np.testing.assert_array_equal(power[is_corner], wanted[is_corner])
    zero = wanted == 0
    np.testing.assert_array_equal(np.signbit(power[zero]), np.signbit(wanted[zero]))
    # The error of a float64 power grows with the exponent of e.
    power, wanted, exponent = (each[~is_corner] for each in (power, wanted, exponent))
    units = np.abs(power - wanted) / np.spacing(np.abs(wanted))
    assert np.all(units <= (3 + 2 * exponent if dtype == "float64" else 1))


def test_all_instruction_sets_compute_the_same_bits(found, tmp_path):
    sets = [
        flags
        for flags, feature in bits.INSTRUCTION_SETS.values()
        if flags and feature in bits.processor_features()
    ]
    for dtype in "float32", "float64":
        *_, group = native_corners.groups(dtype)
        program = native_corners.program(group, dtype)
        for flags in sets:
            path = tmp_path / f"{dtype}{flags}.so"
            command = [*cache.find_compiler("C", "CC", "cc"), *cache.FLAGS, "-DVECTORIZED=", flags]
            cache.compile_library(command, emit(*program), ".c", path)
            kernel = compiled_kernels.Kernel(
                program[0], inputs_of(*program), "", ctypes.CDLL(str(path))
            )
            for name, result in native_corners.run(kernel, dtype).items():
                np.testing.assert_array_equal(plain(result), plain(found[dtype][name]), name)


NARROW = ("int8", "int16", "uint8", "uint16", "uint32", "uint64")


@pytest.mark.parametrize("dtype", NARROW)
def test_other_integers_have_no_kernel(dtype):
    with pytest.raises(UnsupportedError, match=f"do not support the dtype {dtype}"):
        traced(lambda grad, value: tf.cast(tf.cast(grad, dtype), tf.float32))


@pytest.mark.parametrize("dtype", native_corners.DIVISORS)
@pytest.mark.parametrize("divide", [tf.math.floordiv, tf.math.floormod, tf.compat.v1.div])
@pytest.mark.parametrize("divisor", ["0", "a value"])
def test_integers_are_divided_only_by_constants_other_than_0(dtype, divide, divisor):
    def update(grad, value):
        number = tf.cast(grad, dtype)
        return tf.cast(divide(number, number * 0 + 1 if divisor == "a value" else 0), grad.dtype)

    with pytest.raises(UnsupportedError, match="only by constants other than 0"):
        emit(traced(update))


def test_sums_of_integers_are_exact_or_refused():
    def update(function):
        return traced(lambda grad, value: tf.cast(function(tf.cast(grad, tf.int32)), tf.float32))

    given = np.full(4, 2.0**30, np.float32)
    result = np.zeros_like(given)
    standalone.update(compiled_kernels.compiled(update(tf.reduce_sum)), result, given, {}, {})
    np.testing.assert_array_equal(result, np.zeros(4))  # 2**32, as in TensorFlow
    with pytest.raises(UnsupportedError, match="Mean in int32"):
        emit(update(tf.reduce_mean))
    emit(update(lambda x: tf.math.count_nonzero(x)))
    with pytest.raises(UnsupportedError, match="Sum in int64"):
        emit(
            traced(lambda grad, value: tf.cast(tf.reduce_sum(tf.cast(grad, tf.int64)), tf.float32))
        )

"""Tests that training goes on without a kernel, or with it, where programs used to crash."""

import functools
import warnings
from typing import Callable

import numpy as np
import pytest
import tensorflow as tf

import legacy_opt
from legacy_opt import native, versions
from legacy_opt.compat import to_keras
from legacy_opt.core.gradient_values import values_of, with_values
from legacy_opt.core.user_warnings import NativeKernelWarning
from legacy_opt.native import settings
from legacy_opt.native.updates import check, kernel_choice
from legacy_opt.programs import operations
from legacy_opt.programs.program import UnsupportedError
from tests.native.training import Sgd
from tests.support import running
from tests.support.keras.keras_apis import KERAS_3

v1 = tf.compat.v1
START = np.array([[1.0, -2.0], [3.0, 0.5], [0.25, 8.0]], np.float32)
ROWS = np.array([[0.5, 0.25], [0.125, 1.0], [2.0, -1.0]], np.float32)


def in_session(make, gradient, native_, start=START, steps=2, **variable):
    """Trains a variable in a Session; returns its value and whether a kernel updates it."""
    with tf.Graph().as_default() as graph:
        v1.train.get_or_create_global_step()
        optimizer = make()
        optimizer.native = native_
        value = v1.placeholder_with_default(start, None) if variable else start
        weights = v1.Variable(value, **variable)
        train = optimizer.apply_gradients([(gradient(), weights)])
        is_native = any("LegacyOpt" in each.type for each in graph.get_operations())
        return running.after(train, weights, steps), is_native


def rows():
    return tf.IndexedSlices(tf.constant(ROWS), tf.constant([2, 0, 2]), tf.constant([3, 2]))


def dense():
    return tf.constant(ROWS)


class NormOfRows(Sgd):
    def rule(self, grad, value, slots, hyper):
        return hyper.learning_rate * grad / tf.sqrt(tf.reduce_sum(grad * grad)), {}


def test_a_rule_that_sums_over_touched_rows(fresh):
    expected, _ = in_session(NormOfRows, rows, "off")
    with pytest.warns(NativeKernelWarning, match="sums over all rows"):
        found, is_native = in_session(NormOfRows, rows, "auto")
    assert not is_native and np.array_equal(found, expected)
    with pytest.raises(UnsupportedError, match="set whole_tensor = True"):
        in_session(NormOfRows, rows, "require")
    assert in_session(NormOfRows, dense, "require")[1]


class Momentum(legacy_opt.RuleOptimizer):
    slots = {"sum": legacy_opt.Slot()}

    def __init__(self):
        super().__init__(False, "Momentum", learning_rate=0.5)

    def rule(self, grad, value, slots, hyper):
        total = 0.5 * slots.sum + grad
        return hyper.learning_rate * total, {"sum": total}


def accelerated():
    return native.accelerate(v1.train.MomentumOptimizer(0.5, 0.5))


@pytest.fixture
def v1_control_flow():
    """With v2 control flow, TensorFlow's own initializers of slots race with the variable's."""
    with versions.v1_control_flow():
        yield


@pytest.mark.parametrize("use_resource", [False, True], ids=["ref", "resource"])
@pytest.mark.parametrize("gradient", [dense, rows])
@pytest.mark.parametrize("make", [Momentum, accelerated])
def test_a_variable_of_unknown_rank(make, gradient, use_resource, v1_control_flow):
    options = {"validate_shape": False, "use_resource": use_resource}
    expected, _ = in_session(make, gradient, "off", **options)
    found, is_native = in_session(make, gradient, "require", **options)
    assert is_native and np.array_equal(found, expected)


def test_a_sum_over_a_variable_of_unknown_rank(fresh):
    with pytest.warns(NativeKernelWarning, match="of a value of unknown rank"):
        _, is_native = in_session(NormOfRows, dense, "auto", validate_shape=False)
    assert not is_native


@pytest.mark.parametrize("shape", [None, [None, 2]], ids=str)
def test_an_eager_variable_of_unknown_shape(shape, fresh):
    """In eager execution, a rule may read the shape of the value."""
    optimizer = Momentum()
    optimizer.native = "auto"
    weights = tf.Variable(START, shape=tf.TensorShape(shape))
    with pytest.warns(NativeKernelWarning, match="is not fully known"):
        optimizer.apply_gradients([(dense(), weights)])
    optimizer.apply_gradients([(dense(), weights)])
    assert np.array_equal(weights.numpy(), in_session(Momentum, dense, "off")[0])


CONDITIONS = {
    "last length": lambda value: value.shape[-1] == 2,
    "first length": lambda value: value.shape[0] == 3,
    "lengths": lambda value: value.shape.as_list() == [3, 2],
    "slice": lambda value: value.shape[-1:] == [2],
    "known": lambda value: value.shape.is_fully_defined(),
    "rank": lambda value: value.shape.rank == 2,
    "size": lambda value: (value.shape.num_elements() or 0) > 5,
}


class ByShape(Sgd):
    condition: Callable[[tf.Tensor], bool]

    def rule(self, grad, value, slots, hyper):
        factor = 0.5 if type(self).condition(value) else 2.0
        return factor * hyper.learning_rate * grad, {"sum": slots.sum + grad}


@pytest.mark.parametrize("gradient", [dense, rows])
@pytest.mark.parametrize("name", CONDITIONS)
def test_a_rule_that_reads_the_shape_in_python(name, gradient, fresh):
    fresh.setattr(ByShape, "condition", staticmethod(CONDITIONS[name]), raising=False)
    fresh.setattr(check, "MOST_ELEMENTS", 6 if gradient is dense else 128)
    results = {}
    for setting in ("off", "auto"):
        optimizer, weights = ByShape(), tf.Variable(START)
        optimizer.native = setting
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            optimizer.apply_gradients([(gradient(), weights)])
            results[setting] = [weights.numpy(), in_session(ByShape, gradient, setting)[0]]
    np.testing.assert_array_equal(results["auto"], results["off"])
    assert gradient is rows or not caught  # the kernel has the branch of this shape


class BranchesByRate(Sgd):
    def rule(self, grad, value, slots, hyper):
        change = tf.where(hyper.learning_rate > 1, tf.sqrt(tf.abs(grad)), grad)
        return change, {"sum": slots.sum + grad}


def test_the_check_runs_all_branches_of_scalars(fresh):
    wrong = operations.OPERATIONS["Sqrt"]._replace(code="__builtin_sqrt{f}({0}) * 3")
    fresh.setitem(operations.OPERATIONS, "Sqrt", wrong)
    with pytest.raises(UnsupportedError, match="but TensorFlow computes"):
        in_session(BranchesByRate, dense, "require")
    ftrl = functools.partial(v1.train.FtrlOptimizer, 0.1)
    with pytest.raises(UnsupportedError, match="but TensorFlow computes"):
        in_session(lambda: native.accelerate(ftrl()), dense, "require")


@pytest.mark.keras3
@pytest.mark.parametrize("gradient", [dense, rows])
@pytest.mark.parametrize("dtype", ["float16", "float64", "int32"])
def test_keras_3_casts_gradients_before_kernels_run(dtype, gradient, fresh):
    optimizer = Momentum()
    optimizer.native = "require"
    bridged, weights = KERAS_3.bridged(optimizer), tf.Variable(START)
    given = with_values(gradient(), tf.cast(values_of(gradient()), dtype))
    for _ in range(2):
        bridged.apply_gradients([(given, weights)])

    def cast():
        return with_values(gradient(), tf.cast(tf.cast(ROWS, dtype), tf.float32))

    assert np.array_equal(weights.numpy(), in_session(Momentum, cast, "require")[0])


def scaled():
    return v1.placeholder_with_default(np.float64(0.5), []) * tf.constant(ROWS, tf.float64)


def centered():
    return native.accelerate(v1.train.RMSPropOptimizer(0.1, centered=True))


def test_a_check_of_numbers_that_cancel_out(fresh):
    """Centered RMSProp subtracts two numbers that are almost equal for some drawn inputs."""
    start = START.astype(np.float64)
    assert in_session(centered, scaled, "require", start)[1]


@pytest.mark.parametrize("value", [False, True, 0, "", "on", "yes"])
def test_a_setting_that_does_not_exist(value, fresh):
    fresh.setenv("LEGACY_OPT_NATIVE", "auto")
    with pytest.raises(ValueError, match=r"native must be one of 'off', .* got "):
        in_session(Momentum, dense, value)
    fresh.setenv(settings.VARIABLE, "1")
    with pytest.raises(ValueError, match="LEGACY_OPT_NATIVE must be one of .*got '1'"):
        Momentum().apply_gradients([(dense(), tf.Variable(START))])


class Fading(Sgd):
    """Reads an attribute, which the test sets to another number in each step."""

    limit = 1.0

    def rule(self, grad, value, slots, hyper):
        return self.limit * grad, {}


def test_an_attribute_that_changes_in_each_step(fresh):
    fresh.setattr(kernel_choice, "MOST_KERNELS", 3)
    results = []
    for each in ("off", "auto"):
        optimizer, weights = Fading(), tf.Variable(START)
        optimizer.native = each
        for step in range(5):
            optimizer.limit = 0.5**step
            if each == "auto" and step == 3:
                with pytest.warns(NativeKernelWarning, match="make the attribute a hyper"):
                    optimizer.apply_gradients([(dense(), weights)])
            else:
                optimizer.apply_gradients([(dense(), weights)])
        results.append(weights.numpy())
    assert len(kernel_choice._checked_kernels) == 3
    np.testing.assert_array_equal(*results)


def test_values_that_alternate_keep_their_kernels(fresh):
    fresh.setattr(kernel_choice, "MOST_KERNELS", 3)
    optimizer, weights = Fading(), tf.Variable(START)
    optimizer.native = "require"
    for step in range(8):
        optimizer.limit = 0.5 ** (step % 2)
        optimizer.apply_gradients([(dense(), weights)])
    assert len(kernel_choice._checked_kernels) == 2


def eager_values(make, native_, to_keras_, dtype="float64"):
    """Returns the values of a variable after each of three steps."""
    optimizer, weights, values = make(), tf.Variable(START.astype(dtype)), []
    optimizer.native = native_
    optimizer.global_step_is_advanced = True
    if to_keras_:
        optimizer = to_keras(optimizer)
    for _ in range(3):
        optimizer.apply_gradients([(tf.constant(ROWS, dtype), weights)])
        values.append(weights.numpy())
    return values


@pytest.mark.parametrize("through_keras", [False, True])
@pytest.mark.parametrize(
    "make",
    [
        lambda: legacy_opt.LARSOptimizer(0.1),
        lambda: legacy_opt.AdamWeightDecayOptimizer(0.1),
        lambda: legacy_opt.LAMBOptimizer(0.1),
        lambda: legacy_opt.AdafactorOptimizer(),
    ],
    ids=["LARS", "AdamWeightDecay", "LAMB", "Adafactor"],
)
def test_float64_in_eager_execution(make, through_keras, fresh):
    """These rules have numbers that are computed in Python, as eager tensors."""
    expected = eager_values(make, "off", through_keras)
    found = eager_values(make, "require", through_keras)
    np.testing.assert_allclose(found, expected, rtol=1e-14)  # kernels sum in another order


RATES = [(1, 0.5), (0.125, np.float64(0.25)), (np.float32(0.5), 1)]


@pytest.mark.parametrize("rates", RATES, ids=str)
def test_a_rate_whose_dtype_changes(rates, fresh):
    results = []
    for setting in ("off", "require"):
        optimizer, weights = Momentum(), tf.Variable(START)
        optimizer.native = setting
        for rate in rates * 2:
            optimizer._learning_rate = rate
            optimizer.apply_gradients([(dense(), weights)])
        results.append(weights.numpy())
    np.testing.assert_array_equal(*results)


class ByStep(Sgd):
    uses_global_step = True

    def rule(self, grad, value, slots, hyper):
        step = tf.cast(hyper.global_step + 1, grad.dtype)
        return hyper.learning_rate * grad / step, {}


def test_one_optimizer_in_graphs_with_other_dtypes(fresh):
    """The rate and the global step have other dtypes in each graph."""
    results = {"off": [], "require": []}
    for setting, values in results.items():
        rates = iter([1, 0.5, np.float64(0.25)] * 2)
        optimizer = ByStep(lambda rates=rates: next(rates))
        optimizer.native = setting
        for dtype in (tf.int32, tf.int64, tf.int32):
            with tf.Graph().as_default():
                step, weights = v1.Variable(0, dtype=dtype), v1.Variable(START)
                v1.add_to_collection(v1.GraphKeys.GLOBAL_STEP, step)
                train = optimizer.apply_gradients([(dense(), weights)], step)
                values.append(running.after(train, weights, 2))
    np.testing.assert_array_equal(results["require"], results["off"])

"""Tests the modes of native kernels, and errors in their operations."""

import os
import subprocess
import sys
import warnings

import numpy as np
import pytest
import tensorflow as tf

import legacy_opt
from legacy_opt.core import native_updates
from legacy_opt.core.user_warnings import NativeKernelWarning
from legacy_opt.native import cache, driver, modes
from legacy_opt.native.program import UnsupportedError

pytestmark = pytest.mark.every_lane  # each TensorFlow has a driver of its own
v1 = tf.compat.v1
START = np.arange(20, dtype=np.float32).reshape(5, 4)


class Sgd(legacy_opt.RuleOptimizer):
    """w -= learning_rate * g, as a user would write it."""

    slots = {"sum": legacy_opt.Slot()}

    def __init__(self, learning_rate=0.5, **options):
        super().__init__(False, "Sgd", learning_rate=learning_rate, **options)

    def rule(self, grad, value, slots, hyper):
        return hyper.learning_rate * grad, {"sum": slots.sum + grad}


class Sums(Sgd):
    """A rule with an operation that has no C code."""

    def rule(self, grad, value, slots, hyper):
        return hyper.learning_rate * tf.cumsum(grad), {}


def trained(optimizer, gradient=None, use_resource=True, feed=None, steps=1):
    """Returns the variable and the slot after training in a Session, and the operations' types."""
    with tf.Graph().as_default() as graph:
        variable = v1.get_variable("w", initializer=START, use_resource=use_resource)
        gradient = tf.ones_like(START) if gradient is None else gradient(variable)
        train_op = optimizer.apply_gradients([(gradient, variable)])
        with v1.Session() as session:
            session.run(v1.global_variables_initializer())
            for _ in range(steps):
                session.run(train_op, feed)
            slot = optimizer.get_slot(variable, "sum")
            return [*session.run([variable, slot]), {each.type for each in graph.get_operations()}]


def is_native(types):
    return any(each.startswith("LegacyOptUpdate") for each in types)


@pytest.fixture
def fresh(monkeypatch):
    """Forgets `enable`, the environment variable and the warnings that were given."""
    monkeypatch.setattr(modes, "_enabled", None)
    monkeypatch.delenv(modes.VARIABLE, raising=False)
    monkeypatch.setattr(native_updates, "_warned", set())
    return monkeypatch


def test_native_kernels_are_off_by_default(fresh):
    assert not is_native(trained(Sgd())[2])


@pytest.mark.parametrize("how", ["attribute", "class", "enable", "environment"])
def test_ways_to_turn_native_kernels_on(how, fresh):
    optimizer = Sgd()
    if how == "attribute":
        optimizer.native = "auto"
    elif how == "class":
        fresh.setattr(Sgd, "native", "require")
    elif how == "enable":
        legacy_opt.native.enable(require=True)
    else:
        fresh.setenv(modes.VARIABLE, "auto")
    value, slot, types = trained(optimizer)
    assert is_native(types)
    np.testing.assert_array_equal(value, START - 0.5)
    np.testing.assert_array_equal(slot, np.ones_like(START))


def test_a_mode_that_does_not_exist(fresh):
    optimizer = Sgd()
    optimizer.native = "yes"
    with pytest.raises(ValueError, match="native must be one of 'off', 'auto', 'require', got 'ye"):
        trained(optimizer)
    fresh.setenv(modes.VARIABLE, "1")
    with pytest.raises(ValueError, match="LEGACY_OPT_NATIVE must be one of .*got '1'"):
        trained(Sgd())


def test_auto_warns_once_and_trains_without_a_kernel(fresh):
    def train():
        optimizer = Sums()
        optimizer.native = "auto"
        return trained(optimizer)

    with pytest.warns(NativeKernelWarning, match="Sums runs without .*the operation Cumsum"):
        value, _, types = train()
    np.testing.assert_array_equal(value, START - 0.5 * np.cumsum(np.ones_like(START), axis=0))
    assert not is_native(types)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        train()


class HalfSlot(legacy_opt.Slot):
    """A user's layout, which kernels do not know: the rule gets half of the stored value."""

    def read(self, slot, access, like):
        return super().read(slot, access, like) / 2


def test_a_slot_that_is_read_in_another_way(fresh):
    optimizer = Sgd()
    optimizer.slots = {"sum": HalfSlot()}
    optimizer.native = "require"
    with pytest.raises(UnsupportedError, match="a slot of the layout HalfSlot"):
        trained(optimizer)


def test_the_counts_of_a_partition(fresh):
    """In a partition, AdagradDecay counts in more than one element: no kernel does so."""
    with tf.Graph().as_default():
        variable = v1.get_variable(
            "w", [4, 3], partitioner=v1.fixed_size_partitioner(2), use_resource=True
        )
        step = v1.train.get_or_create_global_step()
        optimizer = legacy_opt.AdagradDecayOptimizer(0.1, step)
        optimizer.use_fused_kernels = False
        optimizer.native = "require"
        with pytest.raises(UnsupportedError, match="a FlatElement of a partition"):
            optimizer.minimize(tf.reduce_sum(tf.convert_to_tensor(variable)), step)


def test_require_raises_the_reason(fresh):
    optimizer = Sums()
    optimizer.native = "require"
    with pytest.raises(UnsupportedError, match="Sums runs without a native kernel: the operation"):
        trained(optimizer)


def test_without_a_driver(fresh, tmp_path):
    fresh.setenv(cache.FOLDER_VARIABLE, str(tmp_path))
    fresh.setattr(driver.load, "cache_clear", driver.load.cache_clear, raising=False)
    driver.load.cache_clear()
    optimizer = Sgd()
    optimizer.native = "require"
    try:
        with pytest.raises(UnsupportedError, match="run `legacy-opt build-kernels` first"):
            trained(optimizer)
    finally:
        driver.load.cache_clear()


def native(**options):
    optimizer = Sgd(**options)
    optimizer.native = "require"
    return optimizer


@pytest.mark.parametrize("use_resource", [False, True])
def test_a_gradient_in_the_memory_of_the_variable(use_resource, fresh):
    value, slot, _ = trained(native(), tf.convert_to_tensor, use_resource)
    np.testing.assert_array_equal(value, START - 0.5 * START)
    np.testing.assert_array_equal(slot, START)


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
@pytest.mark.parametrize("use_resource", [False, True])
def test_rows_of_equal_ids_are_summed(dtype, use_resource, fresh):
    def gradient(variable):
        rows = tf.constant([[1.0] * 4, [2.0] * 4, [4.0] * 4])
        return tf.IndexedSlices(rows, tf.constant(np.array([3, 1, 3], dtype)), START.shape)

    value, slot, types = trained(native(), gradient, use_resource)
    assert any("LegacyOptUpdateRows" in each for each in types)
    expected = START.copy()
    expected[3] -= 2.5
    expected[1] -= 1
    np.testing.assert_array_equal(value, expected)
    np.testing.assert_array_equal(slot[:, 0], [0, 2, 0, 5, 0])


@pytest.mark.parametrize("wrong", [-1, 5])
def test_an_id_that_is_out_of_range(wrong, fresh):
    """The error names the id, and no row has changed."""
    with tf.Graph().as_default():
        variable = v1.get_variable("w", initializer=START, use_resource=True)
        gradient = tf.IndexedSlices(tf.ones([2, 4]), tf.constant([2, wrong]), START.shape)
        train_op = native().apply_gradients([(gradient, variable)])
        with v1.Session() as session:
            session.run(v1.global_variables_initializer())
            with pytest.raises(
                tf.errors.InvalidArgumentError, match=rf"= {wrong} is not in \[0, 5"
            ):
                session.run(train_op)
            np.testing.assert_array_equal(session.run(variable), START)


@pytest.mark.parametrize("shape", [[], [1], [3, 0], [70000], [3, 2, 2, 2]])
def test_shapes(shape, fresh):
    start = np.full(shape, 3, np.float32)
    with tf.Graph().as_default():
        variable = v1.get_variable("w", initializer=start, use_resource=True)
        train_op = native().apply_gradients([(tf.ones(shape), variable)])
        with v1.Session() as session:
            session.run(v1.global_variables_initializer())
            session.run(train_op)
            np.testing.assert_array_equal(session.run(variable), start - 0.5)


def test_a_variable_that_is_not_initialized(fresh):
    with tf.Graph().as_default():
        variable = v1.get_variable("w", initializer=START, use_resource=True)
        optimizer = native()
        train_op = optimizer.apply_gradients([(tf.ones_like(START), variable)])
        with v1.Session() as session:
            session.run(variable.initializer)
            with pytest.raises((tf.errors.FailedPreconditionError, tf.errors.NotFoundError)):
                session.run(train_op)


PROGRAM = """
import sys
import tensorflow as tf
from legacy_opt.native import driver
library = driver.load().operations
for key in sys.argv[1:]:
    with tf.Graph().as_default() as graph, tf.compat.v1.Session() as session:
        variable = tf.compat.v1.get_variable("w", [2], use_resource=True)
        session.run(variable.initializer)
        update = library.legacy_opt_update(
            variables=[variable.handle], scalars=[], gradients=[tf.ones([2])], kernel=key
        )
        try:
            session.run(update)
        except tf.errors.FailedPreconditionError as error:
            print(error.message)
"""


def test_a_graph_cannot_choose_a_file():
    """A graph from elsewhere may name any kernel, but only the user's own kernels are loaded."""
    messages = {
        "0" * 32: "is not in ",
        "../../../../etc/passwd": "is not named by a hash",
        "F" * 32: "is not named by a hash",
    }
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *messages],
        env=dict(os.environ, PYTHONPATH=os.pathsep.join(sys.path)),
        capture_output=True,
        text=True,
        check=False,
    )
    for key, message in messages.items():
        assert f"legacy_opt: the kernel {key} {message}" in done.stdout, done.stderr

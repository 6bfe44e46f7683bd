"""Tests the settings of native kernels, and errors in the operations that run kernels.

The operations library is the library of these operations.
"""

import concurrent.futures
import warnings

import numpy as np
import pytest
import tensorflow as tf

import legacy_opt
from legacy_opt.core.user_warnings import NativeKernelWarning
from legacy_opt.native import settings
from legacy_opt.native.runtime import cache, tensorflow_operations
from legacy_opt.programs import operations
from legacy_opt.programs.program import UnsupportedError
from tests.native.training import START, Sgd, is_native, native, trained
from tests.support import running
from tests.support.processes import programs

pytestmark = pytest.mark.every_lane  # each TensorFlow version has its own operations library
v1 = tf.compat.v1


class Sums(Sgd):
    """A rule with an operation that has no C code."""

    def rule(self, grad, value, slots, hyper):
        return hyper.learning_rate * tf.cumsum(grad), {}


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
        fresh.setenv(settings.VARIABLE, "auto")
    value, slot, types = trained(optimizer)
    assert is_native(types)
    np.testing.assert_array_equal(value, START - 0.5)
    np.testing.assert_array_equal(slot, np.ones_like(START))


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
    """A slot layout that kernels do not support: the rule gets half of the stored value."""

    def read(self, slot, access, like):
        return super().read(slot, access, like) / 2


def test_a_slot_that_is_read_in_another_way(fresh):
    optimizer = Sgd()
    optimizer.slots = {"sum": HalfSlot()}
    optimizer.native = "require"
    with pytest.raises(UnsupportedError, match="kernels do not support the slot layout HalfSlot"):
        trained(optimizer)


def test_the_counts_of_a_partition(fresh):
    """AdagradDecay reads the count in the first partition. Kernels cannot do this."""
    with tf.Graph().as_default():
        variable = v1.get_variable(
            "w", [4, 3], partitioner=v1.fixed_size_partitioner(2), use_resource=True
        )
        step = v1.train.get_or_create_global_step()
        optimizer = legacy_opt.AdagradDecayOptimizer(0.1, step)
        optimizer.use_fused_kernels = False
        optimizer.native = "require"
        with pytest.raises(UnsupportedError, match="FlatElement for a partition"):
            optimizer.minimize(tf.reduce_sum(tf.convert_to_tensor(variable)), step)


def test_require_raises_the_reason(fresh):
    optimizer = Sums()
    optimizer.native = "require"
    with pytest.raises(UnsupportedError, match="Sums runs without .*: kernels do not support the"):
        trained(optimizer)


def test_without_an_operations_library(fresh, tmp_path):
    fresh.setenv(cache.FOLDER_VARIABLE, str(tmp_path))
    fresh.setattr(tensorflow_operations, "_loaded", [])
    optimizer = Sgd()
    optimizer.native = "require"
    with pytest.raises(UnsupportedError, match="run `legacy-opt build-kernels` first"):
        trained(optimizer)


BUILT_LATER = """
import shutil, sys
from legacy_opt.native.runtime import cache, tensorflow_operations
try:
    tensorflow_operations.load()
except ValueError as error:
    assert str(error) == "run `legacy-opt build-kernels` first"
    shutil.copy(sys.argv[1], str(cache.folder()))
    tensorflow_operations.load()
    print("loaded")
"""


def test_an_operations_library_that_is_built_later(tmp_path):
    """Loads the operations library in another process, because a process can load only one."""
    environment = {cache.FOLDER_VARIABLE: str(tmp_path)}
    command = ["-c", BUILT_LATER, tensorflow_operations.path()]
    done = programs.run(*command, seconds=120, environment=environment)
    assert done.stdout.split() == ["loaded"], done.stderr


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


def test_small_variables_are_updated_together(fresh):
    """Two small float32 variables share an operation. The others have one operation each."""
    shapes = {"a": [7], "b": [300, 4], "large": [1200, 1200], "rows": [9, 2], "double": [3]}
    with tf.Graph().as_default() as graph:
        pairs = []
        for name, shape in shapes.items():
            dtype = tf.float64 if name == "double" else tf.float32
            start = tf.fill(shape, tf.constant(3, dtype))
            variable = v1.get_variable(name, initializer=start, use_resource=True)
            grad = tf.ones(shape, dtype)
            if name == "rows":
                grad = tf.IndexedSlices(tf.ones([3, 2]), tf.constant([4, 4, 1]), shape)
            pairs.append((grad, variable))
        train_op = native().apply_gradients(pairs)
        counts = [
            len(each.inputs)
            for each in graph.get_operations()
            if each.type.startswith("LegacyOptUpdate")
        ]
        # An operation has one input for the learning rate. For each variable, the operation has
        # inputs for the variable, the slot, the gradient and, for a sparse gradient, the ids.
        assert sorted(counts) == [4, 4, 5, 7]
        values = running.after(train_op, [variable for _, variable in pairs])
        values = dict(zip(shapes, values))
    rows = values.pop("rows")
    np.testing.assert_array_equal(rows[:, 0], [3, 2.5, 3, 3, 2] + [3] * 4)
    assert all(np.all(value == 2.5) for value in values.values())


def test_a_variable_that_is_passed_twice_is_updated_twice(fresh):
    with tf.Graph().as_default():
        variable = v1.get_variable("w", initializer=START, use_resource=True)
        optimizer, other = native(), v1.get_variable("other", [2], use_resource=True)
        pairs = [(tf.ones_like(START), variable), (tf.ones([2]), other)]
        train_op = optimizer.apply_gradients([*pairs, pairs[0]])
        slot = running.after(train_op, optimizer.get_slot(variable, "sum"))
        np.testing.assert_array_equal(slot, 2 * np.ones_like(START))


class Whole(Sgd):
    """A rule that changes all rows, also rows without a gradient."""

    whole_tensor = True

    def rule(self, grad, value, slots, hyper):
        return hyper.learning_rate * (grad + value), {"sum": slots.sum + grad + 1}


@pytest.mark.parametrize("use_resource", [False, True])
@pytest.mark.parametrize("ids", [[], [3], [4, 0, 3, 4]])
def test_rows_without_a_gradient_are_updated_too(ids, use_resource, fresh):
    def gradient(_):
        return tf.IndexedSlices(
            tf.ones([len(ids), 4]), tf.constant(np.array(ids, np.int32)), START.shape
        )

    results = {}
    for setting in "off", "require":
        optimizer = Whole()
        optimizer.native = setting
        results[setting] = trained(optimizer, gradient, use_resource, steps=3)
    for actual, expected in list(zip(results["require"], results["off"]))[:2]:
        np.testing.assert_array_equal(actual, expected)
    assert "ScatterNd" not in results["require"][2]


class Norm(Sgd):
    """A rule that divides the gradient by a sum."""

    whole_tensor = True

    def rule(self, grad, value, slots, hyper):
        return grad / tf.reduce_sum(tf.abs(grad)), {"sum": slots.sum + grad}


def test_a_sum_over_a_sparse_gradient(fresh):
    """The rule divides by 20: four elements have the gradient 2 + 2, and four have 1."""

    def gradient(_):
        return tf.IndexedSlices(
            tf.constant([[2.0] * 4, [1.0] * 4, [2.0] * 4]), tf.constant([1, 0, 1]), START.shape
        )

    optimizer = Norm()
    optimizer.native = "require"
    value, _, types = trained(optimizer, gradient)
    assert is_native(types)
    expected = START.copy()
    expected[0] -= np.float32(1) / np.float32(20)
    expected[1] -= np.float32(4) / np.float32(20)
    np.testing.assert_array_equal(value, expected)


def test_a_kernel_comes_before_tensorflows_kernels(fresh):
    """Kernels compute AdagradDecay's decay, so the graph must not use TensorFlow's kernels."""
    optimizer = legacy_opt.AdagradDecayOptimizer(0.1, None, accumulator_decay_step=1)
    optimizer.native = "require"
    with tf.Graph().as_default() as graph:
        step = v1.train.get_or_create_global_step()
        pairs = [
            (tf.ones([2]), v1.get_variable(name, [2], use_resource=True)) for name in ("a", "b")
        ]
        optimizer.apply_gradients(pairs, global_step=step)
        types = {each.type for each in graph.get_operations()}
    assert "LegacyOptUpdate" in types
    assert not {"ResourceApplyAdagrad", "ResourceApplyAdagradV2", "Switch"} & types


@pytest.mark.parametrize("shape", [[], [1], [7, 3]])
def test_a_sum_over_a_dense_gradient(shape, fresh):
    optimizer = Norm()
    optimizer.native = "require"
    with tf.Graph().as_default():
        variable = v1.get_variable("w", initializer=tf.zeros(shape), use_resource=True)
        train_op = optimizer.apply_gradients([(-2 * tf.ones(shape), variable)])
        value = running.after(train_op, variable)
    np.testing.assert_array_equal(value, np.full(shape, 1 / np.prod(shape), np.float32))


@pytest.mark.parametrize("use_resource", [False, True])
@pytest.mark.parametrize("sparse", [False, True])
def test_eight_threads_lose_no_update(sparse, use_resource, fresh):
    """With use_locking=True, every update starts from the values that the previous update wrote."""
    shape, threads, runs = [10000, 50], 8, 50

    class Locked(Sgd):
        def __init__(self):
            legacy_opt.RuleOptimizer.__init__(self, True, "Locked", learning_rate=0.5)

    with tf.Graph().as_default():
        variable = v1.get_variable("w", initializer=tf.zeros(shape), use_resource=use_resource)
        gradient = tf.ones(shape)
        if sparse:
            gradient = tf.IndexedSlices(gradient, tf.range(shape[0]), shape)
        optimizer = Locked()
        optimizer.native = "require"
        train_op = optimizer.apply_gradients([(gradient, variable)])
        slot = optimizer.get_slot(variable, "sum")
        with running.started() as session:
            with concurrent.futures.ThreadPoolExecutor(threads) as pool:
                done = [pool.submit(session.run, train_op) for _ in range(threads * runs)]
            assert not [each.exception() for each in done if each.exception()]
            value, total = session.run([variable, slot])
    np.testing.assert_array_equal(total, np.full(shape, threads * runs))
    np.testing.assert_array_equal(value, np.full(shape, -0.5 * threads * runs))


def test_a_kernel_that_differs_from_the_rule_is_refused(fresh, tmp_path):
    """A kernel is compared with its rule before use. The kernel in this test multiplies wrongly."""
    wrong = operations.OPERATIONS["Mul"]._replace(code="{0} * {1} * 1.00001f")
    fresh.setitem(operations.OPERATIONS, "Mul", wrong)
    optimizer = native()
    with pytest.raises(UnsupportedError, match="the kernel [0-9a-f]{32} computes .* TensorFlow "):
        trained(optimizer)
    optimizer.native = "auto"
    with pytest.warns(NativeKernelWarning, match="Sgd runs without .*: the kernel"):
        value, _, types = trained(optimizer)
    assert not is_native(types)
    np.testing.assert_array_equal(value, START - 0.5)


@pytest.mark.parametrize("wrong", [-1, 5])
def test_an_id_that_is_out_of_range(wrong, fresh):
    """The error names the id, and no row changes."""
    with tf.Graph().as_default():
        variable = v1.get_variable("w", initializer=START, use_resource=True)
        gradient = tf.IndexedSlices(tf.ones([2, 4]), tf.constant([2, wrong]), START.shape)
        train_op = native().apply_gradients([(gradient, variable)])
        with running.started() as session:
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
        np.testing.assert_array_equal(running.after(train_op, variable), start - 0.5)


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
from legacy_opt.native.runtime import tensorflow_operations
library = tensorflow_operations.load().operations
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
    """A graph of another user may name any kernel, but only the user's own kernels are loaded."""
    messages = {
        "0" * 32: "is not in ",
        "../../../../etc/passwd": "is not named by a hash",
        "F" * 32: "is not named by a hash",
    }
    done = programs.run("-c", PROGRAM, *messages, seconds=120)
    for key, message in messages.items():
        assert f"legacy_opt: the kernel {key} {message}" in done.stdout, done.stderr


class Mistyped(Sgd):
    """Has a misspelled name in its rule."""

    def rule(self, grad, value, slots, hyper):
        return hyper.learnig_rate * grad, {}


def test_a_misspelled_name_in_a_rule(fresh):
    message = "hyper of Mistyped has no 'learnig_rate'. Did you mean 'learning_rate'"
    optimizer = Mistyped()
    optimizer.native = "require"
    with pytest.raises(UnsupportedError, match="in a new graph: AttributeError: " + message):
        trained(optimizer)
    optimizer.native = "auto"
    warns = pytest.warns(NativeKernelWarning, match=message)
    with warns, pytest.raises(AttributeError, match=message):
        trained(optimizer)


WITHOUT_KERNELS = """
import sys
import tensorflow as tf
import legacy_opt

v1 = tf.compat.v1
with tf.Graph().as_default(), v1.Session() as session:
    weight = v1.get_variable("w", [2], use_resource=True)
    inner = legacy_opt.AdamWOptimizer(0.1, 0.1)
    optimizer = legacy_opt.MovingAverageOptimizer(legacy_opt.ClipByGlobalNormOptimizer(inner, 1.0))
    train_op = optimizer.apply_gradients([(tf.ones([2]), weight)])
    session.run(v1.global_variables_initializer())
    session.run(train_op)
print(sorted(name for name in sys.modules if name.startswith("legacy_opt.native")))
"""


@pytest.mark.once
def test_without_kernels_no_module_of_kernels_is_imported():
    done = programs.run("-c", WITHOUT_KERNELS, seconds=120, environment={settings.VARIABLE: ""})
    assert done.stdout.splitlines()[-1:] == ["[]"], done.stderr

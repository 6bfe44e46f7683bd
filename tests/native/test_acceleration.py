"""Tests native kernels for TensorFlow's own optimizers."""

import copy
import pickle

import numpy as np
import pytest
import tensorflow as tf

import legacy_opt
from legacy_opt import compat
from legacy_opt.core.user_warnings import NativeKernelWarning
from legacy_opt.native import accelerate, settings
from legacy_opt.native.runtime import cache, tensorflow_operations
from legacy_opt.native.updates import one_step
from tests.native.training import START, is_native
from tests.support import problems, running
from tests.support.processes import programs

v1 = tf.compat.v1
GRADIENT = np.random.RandomState(1).normal(size=START.shape).astype(np.float32)
MAKERS = {
    "Adadelta": lambda: v1.train.AdadeltaOptimizer(0.5),
    "Adagrad": lambda: v1.train.AdagradOptimizer(0.5),
    "AdagradDA": lambda: v1.train.AdagradDAOptimizer(0.5, v1.train.get_or_create_global_step()),
    "Adam": lambda: v1.train.AdamOptimizer(0.5, epsilon=1e-3),
    "Ftrl": lambda: v1.train.FtrlOptimizer(0.5, l1_regularization_strength=0.01),
    "GradientDescent": lambda: v1.train.GradientDescentOptimizer(0.5),
    "Momentum": lambda: v1.train.MomentumOptimizer(0.5, 0.9, use_nesterov=True),
    "ProximalAdagrad": lambda: v1.train.ProximalAdagradOptimizer(0.5),
    "ProximalGradientDescent": lambda: v1.train.ProximalGradientDescentOptimizer(0.5),
    "RMSProp": lambda: v1.train.RMSPropOptimizer(0.5, momentum=0.9),
    "RMSProp, centered": lambda: v1.train.RMSPropOptimizer(0.5, epsilon=1e-3, centered=True),
}


def trained(make, sparse=False, use_resource=True, steps=3, restore=None, save=None):
    """Returns all variables by name, and the types of all operations."""
    with tf.Graph().as_default() as graph:
        step = v1.train.get_or_create_global_step()
        variable = v1.get_variable("w", initializer=START, use_resource=use_resource)
        grad = tf.constant(GRADIENT)
        if sparse:
            grad = tf.IndexedSlices(grad[:3], tf.constant([4, 1, 4]), START.shape)
        train_op = make().apply_gradients([(grad, variable)], step)
        saver = v1.train.Saver()
        with running.started() as session:
            if restore:
                saver.restore(session, restore)
            for _ in range(steps):
                session.run(train_op)
            if save:
                saver.save(session, save)
            values = session.run({each.op.name: each for each in v1.global_variables()})
        return values, {each.type for each in graph.get_operations()}


def accelerated(name):
    return accelerate(MAKERS[name](), require=True)


@pytest.mark.in_turn(name=MAKERS, sparse=[False, True], use_resource=[False, True])
def test_kernels_compute_what_tensorflow_computes(name, sparse, use_resource, fresh):
    expected, _ = trained(MAKERS[name], sparse, use_resource)
    actual, types = trained(lambda: accelerated(name), sparse, use_resource)
    assert is_native(types)
    assert not [each for each in types if "Apply" in each or "Scatter" in each]
    assert sorted(actual) == sorted(expected)
    for each, value in expected.items():
        # TensorFlow's kernels approximate square roots, and sum the rows of equal ids in any order.
        np.testing.assert_allclose(actual[each], value, rtol=3e-5, atol=1e-6, err_msg=each)


@pytest.mark.in_turn(
    name=["Adam", "Adagrad", "Ftrl", "RMSProp"],
    dtype=["float16", "float32", "float64"],
    way=list(running.WAYS)[1:],
)
def test_all_ways_compute_the_same_bits(name, dtype, way):
    problem = problems.everything(dtype, ("matrix", "table"), steps=5)

    def make(_):
        return accelerated(name)

    expected = running.session_ref(problem, make)
    running.assert_same(running.WAYS[way](problem, make), expected, way)


@pytest.mark.parametrize("first, second", [(True, False), (False, True)])
def test_checkpoints_cross(first, second, tmp_path, fresh):
    """Resumed training equals uninterrupted training.

    This works because Momentum's native kernel computes the same bits as TensorFlow's kernel.
    """

    def make(native):
        return lambda: accelerated("Momentum") if native else MAKERS["Momentum"]()

    path = str(tmp_path / "model")
    trained(make(first), steps=2, save=path)
    actual, _ = trained(make(second), steps=3, restore=path)
    expected, _ = trained(make(False), steps=5)
    for name, value in expected.items():
        np.testing.assert_array_equal(actual[name], value, err_msg=name)


def test_the_optimizer_stays_what_it_is():
    optimizer = v1.train.AdamOptimizer(0.5)
    assert accelerate(optimizer) is optimizer
    assert isinstance(optimizer, v1.train.AdamOptimizer)
    assert type(optimizer).__name__ == "AdamOptimizer"
    assert optimizer.native == "auto"
    assert accelerate(optimizer, require=True).native == "require"
    assert type(optimizer) is type(accelerated("Adam"))


@pytest.mark.parametrize("how", [copy.copy, copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))])
def test_copies_are_accelerated_too(how, fresh):
    values, types = trained(lambda: how(accelerated("Momentum")))
    assert is_native(types)
    np.testing.assert_array_equal(values["w"], trained(MAKERS["Momentum"])[0]["w"])


def test_the_optimizers_in_a_wrapper_are_accelerated(fresh):
    def make():
        clipping = legacy_opt.ClipByValueOptimizer(MAKERS["Momentum"](), -0.5, 0.5)
        return accelerate(clipping, require=True)

    with pytest.warns(NativeKernelWarning, match="clips values by TensorFlow operations"):
        values, types = trained(make)
    assert is_native(types)
    expected, _ = trained(lambda: legacy_opt.ClipByValueOptimizer(MAKERS["Momentum"](), -0.5, 0.5))
    np.testing.assert_array_equal(values["w"], expected["w"])


def test_our_optimizers_are_accelerated_too(fresh):
    for optimizer in legacy_opt.LazyAdamOptimizer(), legacy_opt.AdamWOptimizer(0.1):
        cls = type(optimizer)
        assert type(accelerate(optimizer)) is cls
        assert optimizer.native == "auto"


class OwnUpdate(v1.train.MomentumOptimizer):
    """A user-defined class whose update differs from Momentum's."""

    def _apply_sparse(self, grad, var):
        return super()._apply_sparse(grad * 2, var)


class OwnRate(v1.train.MomentumOptimizer):
    """A user-defined class that changes only the learning rate of Momentum."""

    def __init__(self):
        super().__init__(0.25, 0.9, use_nesterov=True)

    def _prepare(self):
        super()._prepare()
        self._learning_rate_tensor *= 2


def test_a_subclass_with_the_same_update(fresh):
    values, types = trained(lambda: accelerate(OwnRate(), require=True))
    assert is_native(types)
    np.testing.assert_array_equal(values["w"], trained(MAKERS["Momentum"])[0]["w"])


@pytest.mark.parametrize(
    "made, message",
    [
        (lambda: OwnUpdate(0.1, 0.9), "no native kernels for OwnUpdate, because it has update"),
        (lambda: "Adam", "accelerate takes a .*Optimizer, got 'Adam' of type str"),
        (lambda: v1.train.AdamOptimizer, "accelerate takes a .*Optimizer, got <class"),
        (
            lambda: legacy_opt.ClipByValueOptimizer(OwnUpdate(0.1, 0.9), -1.0, 1.0),
            "no native kernels for OwnUpdate",
        ),
    ],
)
def test_what_cannot_be_accelerated(made, message):
    optimizer = made()
    cls = type(optimizer)
    with pytest.raises(TypeError, match=message):
        accelerate(optimizer)
    assert type(optimizer) is cls


def test_a_patch_accelerates_new_optimizers(fresh):
    before = MAKERS["Adam"]()
    with compat.patch_tensorflow(native=True):
        with compat.patch_tensorflow(native=True):
            assert settings.setting_of(None) == "auto"
        assert is_native(trained(MAKERS["Momentum"])[1])
        assert is_native(trained(OwnRate)[1])
        assert is_native(trained(lambda: legacy_opt.LazyAdamOptimizer(0.1))[1])
        assert not is_native(trained(lambda: OwnUpdate(0.1, 0.9))[1])
        assert not is_native(trained(lambda: before)[1])
    assert settings.setting_of(None) == "off"
    assert not is_native(trained(MAKERS["Momentum"])[1])


SCRIPT = """
import sys
import tensorflow as tf
w = tf.get_variable("w", initializer=[1.0, 2.0])
train_op = tf.train.AdamOptimizer(0.1).minimize(tf.reduce_sum(w * w))
without_kernel = tf.train.FtrlOptimizer(0.1, l2_shrinkage_regularization_strength=0.1)
without_kernel.minimize(tf.get_variable("v", [1]))
print(any(op.type.startswith("LegacyOpt") for op in tf.get_default_graph().get_operations()))
"""


@pytest.mark.parametrize("options", [[], ["--native"]])
def test_a_script_with_native_kernels(options, tmp_path, kernels_folder):
    path = tmp_path / "script.py"
    path.write_text(SCRIPT)
    done = programs.run("-m", "legacy_opt", "run", *options, str(path), seconds=60)
    assert done.stdout.split()[-1] == str(bool(options)), done.stderr
    said = "legacy-opt run: 1 of 2 updates have native kernels\n" in done.stderr
    assert said == bool(options), done.stderr


def test_updates_are_counted_only_in_the_command():
    trained(lambda: accelerate(MAKERS["Adam"](), require=True))
    assert one_step.have_kernels is None


def test_without_an_operations_library_training_goes_on(fresh, tmp_path):
    fresh.setattr(tensorflow_operations, "_loaded", [])
    fresh.setenv(cache.FOLDER_VARIABLE, str(tmp_path / "kernels"))
    with pytest.warns(NativeKernelWarning, match="AdamOptimizer runs without .*build-kernels"):
        values, types = trained(lambda: accelerate(MAKERS["Adam"]()))
    assert not is_native(types)
    np.testing.assert_array_equal(values["w"], trained(MAKERS["Adam"])[0]["w"])

"""Tests the errors of `to_keras` for optimizers that it cannot bridge, and for wrong arguments."""

import re

import numpy as np
import pytest
import tensorflow as tf

from legacy_opt import versions
from legacy_opt.compat import to_keras
from tests.support import running
from tests.support.keras import keras_models
from tests.support.keras.keras_apis import OPTIMIZER_V2, of_each
from tests.support.processes import programs

v1 = tf.compat.v1
Optimizer = v1.train.Optimizer
GradientDescent = v1.train.GradientDescentOptimizer
PROBLEM = keras_models.problem()
WAYS = of_each("way", ["function", "eager", "graph"], ["function", "eager"])


def says(*parts):
    """Returns a pattern for a message that contains all the parts, in any order."""
    return "(?s)" + "".join(f"(?=.*{re.escape(part)})" for part in parts)


class Plain(Optimizer):
    """Has the given attributes. The first attribute whose name has an "r" is the learning rate."""

    def __init__(self, **attributes):
        super().__init__(False, "Plain")
        vars(self).update(attributes)
        self.rate_name = next((name for name in attributes if "r" in name), None)

    def _rate(self, like):
        rate = getattr(self, self.rate_name) if self.rate_name else 0.5
        return tf.cast(rate, like.dtype)

    def _resource_apply_dense(self, grad, handle):
        return handle.assign_sub(self._rate(grad) * grad)

    def _resource_apply_sparse(self, grad, handle, indices):
        return handle.scatter_sub(tf.IndexedSlices(self._rate(grad) * grad, indices))


def apply_once(optimizer, way, value=(1.0, 2.0), gradient=None):
    """Applies one gradient, by default all ones; returns the variable's new value."""
    gradient = np.ones_like(value, "f") if gradient is None else gradient

    def tensor():
        if isinstance(gradient, tuple):
            return tf.IndexedSlices(*map(tf.constant, gradient))
        return tf.constant(gradient)

    if way == "graph":
        with tf.Graph().as_default():
            variable = tf.compat.v2.Variable(np.float32(value))
            op = optimizer.apply_gradients([(tensor(), variable)])
            return running.after(op, variable)
    variable = tf.Variable(np.float32(value))

    def step():
        optimizer.apply_gradients([(tensor(), variable)])

    (tf.function(step) if way == "function" else step)()
    return variable.numpy()


# The learning rate and the global step.


@WAYS
def test_a_learning_rate_in_an_unusual_attribute(api, way):
    with pytest.raises(ValueError, match=says("Plain", "_learning_rate, _lr", "lr_attr=")):
        api.bridged(Plain(_rate_of_learning=0.5))
    optimizer = api.bridged(Plain(_rate_of_learning=0.5), lr_attr="_rate_of_learning")
    optimizer.learning_rate = 0.25
    np.testing.assert_array_equal(apply_once(optimizer, way), [0.75, 1.75])


@WAYS
def test_no_learning_rate(api, way):
    with pytest.raises(ValueError, match=says("lr_attr=False")):
        api.bridged(Plain())
    optimizer = api.bridged(Plain(), lr_attr=False)
    assert not hasattr(optimizer, "learning_rate") or "learning_rate" not in optimizer._hyper
    np.testing.assert_array_equal(apply_once(optimizer, way), [0.5, 1.5])
    with pytest.raises(ValueError, match=says("learning_rate=0.1", "lr_attr=False")):
        api.bridged(Plain(), learning_rate=0.1, lr_attr=False)


def test_several_learning_rates(api):
    with pytest.raises(ValueError, match=says("Plain", "_learning_rate, _lr", "lr_attr=")):
        api.bridged(Plain(_learning_rate=0.5, _lr=0.25))
    optimizer = api.bridged(Plain(_learning_rate=0.5, _lr=0.25), lr_attr="_learning_rate")
    np.testing.assert_array_equal(apply_once(optimizer, "eager"), [0.5, 1.5])


def test_two_attributes_with_the_same_learning_rate_are_one(api):
    optimizer = api.bridged(Plain(_learning_rate=0.5, _lr=0.5))
    optimizer.learning_rate = 0.25
    np.testing.assert_array_equal(apply_once(optimizer, "eager"), [0.75, 1.75])


@pytest.mark.parametrize("argument", ["lr_attr", "global_step_attr"])
def test_a_missing_attribute(api, argument):
    with pytest.raises(ValueError, match=says(argument + "='_nonsense'", "no such attribute")):
        api.bridged("Adam", **{argument: "_nonsense"})


class DividesByStep(Plain):
    """Divides its learning rate by 1 + the global step."""

    def _rate(self, like):
        return super()._rate(like) / tf.cast(1 + self.steps_done, like.dtype)


@pytest.mark.parametrize("way", ["function", "eager"])
def test_a_global_step_in_an_unusual_attribute(api, way):
    step = tf.Variable(0, dtype=tf.int64, trainable=False)
    original = DividesByStep(_learning_rate=0.5, steps_done=step)
    with pytest.raises(
        ValueError, match=says("DividesByStep.steps_done", "global_step_attr='steps_done'")
    ):
        api.bridged(original)
    optimizer = api.bridged(original, global_step_attr="steps_done")
    optimizer.iterations.assign(1)
    np.testing.assert_array_equal(apply_once(optimizer, way), [0.75, 1.75])
    assert original.steps_done is step


@pytest.mark.parametrize(
    "rate, error",
    [("0.1", TypeError), (float("nan"), ValueError), ([0.1], TypeError), (True, TypeError)],
)
def test_wrong_learning_rates(api, rate, error):
    with pytest.raises(error, match="learning_rate"):
        api.bridged("Adam", learning_rate=rate)


def test_a_symbolic_learning_rate_while_executing_eagerly(api):
    with tf.Graph().as_default():
        rate = tf.constant(0.1) * 2.0
    with pytest.raises(ValueError, match=says("learning_rate=", "graph", "eagerly", "schedule")):
        api.bridged(v1.train.AdamOptimizer(rate))


def test_a_decay_argument_that_is_ambiguous():
    with pytest.raises(ValueError, match=says("decay=0.1", "RMSPropOptimizer", "schedule")):
        OPTIMIZER_V2.bridged("RMSProp", decay=0.1)


# Classes that override apply_gradients or compute_gradients, or contain another optimizer.


class DoublesGradients(GradientDescent):
    """Doubles the gradients in apply_gradients."""

    def apply_gradients(self, grads_and_vars, global_step=None, name=None):
        pairs = [
            (tf.IndexedSlices(g.values * 2.0, g.indices, g.dense_shape), v)
            if isinstance(g, tf.IndexedSlices)
            else (g * 2.0, v)
            for g, v in grads_and_vars
        ]
        return super().apply_gradients(pairs, global_step, name)


@of_each("way", ["function", "eager", "graph", "fit"], ["function", "eager", "fit"])
def test_an_overridden_apply_gradients_is_called(api, way):
    config = running.config_of(way)
    expected = running.session(PROBLEM, lambda _: DoublesGradients(0.3), True, config=config)
    if way == "graph":
        actual = keras_models.graph(PROBLEM, lambda: api.bridged(DoublesGradients(0.3)))
    else:
        optimizer = api.bridged(DoublesGradients(0.3))
        actual = api.run(optimizer, way, PROBLEM)
        assert int(optimizer.iterations.numpy()) == PROBLEM.steps
    running.assert_same(actual, expected)


def test_an_overridden_apply_gradients_without_global_step(api):
    class Stepless(GradientDescent):
        def apply_gradients(self, grads_and_vars, name=None):
            return super().apply_gradients(grads_and_vars, name=name)

    with pytest.raises(ValueError, match=says("Stepless.apply_gradients", "global_step")):
        api.bridged(Stepless(0.1))


@pytest.mark.parametrize("several", [False, True])
def test_an_optimizer_that_contains_another(api, several):
    inner = GradientDescent(0.1)
    optimizer = Plain(_learning_rate=0.1, inner=[inner] if several else inner)
    with pytest.raises(ValueError, match=says("Plain.inner", "another optimizer")):
        api.bridged(optimizer)


# Variables that are not created by _zeros_slot or similar methods. A Keras checkpoint would not
# save such variables.


def test_variables_made_in_the_constructor(api):
    class Holder(GradientDescent):
        def __init__(self):
            super().__init__(0.1)
            self._velocity = tf.Variable([0.0, 0.0], name="velocity")

    with pytest.raises(ValueError, match=says("Holder._velocity", "velocity", "_create_slots")):
        api.bridged(Holder())


class CreatesAVariableForSlots(Plain):
    def _create_slots(self, var_list):
        self.raw = tf.compat.v2.Variable(tf.zeros_like(var_list[0]), name="raw")


class CreatesAVariableInApply(Plain):
    raw = None

    def _resource_apply_dense(self, grad, handle):
        if self.raw is None:
            self.raw = tf.compat.v2.Variable([0.0, 0.0], name="raw")
        return super()._resource_apply_dense(grad, handle)


class FillsTheSlotDict(Plain):
    def _create_slots(self, var_list):
        for var in var_list:
            self._slot_dict("raw")[var.op.name] = 0


@pytest.mark.parametrize(
    "cls", [CreatesAVariableForSlots, CreatesAVariableInApply, FillsTheSlotDict]
)
@WAYS
def test_variables_made_while_training(api, cls, way):
    optimizer = api.bridged(cls(_learning_rate=0.1))
    with pytest.raises(
        ValueError, match=says(cls.__name__, "raw", "no Keras checkpoint", "_zeros_slot")
    ):
        apply_once(optimizer, way)


# Optimizers that lack the dense or the sparse update.


def test_an_optimizer_for_ref_variables_only(api):
    class RefOnly(Optimizer):
        def __init__(self):
            super().__init__(False, "RefOnly")
            self._learning_rate = 0.1

        def _apply_dense(self, grad, var):
            return var.assign_sub(self._learning_rate * grad)

    with pytest.raises(
        TypeError, match=says("RefOnly", "_resource_apply_dense", "_resource_apply_sparse")
    ):
        api.bridged(RefOnly())


@WAYS
def test_no_sparse_update(api, way):
    class DenseOnly(Optimizer):
        def __init__(self):
            super().__init__(False, "DenseOnly")
            self._learning_rate = 0.5

        def _resource_apply_dense(self, grad, handle):
            return handle.assign_sub(tf.cast(self._learning_rate, grad.dtype) * grad)

    np.testing.assert_array_equal(apply_once(api.bridged(DenseOnly()), way), [0.5, 1.5])
    rows = (np.ones([1, 1], "f"), np.array([0]))
    message = says("DenseOnly", "sparse", "_resource_apply_sparse(self, grad, handle, indices)")
    with pytest.raises(NotImplementedError, match=message):
        apply_once(api.bridged(DenseOnly()), way, value=[[1.0], [2.0]], gradient=rows)


def test_ref_variables():
    with tf.Graph().as_default():
        variable = v1.get_variable("ref", [2], use_resource=False)
        with pytest.raises(ValueError, match=says("'ref:0'", "ref variable", "use_resource=True")):
            OPTIMIZER_V2.bridged("Adam").apply_gradients([(tf.ones([2]), variable)])


# The arguments of to_keras.


@pytest.mark.parametrize("unknown", ["keras", "optimizer_v3", None, 2])
def test_an_unknown_api(unknown):
    with pytest.raises(ValueError, match=says("'auto', 'optimizer_v2', 'keras3'", repr(unknown))):
        to_keras(GradientDescent(0.1), api=unknown)


def test_keras_3_is_not_installed():
    if OPTIMIZER_V2.keras is not tf.keras:
        assert not hasattr(to_keras(GradientDescent(0.1), api="keras3"), "_resource_apply_dense")
        return
    with pytest.raises(ImportError, match=says("Keras 3", "2.16", "api='optimizer_v2'")):
        to_keras(GradientDescent(0.1), api="keras3")


@pytest.mark.parametrize("wrong", [None, "adam", GradientDescent, tf.train])
def test_no_v1_optimizer(api, wrong):
    with pytest.raises(TypeError, match=says("tf.compat.v1.train.Optimizer", "got")):
        to_keras(wrong, api=api.name)


def test_a_keras_optimizer_cannot_be_bridged(api):
    hint = "It is a Keras optimizer already"
    for made in api.bridged("Adam"), api.optimizers.Adam():
        with pytest.raises(TypeError, match=says("tf.compat.v1.train.Optimizer", hint)):
            api.bridged(made)


def test_an_argument_that_keras_does_not_know(api):
    with pytest.raises((TypeError, ValueError), match="momentun"):
        api.bridged("Adam", momentun=0.9)


WITHOUT_KERAS_2 = """
import sys
sys.modules["tf_keras"] = None  # makes `import tf_keras` fail as if it were not installed
import tensorflow as tf
from legacy_opt import compat
try:
    compat.to_keras(tf.compat.v1.train.AdamOptimizer(), api="optimizer_v2")
except ImportError as error:
    print("ImportError", error)
else:
    print("no error with Keras", tf.keras.__version__ if hasattr(tf.keras, "ops") else 2)
"""


def test_keras_2_is_not_installed():
    """The bridge to Keras 2 needs the package tf_keras only if tf.keras is Keras 3."""
    done = programs.run_in_new_python("-c", WITHOUT_KERAS_2, seconds=120)
    if OPTIMIZER_V2.keras is tf.keras:
        assert "no error with Keras 2" in done.stdout, done.stderr
    else:
        command = re.escape(versions.pip_command("tf-keras"))
        assert re.search("ImportError .*" + command, done.stdout), done.stderr

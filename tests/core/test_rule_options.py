"""Tests of RuleOptimizer with Fading, op_name, full_precision, and the global step."""

import functools

import numpy as np
import pytest
import tensorflow as tf

from legacy_opt import Fading, GlobalStepWarning, NewValue, RowSlot, RuleOptimizer, Slot
from tests.support import problems, running
from tests.support.cases import CASES
from tests.support.running import REF_AND_RESOURCE

v1 = tf.compat.v1


class FadingMomentum(RuleOptimizer):
    """Multiplies the slots `m` and `norm` by beta in rows without a gradient."""

    slots = {"m": Slot(1.0), "norm": RowSlot(2.0)}

    def __init__(self, learning_rate, beta):
        super().__init__(False, "Fading", learning_rate=learning_rate, beta=beta)

    def rule(self, grad, value, slots, hyper):
        m = slots.m * hyper.beta + grad
        return hyper.learning_rate * m, {
            "m": Fading(m, hyper.beta),
            "norm": Fading(slots.norm * 3.0, hyper.beta),
        }


@pytest.mark.parametrize("way", running.WAYS)
@pytest.mark.parametrize("kind", ["dense", "duplicates"])
def test_rows_without_a_gradient_decay(way, kind):
    problem = problems.make(kind, steps=5)
    trace = running.WAYS[way](problem, lambda step: FadingMomentum(0.5, 0.25))
    for name, value in problem.values.items():
        m, norm = np.ones_like(value), np.full(value.shape[:1], 2, "f")
        for gradients, after in zip(problem.gradients, trace.steps):
            touched, grad = Ellipsis, gradients[name]
            if kind == "duplicates":
                touched = np.unique(grad.ids)
                grad = problems.dense(grad, value)
                norm *= np.float32(0.25)
                norm[touched] *= np.float32(12)  # 0.25 * 12 = 3, the factor in `rule`
            else:
                norm *= np.float32(3)
            m = m * np.float32(0.25) + grad
            value = value.copy()
            value[touched] -= np.float32(0.5) * m[touched]
            np.testing.assert_allclose(after[name], value, 1e-6, 1e-6, err_msg=name)
        np.testing.assert_allclose(trace.slots[name, "m"], m, 1e-6, 1e-6, err_msg=name)
        np.testing.assert_array_equal(trace.slots[name, "norm"], norm, err_msg=name)


class Tenths(RuleOptimizer):
    """Sets the variable to a number that a subtraction from the old value could not reach."""

    def rule(self, grad, value, slots, hyper):
        return NewValue(grad * 0.1), {}


@pytest.mark.parametrize("way", running.WAYS)
@pytest.mark.parametrize("kind", ["dense", "duplicates"])
def test_a_rule_that_returns_the_new_value_sets_its_bits(kind, way):
    problem = problems.make(kind, steps=2)
    trace, rounded_again = running.WAYS[way](problem, lambda step: Tenths(False, "Tenths")), 0
    for name, value in problem.values.items():
        for gradients, after in zip(problem.gradients, trace.steps):
            touched, grad = Ellipsis, gradients[name]
            if kind == "duplicates":
                touched, summed = np.unique(grad.ids), np.zeros_like(value)
                np.add.at(summed, grad.ids, grad.values)
                grad = summed[touched]
            new_value = value.copy()
            new_value[touched] = grad * np.float32(0.1)
            np.testing.assert_array_equal(after[name], new_value, err_msg=name)
            by_subtraction = value - (value - new_value)
            rounded_again += np.sum(by_subtraction != new_value)
            value = new_value
    assert rounded_again > 0  # so the test would find a subtraction


class NamedSlots(RuleOptimizer):
    slots = {"m": Slot(op_name="adam_m"), "v": Slot(), "n": Slot(op_name="adam_m")}

    def rule(self, grad, value, slots, hyper):
        return grad, {}


def test_slots_with_an_op_name():
    with tf.Graph().as_default():
        variable = v1.get_variable("scope/w", [2])
        optimizer = NamedSlots(False, "Named")
        optimizer.apply_gradients([(tf.ones([2]), variable)])
        names = [optimizer.get_slot(variable, name).op.name for name in ("m", "v", "n")]
    assert names == ["scope/w/adam_m", "scope/w/Named", "scope/w/adam_m_1"]


class Unrounded(RuleOptimizer):
    full_precision = ("unrounded",)

    def __init__(self, rounded, unrounded):
        super().__init__(False, "Unrounded", rounded=rounded, unrounded=unrounded)

    def rule(self, grad, value, slots, hyper):
        return grad * hyper.rounded + hyper.unrounded, {}


@pytest.mark.parametrize("way", running.WAYS)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_full_precision_hyperparameters_are_not_rounded_to_float32(way, dtype):
    problem = problems.make("dense", dtype, steps=1)
    trace = running.WAYS[way](problem, lambda step: Unrounded(0.1, 0.3))
    cast = np.dtype(dtype).type
    for name, value in problem.values.items():
        step = problem.gradients[0][name] * cast(np.float32(0.1)) + cast(0.3)
        np.testing.assert_array_equal(trace.steps[0][name], value - step)


@pytest.mark.parametrize("make", [lambda: tf.constant(0.3, tf.float64), lambda: lambda: 0.3])
def test_tensors_are_not_rounded_but_results_of_callables_are(make):
    variable = tf.Variable(1.0, dtype=tf.float64)
    given = make()
    Unrounded(0.0, given).apply_gradients([(tf.zeros([], tf.float64), variable)])
    assert variable.numpy() == 1 - (np.float64(np.float32(0.3)) if callable(given) else 0.3)


class Counting(RuleOptimizer):
    uses_global_step = True
    allows_constant_step = True

    def __init__(self, global_step=0):
        super().__init__(False, "Counting", global_step)

    def rule(self, grad, value, slots, hyper):
        return tf.cast(hyper.global_step, value.dtype) + 0 * grad, {}


class CountingWhatAdvances(Counting):
    prefers_advanced_step = True


@pytest.mark.parametrize("optimizer, read", [(Counting, 10), (CountingWhatAdvances, 20)])
def test_which_global_step_a_rule_reads(optimizer, read):
    with tf.Graph().as_default():
        v1.get_variable(
            "global_step",
            [],
            tf.int64,
            v1.constant_initializer(10),
            trainable=False,
            collections=[v1.GraphKeys.GLOBAL_STEP, v1.GraphKeys.GLOBAL_VARIABLES],
        )
        other = v1.get_variable("other", [], tf.int64, v1.constant_initializer(20), trainable=False)
        variable = v1.get_variable("w", [], initializer=v1.zeros_initializer())
        optimizer = optimizer(None)
        optimizer.global_step_is_advanced = True
        train_op = optimizer.apply_gradients([(tf.ones([]), variable)], global_step=other)
        assert running.after(train_op, [variable, other]) == [-read, 21]


def test_a_constant_global_step_warns():
    variable, step = tf.Variable(0.0), tf.Variable(0, dtype=tf.int64)
    optimizer = Counting(3)
    with pytest.warns(GlobalStepWarning, match="constant global_step=3"):
        for _ in range(2):
            optimizer.apply_gradients([(tf.ones([]), variable)], global_step=step)
    assert variable.numpy() == -6


def test_an_integer_step_is_refused_unless_constant_steps_are_allowed():
    class Refusing(Counting):
        allows_constant_step = False

    with pytest.raises(TypeError, match="global_step must be an int32 or int64 variable"):
        Refusing(0)
    with pytest.raises(TypeError, match="global_step"):
        Counting(True)


class AdvancingMeanwhile(RuleOptimizer):
    """Increments the global step in the update of each variable."""

    uses_global_step = True
    before = ()

    def __init__(self):
        super().__init__(False, "Advancing")

    def rule(self, grad, value, slots, hyper):
        with tf.control_dependencies(self.before):
            step = tf.cast(hyper.global_step, tf.float32)
        with tf.control_dependencies([step]):
            self.before = [self.global_step_variable().assign_add(1)]
        return step * grad, {}


@REF_AND_RESOURCE
def test_all_variables_of_an_update_read_the_same_global_step(use_resource):
    with tf.Graph().as_default():
        v1.get_variable(
            "global_step",
            initializer=tf.constant(3, tf.int64),
            trainable=False,
            use_resource=use_resource,
            collections=[v1.GraphKeys.GLOBAL_STEP, v1.GraphKeys.GLOBAL_VARIABLES],
        )
        variables = [v1.get_variable(name, initializer=0.0) for name in "abc"]
        optimizer = AdvancingMeanwhile()
        optimizer.global_step_is_advanced = True
        train_op = optimizer.apply_gradients([(tf.ones([]), each) for each in variables])
        assert running.after([train_op, optimizer.before], variables) == [-3, -3, -3]


def test_the_warning_names_a_way_out():
    pairs = [(tf.ones([]), tf.Variable(0.0))]
    with pytest.warns(GlobalStepWarning) as caught:
        Counting(3).apply_gradients(pairs, global_step=tf.Variable(0, dtype=tf.int64))
        Counting(tf.Variable(0, dtype=tf.int64)).apply_gradients(pairs)
    constant, given_none = [str(each.message) for each in caught]
    assert "Pass the graph's global step to the constructor: global_step=…" in constant
    assert "minimize()" not in constant and "global_step=… to minimize()" in given_none


def of_one(self, grad, value, slots, hyper):
    return tf.ones_like(grad), {}


@pytest.mark.parametrize("kind", ["dense", "duplicates"])
@pytest.mark.parametrize("name", ["LazyAdam", "AdagradDecay", "LARS", "AddSign", "RegAdagrad"])
def test_a_subclass_that_overrides_only_the_rule(name, kind):
    """An inherited fused kernel must not run in place of the subclass' rule."""
    case = CASES[name]
    mixin = type("RuleOfOne", (), {"rule": of_one})
    subclasses = [
        type("Mine", (case.optimizer,), {"rule": of_one}),
        type("Mine", (mixin, case.optimizer), {}),
    ]
    problem = problems.make(kind, steps=1)
    for cls in subclasses:
        trace = running.session(problem, functools.partial(case.construct, cls))
        for variable, value in problem.values.items():
            touched = Ellipsis
            if kind == "duplicates":
                touched = np.unique(problem.gradients[0][variable].ids)
            expected = value.copy()
            expected[touched] -= np.float32(1)
            np.testing.assert_array_equal(trace.steps[0][variable], expected)


def test_a_subclass_may_use_an_inherited_kernel_for_another_rule():
    adam = CASES["LazyAdam"].optimizer
    chosen = type("Chosen", (adam,), {"rule": of_one, "use_fused_kernels": True})
    assert chosen.use_fused_kernels and adam.use_fused_kernels
    assert not type("Mine", (adam,), {"rule": of_one}).use_fused_kernels

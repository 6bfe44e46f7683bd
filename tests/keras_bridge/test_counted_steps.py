"""Tests who counts the steps of a user's class in Keras, and what the class reads of the count.

The expected values are those of a Session with the same class.
"""

import functools

import numpy as np
import pytest
import tensorflow as tf

import legacy_opt
from tests.keras_bridge.test_overridden_methods import (
    STEPS,
    AllInApplyGradients,
    GradientDescent,
    IgnoresTheStep,
    LooksUp,
    derived,
    eagerly,
    in_a_graph,
    session,
)
from tests.support import running
from tests.support.keras.keras_apis import KERAS_3

v1 = tf.compat.v1


class Skips(GradientDescent):
    """Counts only the steps in which the gradient is small enough for an update."""

    def apply_gradients(self, pairs, global_step=None, name=None):
        (grad, variable), rate = (
            pairs[0],
            1.0 / (1.0 + tf.cast(tf.identity(global_step), tf.float32)),
        )
        apply = functools.partial(super().apply_gradients, [(grad * rate, variable)], global_step)

        def after(make):
            with tf.control_dependencies([make()]):
                return tf.constant(0)

        return tf.group(
            tf.cond(
                tf.reduce_sum(grad) < 5.0,
                lambda: after(apply),
                lambda: after(lambda: variable.assign(variable * 0.5)),
            )
        )


class CountsByTwo(AllInApplyGradients):
    """Counts 0 or 2, with one operation."""

    def counted(self, assignments, global_step, name):
        with tf.control_dependencies(assignments):
            by = 2 * (tf.identity(global_step) // 4)
            return global_step.assign_add(2 - by)


class NeverCounts(IgnoresTheStep):
    """Passes the step to branches and functions, which only read it."""

    def apply_gradients(self, grads_and_vars, global_step=None, name=None):
        decay = tf.cond(
            tf.constant(True),
            lambda: 1.0 / (1.0 + tf.cast(global_step.read_value(), tf.float32)),
            lambda: tf.constant(0.0),
        )
        return super().apply_gradients([(grad * decay, v) for grad, v in grads_and_vars])


def counted_by(cls):
    def count(self, pairs, global_step=None, name=None):
        with tf.control_dependencies([cls.apply_gradients(self, pairs, global_step)]):
            return global_step.assign_add(1)

    return derived(cls, "apply_gradients", count)


@pytest.mark.parametrize("wrap", [lambda each: each, legacy_opt.MovingAverageOptimizer])
@pytest.mark.parametrize("cls, steps", [(Skips, 2), (CountsByTwo, 4), (NeverCounts, 3)])
def test_a_class_that_counts_is_never_helped(api, wrap, cls, steps):
    in_v1 = counted_by(cls) if cls is NeverCounts else cls
    expected, step = session(wrap(in_v1(0.1)))
    assert step == steps
    trained = [eagerly(api.bridged(wrap(cls(0.1))), function) for function in (False, True)]
    for actual, iterations in [*trained, in_a_graph(lambda: api.bridged(wrap(cls(0.1))))]:
        np.testing.assert_allclose(actual, expected, rtol=1e-6)
        assert iterations == step


class Notes(AllInApplyGradients):
    """Needs eager execution, and changes its attributes."""

    def __init__(self, eagerly, counts):
        super().__init__(0.1)
        self.eagerly, self.counts, self.calls = eagerly, counts, []

    def counted(self, assignments, global_step, name):
        self.calls.append(assignments[0].numpy() if self.eagerly else None)
        return super().counted(assignments, global_step if self.counts else None, name)


@pytest.mark.parametrize("needs_eager", [False, True])
@pytest.mark.parametrize("counts", [False, True])
def test_the_attributes_change_once_in_each_eager_step(api, needs_eager, counts):
    optimizer = api.bridged(Notes(needs_eager, counts))
    assert eagerly(optimizer)[1] == STEPS
    assert len(optimizer._v1.optimizer.calls) == STEPS


class KeepsTheStep(LooksUp):
    """Finds the step in the first of its methods only."""

    step = None

    def found(self):
        if self.step is None:
            self.step = getattr(v1.train, self.get)()

    def _create_slots(self, var_list):
        if self.where == "_create_slots":
            self.found()

    def _prepare(self):
        self.found()
        rate = 0.1 / (1.0 + tf.cast(self.step, tf.float32))
        self._learning_rate_tensor = tf.cast(rate, tf.float32)


@pytest.mark.parametrize("where", ["_create_slots", "_prepare"])
def test_a_class_keeps_the_step(api, where):
    cls, get = KeepsTheStep, "get_or_create_global_step"
    expected, _ = session(cls(get, where))
    for function in (False, True):
        actual, _ = eagerly(api.bridged(cls(get, where)), function)
        np.testing.assert_allclose(actual, expected, rtol=1e-6)


def test_the_step_of_a_replica_is_not_kept(api):
    """There it is a tensor."""
    expected, _ = session(KeepsTheStep("get_global_step", "_prepare"))
    strategy = tf.distribute.OneDeviceStrategy("/cpu:0")
    with strategy.scope():
        w = tf.Variable([1.0, 2.0])
        optimizer = api.bridged(KeepsTheStep("get_global_step", "_prepare"))

        def train():
            optimizer.apply_gradients([(2.0 * w, w)])

        run = running.on_replicas(strategy)
        for _ in range(STEPS):
            run(train)
    np.testing.assert_allclose(w.numpy(), expected, rtol=1e-6)


@pytest.mark.keras3
def test_the_step_is_not_kept_if_keras_accumulates():
    expected, _ = session(KeepsTheStep("get_global_step", "_prepare"))
    optimizer = KERAS_3.bridged(
        KeepsTheStep("get_global_step", "_prepare"), gradient_accumulation_steps=2
    )
    w = tf.Variable([1.0, 2.0])
    for _ in range(2 * STEPS):
        optimizer.apply_gradients([(2.0 * w, w)])
    np.testing.assert_allclose(w.numpy(), expected, rtol=1e-6)


class FinishesByTheStep(GradientDescent):
    """Its `_finish` reads the step, which is incremented afterwards."""

    _global_step = None

    def _create_slots(self, var_list):
        self.trained = list(var_list)

    def _finish(self, update_ops, name_scope):
        with tf.control_dependencies(update_ops):
            step = self._global_step or v1.train.get_global_step()
            by = 0.1 * tf.cast(step.read_value(), tf.float32)
            added = [each.assign_add(by * tf.ones(each.shape)) for each in self.trained]
        return tf.group(*update_ops, *added, name=name_scope)


def test_finish_reads_the_step_before_the_increment(api):
    expected, _ = session(FinishesByTheStep(0.1))
    for function in (False, True):
        actual, _ = eagerly(api.bridged(FinishesByTheStep(0.1)), function)
        np.testing.assert_allclose(actual, expected, rtol=1e-6)


def test_averages_count_the_step_that_is_looked_up(api):
    def make():
        inner = GradientDescent(0.5)
        return legacy_opt.MovingAverageOptimizer(inner, num_updates=v1.train.get_global_step)

    with tf.Graph().as_default():
        w, optimizer = v1.get_variable("w", initializer=[1.0, 2.0], use_resource=True), make()
        step = v1.train.get_or_create_global_step()
        train = optimizer.minimize(0.3 * tf.reduce_sum(w * w), step, [w])
        expected = running.after(train, optimizer.average(w), STEPS)
    w, optimizer = tf.Variable([1.0, 2.0]), api.bridged(make())
    for _ in range(STEPS):
        optimizer.apply_gradients([(0.6 * w, w)])
    average = optimizer._v1.optimizer.average(w)
    np.testing.assert_allclose(average.numpy(), expected, rtol=1e-6)

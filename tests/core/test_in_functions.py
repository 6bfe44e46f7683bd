"""Tests of optimizers that create variables in conditions and loops of a `tf.function`."""

import numpy as np
import pytest
import tensorflow as tf

import legacy_opt
from tests.support.cases import CASES, one_of_each_class
from tests.support.problems import everything
from tests.support.wrapped import WRAPPERS

v1 = tf.compat.v1
PROBLEM = everything(only=("matrix", "table"), steps=3)


class Damped(legacy_opt.RuleOptimizer):
    """The example in RuleOptimizer's docstring, with a shorter name."""

    slots = {"accumulator": legacy_opt.Slot(initial_value=0.1)}

    def __init__(self, learning_rate, epsilon=1e-3, use_locking=False, name="Damped"):
        super().__init__(use_locking, name, learning_rate=learning_rate, epsilon=epsilon)

    def rule(self, grad, value, slots, hyper):
        accumulator = slots.accumulator + grad * grad
        change = hyper.learning_rate * grad / (tf.sqrt(accumulator) + hyper.epsilon)
        return change, {"accumulator": accumulator}


MAKERS = {name: CASES[name].make for name in one_of_each_class()}
MAKERS.update(WRAPPERS)
MAKERS.update(
    {
        "Damped": lambda step: Damped(0.1),
        "Multitask": lambda step: legacy_opt.MultitaskOptimizerWrapper(Damped(0.1)),
        "ClipByNorm": lambda step: legacy_opt.ClipByNormOptimizer(Damped(0.1), 0.5),
        "ClipByValue": lambda step: legacy_opt.ClipByValueOptimizer(Damped(0.1), -0.5, 0.5),
        "MovingAverage beside": lambda step: legacy_opt.MovingAverageOptimizer(
            Damped(0.1), 0.9, sequential_update=False
        ),
    }
)


class Training:
    """An optimizer and the variables 'matrix' (dense gradients) and 'table' (sparse gradients)."""

    def __init__(self, name, with_step=True):
        self.variables = {key: tf.Variable(value) for key, value in PROBLEM.values.items()}
        self.step = tf.Variable(0, dtype=tf.int64) if with_step else None
        self.optimizer = MAKERS[name](self.step)

    def apply(self, matrix, rows, ids):
        table = tf.IndexedSlices(rows, ids, self.variables["table"].shape)
        pairs = [(matrix, self.variables["matrix"]), (table, self.variables["table"])]
        self.optimizer.apply_gradients(pairs, global_step=self.step)

    def run(self, train):
        """Calls `train` once per training step; returns the variables' values after each call."""
        values = []
        for gradients in PROBLEM.gradients:
            train(*map(tf.constant, (gradients["matrix"], *gradients["table"])))
            values.append({key: each.numpy() for key, each in self.variables.items()})
        return values


def in_a_condition(training):
    def train(matrix, rows, ids):
        if tf.math.is_finite(tf.reduce_sum(matrix)):
            training.apply(matrix, rows, ids)

    return train


def in_a_loop(training):
    def train(matrix, rows, ids):
        for _ in tf.range(1):
            training.apply(matrix, rows, ids)

    return train


def with_gradients_of_a_branch(training):
    def train(matrix, rows, ids):
        if tf.size(ids) >= 0:
            training.apply(matrix * 1.0, tf.identity(rows), ids)

    return train


def with_gradients_of_a_loop(training):
    def train(matrix, rows, ids):
        for number in tf.range(1):
            factor = tf.cast(number + 1, matrix.dtype)
            training.apply(matrix * factor, rows * factor, ids)

    return train


def plain(training):
    return training.apply


CONSTRUCTS = [
    in_a_condition,
    in_a_loop,
    with_gradients_of_a_branch,
    with_gradients_of_a_loop,
]


def assert_same(found, expected, name, exactly=True):
    for one, other in zip(found, expected):
        for key, value in other.items():
            if exactly:
                np.testing.assert_array_equal(one[key], value, f"{name} {key}")
            else:
                np.testing.assert_allclose(one[key], value, 1e-5, 1e-6, err_msg=name)


def compare_with_eager(name, construct, with_step):
    training = Training(name, with_step)
    found = training.run(tf.function(construct(training)))
    training = Training(name, with_step)
    expected = training.run(training.apply)
    regrouped = name in CASES and CASES[name].regrouped
    assert_same(found, expected, construct.__name__, exactly=not regrouped)


@pytest.mark.in_turn(name=MAKERS, construct=CONSTRUCTS)
def test_conditions_and_loops_change_nothing(name, construct):
    """Compares the variables' values with eager execution.

    TensorFlow's own sparse Adam may round differently in a graph, because graph rewriting regroups
    products.
    """
    compare_with_eager(name, construct, with_step=True)


# Without the argument `global_step`, the optimizers warn that perhaps nothing increments the global
# step.
@pytest.mark.filterwarnings("ignore::legacy_opt.GlobalStepWarning")
@pytest.mark.in_turn(name=MAKERS, construct=[plain, in_a_condition])
def test_the_global_step_is_created_in_the_function(name, construct):
    """The first trace creates the global step. Later traces reuse it. Nothing increments it."""
    # Removes a global step that an earlier test has created eagerly.
    del v1.get_collection_ref(v1.GraphKeys.GLOBAL_STEP)[:]
    compare_with_eager(name, construct, with_step=False)


def test_an_optimizer_creates_one_global_step_in_each_graph():
    made = legacy_opt.AdafactorOptimizer()
    assert made.global_step_variable() is made.global_step_variable()
    with tf.Graph().as_default() as graph:
        step = made.global_step_variable()
        assert step.graph is graph and step is v1.train.get_global_step()

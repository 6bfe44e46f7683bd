"""Tests that optimizers bridged to Keras 3 by `to_keras` compute the same bits as in a Session.

This file tests user-defined optimizers, steps with changing variables or batch sizes, and every
floatx of Keras. test_exact.py tests the optimizers of TensorFlow and of this package.
"""

import contextlib

import numpy as np
import pytest
import tensorflow as tf

from legacy_opt import versions
from tests.support import exactness, rules, running
from tests.support.exactness import EQUAL
from tests.support.keras import keras_models, keras_ways
from tests.support.keras.keras_apis import KERAS_3
from tests.support.keras.keras_cases import CASES, KerasCase
from tests.support.keras.keras_ways import DTYPES, KERAS_3_WAYS
from tests.support.keras.row_adagrad import RowAdagrad

bridged = KERAS_3.bridged

pytestmark = pytest.mark.keras3

v1 = tf.compat.v1
keras = versions.keras_3()
# A comparison's result ends with these words if the bridged optimizer differs from the Session, but
# equals the v1 optimizer in the same execution mode.
V1 = "as v1 does"
PROBLEM = keras_models.problem(steps=9)


class Counting(v1.train.Optimizer):
    """A v1 optimizer with a non-slot variable, an int64 slot and a slot with one value per row."""

    def __init__(self, learning_rate):
        super().__init__(False, "Counting")
        self._lr = learning_rate

    def _create_slots(self, var_list):
        self._create_non_slot_variable(1.0, "power", min(var_list, key=lambda v: v.name))
        for v in var_list:
            zeros = v1.zeros_initializer
            self._get_or_make_slot_with_initializer(
                v, zeros(tf.int64), tf.TensorShape([]), tf.int64, "updates", "updates"
            )
            self._get_or_make_slot_with_initializer(
                v, zeros(tf.float32), v.shape[:1], tf.float32, "touched", "touched"
            )

    def _step(self, grad):
        power = self._get_non_slot_variable("power", graph=tf.compat.v1.get_default_graph())
        return tf.cast(power * self._lr, grad.dtype) * grad

    def _resource_apply_dense(self, grad, handle):
        updates, touched = (self.get_slot(handle, name) for name in ("updates", "touched"))
        return tf.group(
            updates.assign_add(1).op,
            touched.assign_add(tf.ones_like(touched)).op,
            handle.assign_sub(self._step(grad)).op,
        )

    def _resource_apply_sparse(self, grad, handle, indices):
        updates, touched = (self.get_slot(handle, name) for name in ("updates", "touched"))
        ones = tf.ones_like(indices, tf.float32)
        return tf.group(
            updates.assign_add(1).op,
            touched.scatter_add(tf.IndexedSlices(ones, indices)).op,
            handle.scatter_sub(tf.IndexedSlices(self._step(grad), indices)).op,
        )

    def _finish(self, update_ops, name_scope):
        power = self._get_non_slot_variable("power", graph=tf.compat.v1.get_default_graph())
        with tf.control_dependencies(update_ops):
            return tf.group(*update_ops, power.assign(power * 0.875).op, name=name_scope)


USERS = {
    "AccumulatedSGD": lambda step: rules.AccumulatedSGDOptimizer(0.1, 3),
    "AdagradRule": lambda step: rules.AdagradRule(0.1),
    "AdamRule": lambda step: rules.AdamRule(0.05, epsilon=1e-3),
    "Counting": lambda step: Counting(0.1),
    "MomentumRule": lambda step: rules.MomentumRule(0.1, 0.9),
    "RowAdagrad": lambda step: RowAdagrad(0.1),
}


def same(result, way):
    """Returns whether the bridge equals the Session or, in a tf.function, the v1 optimizer."""
    return result == EQUAL or (way.startswith("function") and result.endswith(V1))


def ways_for(number, ways, count):
    """Returns `count` ways: every third one, starting at index `number` and wrapping around."""
    return [ways[(number + turn * 3) % len(ways)] for turn in range(count)]


@pytest.mark.parametrize("number, name", list(enumerate(USERS)))
def test_users_optimizers(number, name, full, cell, monkeypatch):
    monkeypatch.setitem(CASES, name, KerasCase(v1.train.Optimizer, USERS[name]))
    ways = list(KERAS_3_WAYS)
    for way in ways if full else ways_for(number, ways, 3):
        result = cell(name, way, "float32", "keras3")
        assert same(result, way), (way, result)


def test_state_is_compared_before_each_step():
    way = KERAS_3_WAYS["function"]
    problem = way.task("float32", steps=3)
    trace = way.run(problem, CASES["Adam"].make)
    for step in (1, 2):
        power = np.multiply.reduce(np.full(step + 1, 0.9, np.float32))
        assert trace.slots[step, "shared", "beta1_power"] == power
        other = dict(trace.slots)
        other[step, "table", "m"] = trace.slots["table", "m"]
        assert exactness.largest_difference(trace._replace(slots=other), trace) > 0


# Training steps with changing variables or batch sizes, and optimizers that alternate.


@contextlib.contextmanager
def floatx(dtype):
    before = keras.config.floatx()
    keras.config.set_floatx(dtype)
    try:
        yield
    finally:
        keras.config.set_floatx(before)


ONE_AT_A_TIME = [("table", "matrix"), ("table",), ("matrix",), ("matrix",), ("table", "matrix")]
AWKWARD = ["AdagradDA", "AdagradDecay", "Adam", "Ftrl", "Momentum", "RMSProp"]


def session_of_parts(name, parts, config):
    """Trains in a Session. Step i trains only the variables that `parts[i]` lists."""
    with tf.Graph().as_default(), v1.Session(config=config) as sess:
        variables = keras_models.variables_of(PROBLEM)
        placeholders = running._placeholders(PROBLEM)
        step = running._global_step("int64")
        optimizer = keras_models.make(name, step)
        pairs = dict(zip(variables, keras_models.pairs(placeholders, variables)))
        ops = {
            part: optimizer.apply_gradients([pairs[key] for key in part], step)
            for part in dict.fromkeys(parts)
        }
        sess.run(v1.global_variables_initializer())
        steps = []
        for part, gradients in zip(parts, PROBLEM.gradients):
            sess.run(ops[part], running._feed(placeholders, gradients))
            steps.append(sess.run(variables))
        slots = keras_models.slots_of(optimizer, variables)
        return running.Trace(steps, sess.run(slots) if slots else {})


@pytest.mark.filterwarnings("ignore:Gradients do not exist")
@pytest.mark.pairwise(
    name=AWKWARD, way=["function", "eager"], how=["None", "left out", "built before"]
)
def test_variables_without_a_gradient_in_some_steps(name, way, how):
    """Some steps train only one variable, as if parts of a model were trained alternately."""
    variables, optimizer = keras_models.variables_of(PROBLEM), bridged(name)
    if how == "built before":
        optimizer.build(list(variables.values()))

    def train(gradients, part):
        pairs = keras_models.pairs(gradients, variables)
        if how == "None":
            pairs = [(grad if v.name[:-2] in part else None, v) for grad, v in pairs]
        else:
            pairs = [pair for pair in pairs if pair[1].name[:-2] in part]
        optimizer.apply_gradients(pairs)

    train = tf.function(train) if way == "function" else train
    steps = []
    for part, gradients in zip(ONE_AT_A_TIME, PROBLEM.gradients):
        train(keras_models.constants(gradients), part)
        steps.append({key: variable.numpy() for key, variable in variables.items()})
    slots = keras_models.slots_of(optimizer, variables)
    actual = running.Trace(steps, {key: slot.numpy() for key, slot in slots.items()})
    config = running.config_of(way)
    running.assert_same(actual, session_of_parts(name, ONE_AT_A_TIME, config))
    assert int(optimizer.iterations.numpy()) == len(ONE_AT_A_TIME)


@pytest.mark.parametrize("name", ["AdagradDecayV2", "Adam"])
def test_a_last_batch_of_another_size(name):
    """The last batch has half the size, so the step is traced again."""
    way = KERAS_3_WAYS["fit"]
    model = way.task("float32", steps=5)
    ids, targets = model.batches[-1]
    batches = model.batches[:-1] + [(ids[:4], targets[:4])]
    model = model._replace(batches=batches)
    running.assert_same(way.run(model, CASES[name].make), way.reference(model, CASES[name].make))


@pytest.mark.parametrize("name", ["AdagradDecay", "Adam", "Momentum"])
def test_a_step_that_is_traced_again(name):
    """Calls two tf.functions alternately. The first is traced again for a new number of rows."""
    optimizer = bridged(name)
    uneven = [
        dict(step, table=type(step["table"])(*(part[: 2 + number % 3] for part in step["table"])))
        for number, step in enumerate(PROBLEM.gradients)
    ]
    problem = PROBLEM._replace(gradients=uneven)
    traces = []

    def train(gradients, variables):
        traces.append(1)
        optimizer.apply_gradients(keras_models.pairs(gradients, variables))

    functions = [tf.function(train), tf.function(train, reduce_retracing=True)]
    calls = iter(range(problem.steps))
    actual, _ = keras_models.loop(
        problem,
        optimizer,
        "eager",
        apply=lambda _, gradients, variables: functions[next(calls) % 2](gradients, variables),
    )
    running.assert_same(actual, keras_models.session(name, problem))
    assert len(traces) >= 4


@pytest.mark.parametrize("way", ["function", "eager"])
def test_optimizers_that_train_alternately(way):
    """Three bridged optimizers train alternately. Two of them bridge the same v1 optimizer."""
    adam = v1.train.AdamOptimizer(0.1)
    optimizers = [bridged(adam), bridged(v1.train.MomentumOptimizer(0.1, 0.9)), bridged(adam)]
    makers = [v1.train.AdamOptimizer, lambda rate: v1.train.MomentumOptimizer(rate, 0.9)]
    runs = []
    for optimizer in optimizers:
        variables = keras_models.variables_of(PROBLEM)

        def train(gradients, optimizer=optimizer, variables=variables):
            optimizer.apply_gradients(keras_models.pairs(gradients, variables))

        if way == "function":
            train = tf.function(train, input_signature=[running.signature(PROBLEM)])
        runs.append((train, variables, running.Trace([], {})))
    for gradients in PROBLEM.gradients:
        for train, variables, trace in runs:
            train(keras_models.constants(gradients))
            trace.steps.append({name: variable.numpy() for name, variable in variables.items()})
    config = running.config_of(way)
    for number, (optimizer, (_, variables, trace)) in enumerate(zip(optimizers, runs)):
        slots = keras_models.slots_of(optimizer, variables)
        trace.slots.update({key: slot.numpy() for key, slot in slots.items()})
        make = makers[number % 2]
        expected = running.session(PROBLEM, lambda step, m=make: m(0.1), True, config=config)
        running.assert_same(trace, expected)


# Keras' floatx is the default dtype of layers and learning rates. Bridged optimizers must ignore
# floatx.


@pytest.mark.in_turn(
    name=["AdagradDecayV2", "Adam", "Ftrl", "GradientDescent", "Momentum"],
    dtype=DTYPES,
    default=["float16", "bfloat16", "float64"],
    way=["function, keras.Variable", "eager", "fit"],
)
def test_the_default_dtype_of_keras_changes_nothing(name, dtype, default, way, cell):
    with floatx(default):
        result = cell(name, way, dtype, "keras3")
    assert same(result, way)


@pytest.mark.parametrize("default", ["float16", "bfloat16", "float64"])
def test_the_learning_rate_is_float32_whatever_the_default(default):
    with floatx(default):
        optimizer = bridged(v1.train.AdamOptimizer(0.1))
        again = type(optimizer).from_config(optimizer.get_config())
    for one in (optimizer, again):
        assert one.learning_rate.dtype == "float32"
        assert one.learning_rate.numpy() == np.float32(0.1)
        names = [variable.path.split("/")[-1] for variable in one.variables]
        assert names[:2] == ["iteration", "learning_rate"]
        assert len(names) == len(set(names))
        assert one.get_config()["learning_rate"] == 0.1


def test_a_keras_variable_and_its_value_have_the_same_slot():
    variable = keras_ways.keras_variable(np.zeros([2], "f"), "w", "float32")
    optimizer = bridged(v1.train.MomentumOptimizer(1.0, 0.5))
    optimizer.apply_gradients([(tf.ones([2]), variable)])
    assert optimizer.get_slot(variable, "momentum") is optimizer.get_slot(
        variable.value, "momentum"
    )

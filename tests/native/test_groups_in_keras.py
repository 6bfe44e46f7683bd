"""Tests that kernels update small variables in groups through `to_keras`, as in a Session."""

import numpy as np
import pytest
import tensorflow as tf

import legacy_opt
from legacy_opt.compat import to_keras
from tests.support.checkpoints.v1_checkpoints import APIS

v1 = tf.compat.v1
SHAPES = [[3], [4, 2], [7], [2, 2]]
VALUES = [np.linspace(-1, 1, np.prod(shape)).reshape(shape) for shape in SHAPES]
FLOAT32 = ["float32"] * len(SHAPES)
MAKERS = {
    "Adam": lambda: v1.train.AdamOptimizer(0.1),
    "LazyAdam": lambda: legacy_opt.LazyAdamOptimizer(0.1),
    "AdamW, clipped": lambda: legacy_opt.ClipByGlobalNormOptimizer(
        legacy_opt.AdamWOptimizer(0.1, 0.1), 0.5
    ),
    "two optimizers": lambda: legacy_opt.MultiOptimizer(
        [(legacy_opt.LazyAdamOptimizer(0.1), "w0|w1"), (legacy_opt.NadamOptimizer(0.1), "w2|w3")]
    ),
}


def bridged(name, api, native="require", **options):
    optimizer = legacy_opt.native.accelerate(MAKERS[name](), require=True)
    for each in [optimizer, *getattr(optimizer, "wrapped", ())]:
        each.native = native
    return to_keras(optimizer, api=api, **options)


def function_of(optimizer, dtypes=FLOAT32, sparse=()):
    """Returns a function that makes a step, and its variables.

    The gradients of the variables whose numbers are in `sparse` are sparse.
    """
    variables = [
        tf.Variable(value.astype(dtype), name=f"w{number}")
        for number, (value, dtype) in enumerate(zip(VALUES, dtypes))
    ]

    def gradient(number, variable):
        grad = tf.cast(variable, variable.dtype) * 0.5 + 1
        return tf.IndexedSlices(grad[:2], [1, 1], variable.shape) if number in sparse else grad

    @tf.function
    def step():
        pairs = [(gradient(*each), each[1]) for each in enumerate(variables)]
        optimizer.apply_gradients(pairs)

    return step, variables


def updates_in(function):
    operations = function.get_concrete_function().graph.get_operations()
    return [each.type for each in operations if each.type.startswith("LegacyOptUpdate")]


def trained(function, variables):
    for _ in range(3):
        function()
    return [each.numpy() for each in variables]


@pytest.mark.in_turn(name=MAKERS, api=APIS)
def test_small_variables_share_an_operation(name, api, monkeypatch):
    step, variables = function_of(bridged(name, api))
    assert len(updates_in(step)) == (2 if name == "two optimizers" else 1)
    values = trained(step, variables)
    monkeypatch.setattr(legacy_opt.native.updates.one_step, "GROUP_BYTES", 0)
    apart, variables = function_of(bridged(name, api))
    assert len(updates_in(apart)) == len(SHAPES)
    for one, other in zip(values, trained(apart, variables)):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("api", APIS)
def test_with_another_dtype_each_update_waits_for_its_learning_rate(api):
    dtypes = ["float64", "float32", "float64", "float32"]
    step, variables = function_of(bridged("LazyAdam", api), dtypes)
    assert len(updates_in(step)) == len(SHAPES)
    values = trained(step, variables)
    same, variables = function_of(bridged("LazyAdam", api), ["float64"] * len(SHAPES))
    np.testing.assert_array_equal(values[0], trained(same, variables)[0])


@pytest.mark.parametrize("api", APIS)
def test_a_table_that_is_updated_for_xla_is_updated_once(api):
    tables = []
    for native in ("require", "off"):
        step, variables = function_of(bridged("Adam", api, native, fused=False), sparse=[1])
        tables.append(trained(step, variables)[1])
    np.testing.assert_array_equal(*tables)


@pytest.mark.parametrize("api", APIS)
def test_a_learning_rate_that_is_set_between_steps(api):
    values = []
    for in_function in (True, False):
        optimizer = bridged("Adam", api)
        step, variables = function_of(optimizer)
        step = step if in_function else step.python_function
        step()
        optimizer.learning_rate = 0.5
        values.append(trained(step, variables))
    for one, other in zip(*values):
        np.testing.assert_array_equal(one, other)

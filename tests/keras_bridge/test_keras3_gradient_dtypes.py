"""Tests that the Keras 3 bridge (`to_keras`) casts gradients to the dtype of the variable."""

import itertools

import numpy as np
import pytest
import tensorflow as tf

from legacy_opt import LazyAdamOptimizer, MovingAverageOptimizer, versions
from tests.support import problems, running
from tests.support.keras.keras_apis import KERAS_3

bridged = KERAS_3.bridged

pytestmark = pytest.mark.keras3

v1 = tf.compat.v1
keras = versions.keras_3()
DTYPES = ("float16", "bfloat16", "float32", "float64")
PAIRS = [pair for pair in itertools.product(DTYPES, DTYPES) if pair[0] != pair[1]]
KINDS = ("dense", "sparse")
START = np.linspace(-1, 1, 12).reshape(4, 3)
IDS = np.array([3, 0, 3])
MAKERS = {
    "Adam": lambda step: v1.train.AdamOptimizer(0.1, epsilon=1e-3),
    "LazyAdam": lambda step: LazyAdamOptimizer(0.1, epsilon=1e-3),
    "moving average": lambda step: MovingAverageOptimizer(v1.train.MomentumOptimizer(0.1, 0.5)),
}


def gradients_of(kind, dtype, steps=3):
    """Returns one random array of the dtype for each step."""
    random = np.random.RandomState(1)
    rows = len(IDS) if kind == "sparse" else len(START)
    cast = problems.numpy_dtype(dtype)
    return [random.randn(rows, START.shape[1]).astype(cast) for _ in range(steps)]


def as_gradient(kind, values):
    return tf.IndexedSlices(values, tf.constant(IDS), START.shape) if kind == "sparse" else values


def trained(optimizer, kind, of_gradients, of_variable, make=tf.Variable):
    variable = make(START.astype(problems.numpy_dtype(of_variable)), dtype=of_variable)

    @tf.function
    def step(values):
        optimizer.apply_gradients([(as_gradient(kind, values), variable)])

    for values in gradients_of(kind, of_gradients):
        step(tf.constant(values))
    return np.array(variable.numpy())


def in_a_session(make, kind, of_gradients, of_variable):
    """Trains the v1 optimizer in a Session, with gradients that NumPy has cast."""
    cast = problems.numpy_dtype(of_variable)
    found = [values.astype(cast) for values in gradients_of(kind, of_gradients)]
    if kind == "sparse":
        found = [problems.Rows(values, IDS) for values in found]
    problem = problems.Problem(
        {"w": START.astype(cast)},
        [{"w": values} for values in found],
        ("w",) * (kind == "sparse"),
        of_variable,
    )
    return running.session(problem, make, True).steps[-1]["w"]


def cells():
    """Yields all combinations. Only one or two for each pair of dtypes lack the mark `full`."""
    for number, (pair, kind, name) in enumerate(itertools.product(PAIRS, KINDS, MAKERS)):
        yield pytest.param(*pair, kind, name, marks=[pytest.mark.full] * (number % 5 > 0))


@pytest.mark.parametrize("of_gradients, of_variable, kind, name", cells())
def test_gradients_are_cast(of_gradients, of_variable, kind, name):
    own = keras.optimizers.SGD(0.1)
    trained(own, kind, of_gradients, of_variable)  # Keras' own optimizer also casts
    for make in (tf.Variable, keras.Variable):
        actual = trained(bridged(MAKERS[name](None)), kind, of_gradients, of_variable, make)
        expected = in_a_session(MAKERS[name], kind, of_gradients, of_variable)
        assert actual.dtype == expected.dtype and np.array_equal(actual, expected)


@pytest.mark.parametrize("kind", KINDS)
def test_integer_gradients_are_cast(kind):
    variable = tf.Variable(START)
    values = tf.constant(np.arange(9 if kind == "sparse" else 12).reshape(-1, 3), tf.int32)
    bridged(v1.train.GradientDescentOptimizer(1.0)).apply_gradients(
        [(as_gradient(kind, values), variable)]
    )
    expected = START.copy()
    if kind == "sparse":
        np.subtract.at(expected, IDS, values.numpy())
    else:
        expected -= values.numpy()
    np.testing.assert_array_equal(variable.numpy(), expected)

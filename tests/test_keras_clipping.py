"""Clipping and other work on gradients that Keras promises, against NumPy."""

import inspect

import numpy as np
import pytest
import tensorflow as tf

from tests import keras_models as models
from tests import problems, running

v1 = tf.compat.v1
PROBLEM = models.problem()
RATE = np.float32(0.5)


def summed(rows, size):
    """Returns a sparse gradient as a dense one."""
    result = np.zeros([size, rows.values.shape[1]], "f")
    np.add.at(result, rows.ids, rows.values)
    return result


def by_value(gradients):
    return {name: np.clip(gradient, -0.4, 0.4) for name, gradient in gradients.items()}


def by_norm(gradients):
    return {
        name: gradient * min(1.0, 0.7 / np.linalg.norm(gradient.ravel()))
        for name, gradient in gradients.items()
    }


def by_global_norm(gradients):
    norm = np.sqrt(sum(np.sum(np.square(gradient)) for gradient in gradients.values()))
    return {name: gradient * min(1.0, 0.9 / norm) for name, gradient in gradients.items()}


LIMITS = {
    "clipvalue": ({"clipvalue": 0.4}, by_value),
    "clipnorm": ({"clipnorm": 0.7}, by_norm),
    "global_clipnorm": ({"global_clipnorm": 0.9}, by_global_norm),
    # In the order in which Keras does it.
    "value and norm": ({"clipvalue": 0.4, "clipnorm": 0.7}, lambda g: by_norm(by_value(g))),
}


def expected(clip):
    """Trains by gradient descent in NumPy; returns the values after each step."""
    now = dict(PROBLEM.values)
    steps = []
    for gradients in PROBLEM.gradients:
        dense = clip({"table": summed(gradients["table"], 9), "matrix": gradients["matrix"]})
        now = {name: now[name] - RATE * dense[name] for name in now}
        steps.append(now)
    return steps


def assert_close(trace, steps):
    for one, other in zip(trace.steps, steps):
        for name in other:
            np.testing.assert_allclose(one[name], other[name], rtol=1e-5, atol=1e-6)


def minimize(optimizer, gradients, variables):
    return optimizer.minimize(lambda: models.loss(gradients, variables), list(variables.values()))


def updates(optimizer, gradients, variables):
    loss = models.loss(gradients, variables)
    return optimizer.get_updates(loss, list(variables.values()))


WAYS = {
    "loop": lambda make: models.loop(PROBLEM, make(), "eager")[0],
    "function": lambda make: models.loop(PROBLEM, make())[0],
    "minimize": lambda make: models.loop(PROBLEM, make(), apply=minimize)[0],
    "fit": lambda make: models.fit(PROBLEM, make())[0],
    "graph": lambda make: models.graph(PROBLEM, make),
    "graph-minimize": lambda make: models.graph(PROBLEM, make, minimize),
    "graph-updates": lambda make: models.graph(PROBLEM, make, updates),
}


def sgd(**arguments):
    return models.bridged(v1.train.GradientDescentOptimizer(float(RATE)), **arguments)


@pytest.mark.parametrize("way", sorted(WAYS))
@pytest.mark.parametrize("limit", sorted(LIMITS))
def test_clipping(limit, way):
    arguments, clip = LIMITS[limit]
    plain = expected(lambda gradients: gradients)
    assert not np.allclose(expected(clip)[-1]["table"], plain[-1]["table"], atol=0.1)
    assert_close(WAYS[way](lambda: sgd(**arguments)), expected(clip))


@pytest.mark.parametrize("way", ["eager", "function"])
def test_a_limit_can_be_changed_on_the_optimizer(way):
    optimizer = sgd(clipvalue=0.4)
    assert optimizer.clipvalue == 0.4 and getattr(optimizer, "clipnorm", None) is None
    optimizer.clipvalue = None
    optimizer.clipnorm = 0.7
    actual, _ = models.loop(PROBLEM, optimizer, way)
    assert_close(actual, expected(by_norm))


def test_a_row_that_occurs_often_is_clipped_as_one():
    """Ten gradients of 0.01 each are one of 0.1: over the limit, though none of them is."""
    for ways in ("eager", "function"):
        table = tf.Variable(tf.zeros([3, 1]))
        optimizer = models.bridged(v1.train.GradientDescentOptimizer(1.0), clipvalue=0.05)

        def step(table=table, optimizer=optimizer):
            rows = tf.IndexedSlices(tf.fill([10, 1], 0.01), tf.ones([10], tf.int64), (3, 1))
            optimizer.apply_gradients([(rows, table)])

        (tf.function(step) if ways == "function" else step)()
        np.testing.assert_allclose(table.numpy(), [[0.0], [-0.05], [0.0]], rtol=1e-6)


def test_variables_without_gradients_are_left_alone():
    one, other = tf.Variable([1.0]), tf.Variable([2.0])
    for arguments, _ in LIMITS.values():
        sgd(**arguments).apply_gradients([(tf.constant([100.0]), one), (None, other)])
    assert other.numpy() == [2.0] and one.numpy() < 1.0


@pytest.mark.parametrize("limit", ["clipvalue", "clipnorm", "global_clipnorm"])
def test_wrong_limits(limit):
    with pytest.raises(ValueError, match=limit):
        sgd(**{limit: -0.1})


def test_both_norms():
    with pytest.raises(ValueError, match="both .*clipnorm.* and .*global_clipnorm"):
        sgd(clipnorm=1.0, global_clipnorm=1.0)


def doubled(grads_and_vars):
    return [
        (tf.IndexedSlices(2.0 * g.values, g.indices, g.dense_shape), v)
        if isinstance(g, tf.IndexedSlices)
        else (2.0 * g, v)
        for g, v in grads_and_vars
    ]


@pytest.mark.parametrize("way", ["loop", "function", "fit"])
@pytest.mark.parametrize("argument", ["gradient_aggregator", "gradient_transformers"])
def test_gradient_transformers_and_aggregators(argument, way):
    """Keras has them from 2.4 on, and its own message before."""
    value = [doubled] if argument == "gradient_transformers" else doubled
    if argument not in inspect.signature(models.Base.__init__).parameters:
        with pytest.raises(TypeError, match="%s" % argument):
            sgd(**{argument: value})
        return
    actual = WAYS[way](lambda: models.bridged("Adam", **{argument: value}))
    twice = [
        {
            "table": problems.Rows(step["table"].values * 2, step["table"].ids),
            "matrix": step["matrix"] * 2,
        }
        for step in PROBLEM.gradients
    ]
    config = models.AS_WRITTEN if way == "loop" else None
    wanted = running.session(
        PROBLEM._replace(gradients=twice), lambda _: models.make("Adam"), True, config=config
    )
    running.assert_same(actual, wanted)

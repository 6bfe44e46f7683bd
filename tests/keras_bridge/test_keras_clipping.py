"""Clipping and other work on gradients that Keras promises, against NumPy."""

import inspect

import numpy as np
import pytest
import tensorflow as tf

from legacy_opt import versions
from tests.support import clipped, problems, running
from tests.support.keras import keras_models as models
from tests.support.keras.keras_apis import OPTIMIZER_V2 as api

v1 = tf.compat.v1
PROBLEM = models.problem()


LIMITS = {
    "clipvalue": ({"clipvalue": 0.4}, clipped.by_value),
    "clipnorm": ({"clipnorm": 0.7}, clipped.by_norm),
    "global_clipnorm": ({"global_clipnorm": 0.9}, clipped.by_global_norm),
    # In the order in which Keras does it.
    "value and norm": (
        {"clipvalue": 0.4, "clipnorm": 0.7},
        lambda g: clipped.by_norm(clipped.by_value(g)),
    ),
}


def minimize(optimizer, gradients, variables):
    return optimizer.minimize(lambda: models.loss(gradients, variables), list(variables.values()))


def updates(optimizer, gradients, variables):
    loss = models.loss(gradients, variables)
    return optimizer.get_updates(loss, list(variables.values()))


WAYS = {
    "loop": lambda make: models.loop(PROBLEM, make(), "eager")[0],
    "function": lambda make: models.loop(PROBLEM, make())[0],
    "minimize": lambda make: models.loop(PROBLEM, make(), apply=minimize)[0],
    "fit": lambda make: api.fit(PROBLEM, make())[0],
    "graph": lambda make: models.graph(PROBLEM, make),
    "graph-minimize": lambda make: models.graph(PROBLEM, make, minimize),
    "graph-updates": lambda make: models.graph(PROBLEM, make, updates),
}


def sgd(**arguments):
    return api.bridged(v1.train.GradientDescentOptimizer(float(clipped.RATE)), **arguments)


@pytest.mark.parametrize("way", sorted(WAYS))
@pytest.mark.parametrize("limit", sorted(LIMITS))
def test_clipping(limit, way):
    arguments, clip = LIMITS[limit]
    plain = clipped.descended(lambda gradients: gradients)
    assert not np.allclose(clipped.descended(clip)[-1]["table"], plain[-1]["table"], atol=0.1)
    running.assert_steps_close(WAYS[way](lambda: sgd(**arguments)).steps, clipped.descended(clip))


@pytest.mark.parametrize("way", ["eager", "function"])
def test_a_limit_can_be_changed_on_the_optimizer(way):
    optimizer = sgd(clipvalue=0.4)
    assert optimizer.clipvalue == 0.4 and getattr(optimizer, "clipnorm", None) is None
    optimizer.clipvalue = None
    optimizer.clipnorm = 0.7
    actual, _ = models.loop(PROBLEM, optimizer, way)
    running.assert_steps_close(actual.steps, clipped.descended(clipped.by_norm))


def test_a_row_that_occurs_often_is_clipped_as_one():
    """Ten gradients of 0.01 each are one of 0.1: over the limit, though none of them is."""
    for ways in ("eager", "function"):
        table = tf.Variable(tf.zeros([3, 1]))
        optimizer = api.bridged(v1.train.GradientDescentOptimizer(1.0), clipvalue=0.05)

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
    if argument not in inspect.signature(versions.optimizer_v2().__init__).parameters:
        with pytest.raises(TypeError, match="%s" % argument):
            sgd(**{argument: value})
        return
    actual = WAYS[way](lambda: api.bridged("Adam", **{argument: value}))
    twice = [
        {
            "table": problems.Rows(step["table"].values * 2, step["table"].ids),
            "matrix": step["matrix"] * 2,
        }
        for step in PROBLEM.gradients
    ]
    config = running.AS_WRITTEN if way == "loop" else None
    wanted = running.session(
        PROBLEM._replace(gradients=twice), lambda _: models.make("Adam"), True, config=config
    )
    running.assert_same(actual, wanted)

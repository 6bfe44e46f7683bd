"""Gradient clipping and loss scaling that Keras 3 promises, against NumPy and Keras' own SGD."""

import numpy as np
import pytest
import tensorflow as tf

from tests.support import clipped, problems, running
from tests.support.keras import keras_models
from tests.support.keras.keras_apis import KERAS_3 as api

pytestmark = pytest.mark.keras3

v1 = tf.compat.v1.train
PROBLEM = keras_models.problem()
DENSE = PROBLEM._replace(
    values={"matrix": PROBLEM.values["matrix"]},
    gradients=[{"matrix": step["matrix"]} for step in PROBLEM.gradients],
    sparse=(),
)
WAYS = pytest.mark.parametrize("way", ["function", "eager"])


LIMITS = {
    "clipvalue": (0.4, clipped.by_value),
    "clipnorm": (0.7, clipped.by_norm),
    "global_clipnorm": (0.9, clipped.by_global_norm),
}


def sgd(**arguments):
    return api.bridged(v1.GradientDescentOptimizer(float(clipped.RATE)), **arguments)


TRAIN = {
    "eager": lambda optimizer: keras_models.loop(PROBLEM, optimizer, "eager")[0],
    "function": lambda optimizer: keras_models.loop(PROBLEM, optimizer)[0],
    "fit": lambda optimizer: api.fit(PROBLEM, optimizer)[0],
}


@pytest.mark.parametrize("way", sorted(TRAIN))
@pytest.mark.parametrize("limit", sorted(LIMITS))
def test_clipping_sums_repeated_ids_first(limit, way):
    value, clip = LIMITS[limit]
    plain = clipped.descended(lambda gradients: gradients)
    assert not np.allclose(clipped.descended(clip)[-1]["table"], plain[-1]["table"], atol=0.1)
    running.assert_steps_close(TRAIN[way](sgd(**{limit: value})).steps, clipped.descended(clip))


@WAYS
@pytest.mark.parametrize("limit", sorted(LIMITS))
def test_dense_gradients_are_clipped_as_keras_clips_them(limit, way):
    """Bit for bit, with Keras' own optimizer of the same formula."""
    arguments = {limit: LIMITS[limit][0]}
    actual, _ = keras_models.loop(DENSE, sgd(**arguments), way)
    native = api.keras.optimizers.SGD(float(clipped.RATE), **arguments)
    wanted = native_loop(DENSE, native, way)
    for one, other in zip(actual.steps, wanted):
        np.testing.assert_array_equal(one["matrix"], other)


def native_loop(problem, optimizer, way):
    """Trains the matrix with an optimizer of Keras' own, which has no get_slot."""
    variable = tf.Variable(problem.values["matrix"])
    optimizer.build([variable])

    def step(gradient):
        optimizer.apply_gradients([(gradient, variable)])

    step = tf.function(step) if way == "function" else step
    values = []
    for gradients in problem.gradients:
        step(tf.constant(gradients["matrix"]))
        values.append(variable.numpy())
    return values


@WAYS
@pytest.mark.parametrize("limit", sorted(LIMITS))
def test_a_row_that_occurs_often_is_clipped_as_one(limit, way):
    """Ten gradients of 0.01 each are one of 0.1: over the limit, though none of them is."""
    table = api.keras.Variable(np.zeros([3, 1], "f"))
    optimizer = api.bridged(v1.GradientDescentOptimizer(1.0), **{limit: 0.05})

    def step():
        rows = tf.IndexedSlices(tf.fill([10, 1], 0.01), tf.ones([10], tf.int64), (3, 1))
        optimizer.apply_gradients([(rows, table)])

    (tf.function(step) if way == "function" else step)()
    np.testing.assert_allclose(table.numpy(), [[0.0], [-0.05], [0.0]], rtol=1e-6)


@pytest.mark.parametrize("name", ["Adam", "Momentum", "RMSProp"])
def test_slots_see_the_clipped_gradient(name):
    """What is within the limit changes no bit; beyond it, v1 gets the clipped gradients."""
    clipped = [
        {
            "table": problems.Rows(*clip_rows(step["table"])),
            "matrix": np.clip(step["matrix"], np.float32(-0.5), np.float32(0.5)),
        }
        for step in PROBLEM.gradients
    ]
    # The ids are distinct already, as the sums of a Session may be in another order.
    one_each = PROBLEM._replace(
        gradients=[
            dict(step, table=problems.Rows(*once(step["table"]))) for step in PROBLEM.gradients
        ]
    )
    actual, _ = keras_models.loop(one_each, api.bridged(name, clipvalue=0.5))
    running.assert_same(actual, keras_models.session(name, PROBLEM._replace(gradients=clipped)))


def once(rows):
    ids = np.array(sorted(set(rows.ids)))
    return clipped.summed(rows, 9)[ids], ids


def clip_rows(rows):
    values, ids = once(rows)
    return np.clip(values, np.float32(-0.5), np.float32(0.5)), ids


@pytest.mark.parametrize("limit", sorted(LIMITS))
def test_variables_without_gradients_are_left_alone(limit):
    one, other = api.keras.Variable([1.0]), api.keras.Variable([2.0])
    sgd(**{limit: 0.5}).apply_gradients([(tf.constant([100.0]), one), (None, other)])
    assert other.numpy() == [2.0]
    np.testing.assert_allclose(one.numpy(), [0.75])


@pytest.mark.parametrize("dtype", ["float64", "float16", "bfloat16"])
@pytest.mark.parametrize("limit", sorted(LIMITS))
def test_clipping_keeps_the_dtype(limit, dtype):
    table = api.keras.Variable(np.zeros([3, 1]), dtype=dtype)
    vector = api.keras.Variable(np.zeros([2]), dtype=dtype)
    rows = tf.IndexedSlices(tf.ones([2, 1], dtype), tf.constant([1, 1]), (3, 1))
    optimizer = api.bridged(v1.GradientDescentOptimizer(1.0), **{limit: 0.25})
    optimizer.apply_gradients([(rows, table), (tf.constant([3.0, 4.0], dtype), vector)])
    length = {"clipvalue": 0.25 * 2**0.5, "clipnorm": 0.25}.get(limit, 0.25 * 5 / 29**0.5)
    assert vector.dtype == dtype
    values = np.asarray(vector.numpy(), "f")
    np.testing.assert_allclose(np.linalg.norm(values), length, rtol=2e-2)


@WAYS
def test_a_limit_can_be_changed_on_the_optimizer(way):
    optimizer = sgd(clipvalue=0.4)
    optimizer.clipvalue = None
    optimizer.clipnorm = 0.7
    actual, _ = keras_models.loop(PROBLEM, optimizer, way)
    running.assert_steps_close(actual.steps, clipped.descended(clipped.by_norm))


def test_clipping_comes_after_the_average_of_accumulated_gradients():
    variable = api.keras.Variable(np.zeros(2, "f"))
    optimizer = api.bridged(
        v1.GradientDescentOptimizer(1.0), clipvalue=1.0, gradient_accumulation_steps=2
    )
    for gradient in ([4.0, 0.0], [-3.0, 1.0]):  # averaged [0.5, 0.5]; clipped first [0, 0.5]
        optimizer.apply_gradients([(tf.constant(gradient), variable)])
    np.testing.assert_array_equal(variable.numpy(), [-0.5, -0.5])


@pytest.mark.parametrize("wrong", [0, -0.1, float("nan"), float("inf")])
@pytest.mark.parametrize("limit", sorted(LIMITS) + ["loss_scale_factor"])
def test_wrong_limits(limit, wrong):
    with pytest.raises(ValueError, match=limit + " must be (positive|finite)"):
        sgd(**{limit: wrong})


def test_a_limit_that_is_no_number():
    with pytest.raises(TypeError, match="clipnorm must be a number, got '1'"):
        sgd(clipnorm="1")


@pytest.mark.parametrize("pair", [("clipnorm", "clipvalue"), ("clipnorm", "global_clipnorm")])
def test_two_limits(pair):
    with pytest.raises(ValueError, match="Only one of"):
        sgd(**dict.fromkeys(pair, 1.0))


# The loss scale factor.


def scaled(problem, factor):
    return problem._replace(
        gradients=[
            {
                "table": problems.Rows(step["table"].values * factor, step["table"].ids),
                "matrix": step["matrix"] * factor,
            }
            for step in problem.gradients
        ]
    )


@WAYS
@pytest.mark.parametrize("name", ["AdagradDecay", "Adam", "Ftrl", "Momentum"])
def test_a_loss_scale_that_is_a_power_of_two_changes_no_bit(name, way):
    optimizer = api.bridged(name, loss_scale_factor=1024.0)
    actual, _ = keras_models.loop(scaled(PROBLEM, np.float32(1024)), optimizer, way)
    config = running.config_of(way)
    running.assert_same(actual, keras_models.session(name, PROBLEM, config=config))


def test_fit_scales_the_loss():
    actual, model = api.fit(PROBLEM, api.bridged("Adam", loss_scale_factor=1024.0))
    running.assert_same(actual, keras_models.session("Adam", PROBLEM))
    assert float(model.optimizer.scale_loss(tf.constant(2.0))) == 2048.0


def test_a_loss_scale_and_a_limit():
    """The limit is for what is left when the scale is undone."""
    optimizer = sgd(loss_scale_factor=64.0, clipnorm=0.7)
    actual, _ = keras_models.loop(scaled(PROBLEM, np.float32(64)), optimizer)
    running.assert_steps_close(actual.steps, clipped.descended(clipped.by_norm))

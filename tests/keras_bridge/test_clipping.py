"""Tests Keras' clipping, loss scaling and gradient transformers with bridged optimizers.

A bridged optimizer is a Keras optimizer that `to_keras` made from a v1 optimizer.
"""

import inspect

import numpy as np
import pytest
import tensorflow as tf

from legacy_opt import versions
from tests.support import problems, running
from tests.support.keras import keras_models
from tests.support.keras.keras_apis import KERAS_3, OPTIMIZER_V2, of_each

v1 = tf.compat.v1.train
PROBLEM = keras_models.problem()
DENSE = PROBLEM._replace(
    values={"matrix": PROBLEM.values["matrix"]},
    gradients=[{"matrix": step["matrix"]} for step in PROBLEM.gradients],
    sparse=(),
)
WAYS = pytest.mark.parametrize("way", ["function", "eager"])
RATE = np.float32(0.5)


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


def descended(clip):
    """Trains on `PROBLEM` by gradient descent; returns the values after each step."""
    clipped = [
        clip({name: problems.dense(step[name], value) for name, value in PROBLEM.values.items()})
        for step in PROBLEM.gradients
    ]
    return keras_models.rates(PROBLEM._replace(gradients=clipped), lambda _: RATE)


LIMITS = {
    "clipvalue": ({"clipvalue": 0.4}, by_value),
    "clipnorm": ({"clipnorm": 0.7}, by_norm),
    "global_clipnorm": ({"global_clipnorm": 0.9}, by_global_norm),
}
# Keras 2 clips first by value, then by norm. Keras 3 accepts only one of the two limits.
VALUE_AND_NORM = (
    {"clipvalue": 0.4, "clipnorm": 0.7},
    lambda gradients: by_norm(by_value(gradients)),
)


def minimize(optimizer, gradients, variables):
    loss = lambda: keras_models.loss(gradients, variables)  # noqa: E731
    return optimizer.minimize(loss, list(variables.values()))


def updates(optimizer, gradients, variables):
    loss = keras_models.loss(gradients, variables)
    return optimizer.get_updates(loss, list(variables.values()))


TRAIN = {
    "eager": lambda api, make: keras_models.loop(PROBLEM, make(), "eager")[0],
    "function": lambda api, make: keras_models.loop(PROBLEM, make())[0],
    "fit": lambda api, make: api.fit(PROBLEM, make())[0],
}
TRAIN_2 = {
    "minimize": lambda api, make: keras_models.loop(PROBLEM, make(), apply=minimize)[0],
    "graph": lambda api, make: keras_models.graph(PROBLEM, make),
    "graph-minimize": lambda api, make: keras_models.graph(PROBLEM, make, minimize),
    "graph-updates": lambda api, make: keras_models.graph(PROBLEM, make, updates),
}


def sgd(api, **arguments):
    return api.bridged(v1.GradientDescentOptimizer(float(RATE)), **arguments)


@pytest.mark.parametrize("limit", sorted(LIMITS))
@of_each("way", optimizer_v2=[*TRAIN, *TRAIN_2], keras3=TRAIN)
def test_clipping_sums_repeated_ids_first(api, limit, way):
    assert_clips(api, *LIMITS[limit], way)


@pytest.mark.parametrize("way", [*TRAIN, *TRAIN_2])
def test_clipping_by_value_and_norm(way):
    assert_clips(OPTIMIZER_V2, *VALUE_AND_NORM, way)


def assert_clips(api, arguments, clip, way):
    plain = descended(lambda gradients: gradients)
    assert not np.allclose(descended(clip)[-1]["table"], plain[-1]["table"], atol=0.1)
    train = {**TRAIN, **TRAIN_2}[way]
    actual = train(api, lambda: sgd(api, **arguments))
    running.assert_steps_close(actual.steps, descended(clip))


@pytest.mark.keras3
@WAYS
@pytest.mark.parametrize("limit", sorted(LIMITS))
def test_dense_gradients_are_clipped_as_keras_clips_them(limit, way):
    """Compares bit for bit with Keras' own SGD, which has the same formula as the v1 optimizer."""
    arguments, _ = LIMITS[limit]
    actual, _ = keras_models.loop(DENSE, sgd(KERAS_3, **arguments), way)
    plain = KERAS_3.keras.optimizers.SGD(float(RATE), **arguments)
    wanted, _ = keras_models.loop(DENSE, plain, way)
    running.assert_same(actual, wanted)


@WAYS
@of_each("limit", optimizer_v2=["clipvalue"], keras3=sorted(LIMITS))
def test_gradients_of_a_repeated_id_are_clipped_as_one_sum(api, limit, way):
    """The sum of ten gradients of 0.01 is 0.1. Only this sum exceeds the limit of 0.05."""
    table = api.variable(np.zeros([3, 1], "f"))
    optimizer = api.bridged(v1.GradientDescentOptimizer(1.0), **{limit: 0.05})

    def step():
        rows = tf.IndexedSlices(tf.fill([10, 1], 0.01), tf.ones([10], tf.int64), (3, 1))
        optimizer.apply_gradients([(rows, table)])

    (tf.function(step) if way == "function" else step)()
    np.testing.assert_allclose(table.numpy(), [[0.0], [-0.05], [0.0]], rtol=1e-6)


def with_ids_summed(rows):
    ids = np.array(sorted(set(rows.ids)))
    return problems.dense(rows, PROBLEM.values["table"])[ids], ids


def clip_rows(rows):
    values, ids = with_ids_summed(rows)
    return np.clip(values, np.float32(-0.5), np.float32(0.5)), ids


@pytest.mark.parametrize("name", ["Adam", "Momentum", "RMSProp"])
def test_slots_see_the_clipped_gradient(api, name):
    """The v1 optimizer receives clipped gradients. Gradients within the limit are not changed."""
    clipped = [
        {
            "table": problems.Rows(*clip_rows(step["table"])),
            "matrix": np.clip(step["matrix"], np.float32(-0.5), np.float32(0.5)),
        }
        for step in PROBLEM.gradients
    ]
    # Ids are distinct, because Keras and a Session may sum an id's gradients in different orders.
    one_each = PROBLEM._replace(
        gradients=[
            dict(step, table=problems.Rows(*with_ids_summed(step["table"])))
            for step in PROBLEM.gradients
        ]
    )
    actual, _ = keras_models.loop(one_each, api.bridged(name, clipvalue=0.5))
    running.assert_same(actual, keras_models.session(name, PROBLEM._replace(gradients=clipped)))


@of_each("limit", optimizer_v2=[*LIMITS, "value and norm"], keras3=LIMITS)
def test_variables_without_gradients_are_left_alone(api, limit):
    one, other = api.variable([1.0]), api.variable([2.0])
    limits = ("clipvalue", "clipnorm") if limit == "value and norm" else (limit,)
    optimizer = sgd(api, **dict.fromkeys(limits, 0.5))
    optimizer.apply_gradients([(tf.constant([100.0]), one), (None, other)])
    assert other.numpy() == [2.0]
    np.testing.assert_allclose(one.numpy(), [0.75])


@pytest.mark.keras3
@pytest.mark.parametrize("dtype", ["float64", "float16", "bfloat16"])
@pytest.mark.parametrize("limit", sorted(LIMITS))
def test_clipping_keeps_the_dtype(limit, dtype):
    table = KERAS_3.variable(np.zeros([3, 1]), dtype=dtype)
    vector = KERAS_3.variable(np.zeros([2]), dtype=dtype)
    rows = tf.IndexedSlices(tf.ones([2, 1], dtype), tf.constant([1, 1]), (3, 1))
    optimizer = KERAS_3.bridged(v1.GradientDescentOptimizer(1.0), **{limit: 0.25})
    optimizer.apply_gradients([(rows, table), (tf.constant([3.0, 4.0], dtype), vector)])
    length = {"clipvalue": 0.25 * 2**0.5, "clipnorm": 0.25}.get(limit, 0.25 * 5 / 29**0.5)
    assert vector.dtype == dtype
    values = np.asarray(vector.numpy(), "f")
    np.testing.assert_allclose(np.linalg.norm(values), length, rtol=2e-2)


@WAYS
def test_a_limit_can_be_changed_on_the_optimizer(api, way):
    optimizer = sgd(api, clipvalue=0.4)
    assert optimizer.clipvalue == 0.4 and getattr(optimizer, "clipnorm", None) is None
    optimizer.clipvalue = None
    optimizer.clipnorm = 0.7
    actual, _ = keras_models.loop(PROBLEM, optimizer, way)
    running.assert_steps_close(actual.steps, descended(by_norm))


@pytest.mark.keras3
def test_clipping_comes_after_the_average_of_accumulated_gradients():
    variable = KERAS_3.variable(np.zeros(2, "f"))
    optimizer = KERAS_3.bridged(
        v1.GradientDescentOptimizer(1.0), clipvalue=1.0, gradient_accumulation_steps=2
    )
    # The average is [0.5, 0.5]. Clipping each gradient before averaging would give [0, 0.5].
    for gradient in ([4.0, 0.0], [-3.0, 1.0]):
        optimizer.apply_gradients([(tf.constant(gradient), variable)])
    np.testing.assert_array_equal(variable.numpy(), [-0.5, -0.5])


@of_each(
    "limit, wrong",
    optimizer_v2=[(limit, -0.1) for limit in LIMITS],
    keras3=[
        (limit, wrong)
        for limit in [*LIMITS, "loss_scale_factor"]
        for wrong in (0, -0.1, float("nan"), float("inf"))
    ],
)
def test_wrong_limits(api, limit, wrong):
    message = limit + " must be (positive|finite)" if api is KERAS_3 else limit
    with pytest.raises(ValueError, match=message):
        sgd(api, **{limit: wrong})


@pytest.mark.keras3
def test_a_limit_that_is_no_number():
    with pytest.raises(TypeError, match="clipnorm must be a number, got '1'"):
        sgd(KERAS_3, clipnorm="1")


@of_each(
    "one, other",
    optimizer_v2=[("clipnorm", "global_clipnorm")],
    keras3=[("clipnorm", "clipvalue"), ("clipnorm", "global_clipnorm")],
)
def test_two_limits(api, one, other):
    message = "Only one of" if api is KERAS_3 else "both .*clipnorm.* and .*global_clipnorm"
    with pytest.raises(ValueError, match=message):
        sgd(api, **{one: 1.0, other: 1.0})


# Keras 3's loss_scale_factor, and Keras 2's gradient_transformers and gradient_aggregator.


def scaled(factor):
    """Returns the problem with every gradient multiplied by the factor."""
    gradients = [
        {
            "table": problems.Rows(step["table"].values * factor, step["table"].ids),
            "matrix": step["matrix"] * factor,
        }
        for step in PROBLEM.gradients
    ]
    return PROBLEM._replace(gradients=gradients)


@pytest.mark.keras3
@WAYS
@pytest.mark.parametrize("name", ["AdagradDecay", "Adam", "Ftrl", "Momentum"])
def test_a_loss_scale_that_is_a_power_of_two_changes_no_bit(name, way):
    optimizer = KERAS_3.bridged(name, loss_scale_factor=1024.0)
    actual, _ = keras_models.loop(scaled(np.float32(1024)), optimizer, way)
    config = running.config_of(way)
    running.assert_same(actual, keras_models.session(name, PROBLEM, config=config))


@pytest.mark.keras3
def test_fit_scales_the_loss():
    actual, model = KERAS_3.fit(PROBLEM, KERAS_3.bridged("Adam", loss_scale_factor=1024.0))
    running.assert_same(actual, keras_models.session("Adam", PROBLEM))
    assert float(model.optimizer.scale_loss(tf.constant(2.0))) == 2048.0


@pytest.mark.keras3
def test_a_loss_scale_and_a_limit():
    """Keras divides the gradients by the loss scale before it clips them."""
    optimizer = sgd(KERAS_3, loss_scale_factor=64.0, clipnorm=0.7)
    actual, _ = keras_models.loop(scaled(np.float32(64)), optimizer)
    running.assert_steps_close(actual.steps, descended(by_norm))


def doubled(grads_and_vars):
    return [
        (tf.IndexedSlices(2.0 * g.values, g.indices, g.dense_shape), v)
        if isinstance(g, tf.IndexedSlices)
        else (2.0 * g, v)
        for g, v in grads_and_vars
    ]


@pytest.mark.parametrize("way", ["eager", "function", "fit"])
@pytest.mark.parametrize("argument", ["gradient_aggregator", "gradient_transformers"])
def test_gradient_transformers_and_aggregators(argument, way):
    """Keras 2 accepts these arguments from TensorFlow 2.4 on. Older versions raise a TypeError."""
    value = [doubled] if argument == "gradient_transformers" else doubled
    if argument not in inspect.signature(versions.optimizer_v2().__init__).parameters:
        with pytest.raises(TypeError, match=f"{argument}"):
            sgd(OPTIMIZER_V2, **{argument: value})
        return
    make = lambda: OPTIMIZER_V2.bridged("Adam", **{argument: value})  # noqa: E731
    config = running.AS_WRITTEN if way == "eager" else None
    expected = keras_models.session("Adam", scaled(2), config=config)
    running.assert_same(TRAIN[way](OPTIMIZER_V2, make), expected)

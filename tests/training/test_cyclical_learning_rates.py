"""Tests the cyclical learning rates in graphs, functions, eager code and Keras."""

import numpy as np
import pytest
import tensorflow as tf

import legacy_opt
from legacy_opt import compat
from tests.support.keras import keras_apis
from tests.support.keras.loading import load_model

v1 = tf.compat.v1
DTYPES = [np.float32, np.float64]
SIZES = [7, 333, 2000]
EVERY_API = pytest.mark.parametrize("api", keras_apis.EVERY)
SCHEDULES = {
    "Triangular": lambda *bounds: legacy_opt.TriangularCyclicalLearningRate(*bounds),
    "Triangular2": lambda *bounds: legacy_opt.Triangular2CyclicalLearningRate(*bounds),
    "Exponential": lambda *bounds: legacy_opt.ExponentialCyclicalLearningRate(*bounds, gamma=0.5),
}
# The learning rates of the first ten steps between 0 and 1, with step_size=2.
BY_HAND = {
    "Triangular": [0, 0.5, 1, 0.5, 0, 0.5, 1, 0.5, 0, 0.5],
    "Triangular2": [0, 0.5, 1, 0.5, 0, 0.25, 0.5, 0.25, 0, 0.125],
    "Exponential": [0, 1 / 4, 1 / 4, 1 / 16, 0, 1 / 64, 1 / 64, 1 / 256, 0, 1 / 1024],
}
every_schedule = pytest.mark.parametrize("name", SCHEDULES)


def oracle(steps, low, high, size, factor=None):
    """The formula in NumPy, each operation rounded to the dtype of `low`."""
    dtype = type(low)
    t, size, one, two = steps.astype(dtype), dtype(size), dtype(1), dtype(2)
    cycle = np.floor(one + t / (two * size))
    x = np.abs(t / size - two * cycle + one)
    return low + (high - low) * np.maximum(dtype(0), one - x) * (factor or np.ones_like)(cycle)


def rates_in_session(schedule, count):
    with tf.Graph().as_default(), v1.Session() as session:
        step = v1.train.get_or_create_global_step()
        rate = schedule()
        following = step.assign_add(1)
        session.run(v1.global_variables_initializer())
        found = []
        for _ in range(count):
            found.append(session.run(rate))
            session.run(following)
        return np.array(found)


@every_schedule
def test_rates_by_hand(name):
    schedule = SCHEDULES[name](0, 1, 2)
    assert rates_in_session(schedule, 10).tolist() == BY_HAND[name]
    compiled = tf.function(lambda step: schedule(step))
    with tf.init_scope():
        for step, rate in enumerate(BY_HAND[name]):
            assert schedule(tf.constant(step)).numpy() == rate
            assert compiled(tf.constant(step, tf.int64)).numpy() == rate


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("dtype", DTYPES)
def test_rates_have_numpys_bits(dtype, size):
    low, high = dtype(1e-4), dtype(1e-2)
    for name, factor in [("Triangular", None), ("Triangular2", lambda cycle: 0.5 ** (cycle - 1))]:
        _check_bits(
            SCHEDULES[name](low, high, size), oracle(np.arange(10001), low, high, size, factor)
        )


def _check_bits(schedule, expected):
    assert expected.dtype == schedule(0).dtype.as_numpy_dtype
    np.testing.assert_array_equal(schedule(tf.range(10001)).numpy(), expected)
    compiled = tf.function(lambda step: schedule(step))
    found = [compiled(tf.constant(step)).numpy() for step in range(301)]
    np.testing.assert_array_equal(found, expected[:301])
    np.testing.assert_array_equal(rates_in_session(schedule, 301), expected[:301])


@every_schedule
def test_an_optimizer_in_keras_equals_one_in_a_session(name):
    optimizer = legacy_opt.LazyAdamOptimizer(SCHEDULES[name](1e-4, 1e-2, 3))
    assert compat.compare_with_session(optimizer)


def test_checkpoints_of_graphs(tmp_path):
    """Checks that the names of the state do not depend on a global step that may be missing."""
    w = tf.compat.v2.Variable([1.0, 2.0])
    optimizer = compat.to_keras(v1.train.AdamOptimizer(SCHEDULES["Triangular"](0.1, 1.0, 3)))
    optimizer.apply_gradients([(tf.ones([2]), w)])
    report = compat.save_v1_checkpoint(str(tmp_path / "ckpt"), {"w": w}, optimizer)
    targets = {each.target for each in report.transferred}
    assert targets == {"w", "w/Adam", "w/Adam_1", "beta1_power", "beta2_power", "global_step"}


def test_a_scale_of_the_step():
    schedule = legacy_opt.CyclicalLearningRate(0.0, 1.0, 2, lambda t: t + 1, "iterations")
    assert rates_in_session(schedule, 6).tolist() == [0, 1, 3, 2, 0, 3]


@pytest.mark.parametrize(
    "make",
    [
        v1.train.GradientDescentOptimizer,
        lambda rate: legacy_opt.MovingAverageOptimizer(
            legacy_opt.MomentumWOptimizer(0.0, rate, 0.0)
        ),
    ],
)
def test_v1_optimizers_read_the_rate_of_each_step(make):
    with tf.Graph().as_default(), v1.Session() as session:
        w = v1.get_variable("w", initializer=0.0)
        step = v1.train.get_or_create_global_step()
        train = make(SCHEDULES["Triangular"](0.0, 1.0, 2)).minimize(-w, global_step=step)
        session.run(v1.global_variables_initializer())
        found = []
        for _ in range(5):
            session.run(train)
            found.append(session.run(w))
    assert found == [0, 0.5, 1.5, 2, 2]  # sums of the rates


def test_eager_code_reads_the_eager_global_step():
    w = tf.Variable(0.0)
    step = v1.train.get_or_create_global_step()
    step.assign(1)
    optimizer = v1.train.GradientDescentOptimizer(SCHEDULES["Triangular"](0.0, 1.0, 2))
    for _ in range(2):
        optimizer.apply_gradients([(tf.constant(-1.0), w)], global_step=step)
    assert w.numpy() == 1.5


def test_a_graph_without_a_global_step():
    with tf.Graph().as_default():
        w = v1.get_variable("w", initializer=0.0)
        optimizer = v1.train.GradientDescentOptimizer(SCHEDULES["Triangular2"](0.0, 1.0, 2))
        with pytest.raises(RuntimeError, match="Triangular2.* needs a global step. Create one"):
            optimizer.minimize(-w)


@pytest.mark.parametrize(
    "arguments, error, message",
    [
        ({"initial_learning_rate": -1.0}, ValueError, "initial_learning_rate must not be negative"),
        ({"maximal_learning_rate": float("nan")}, ValueError, "maximal_learning_rate must be fini"),
        ({"maximal_learning_rate": lambda: 1.0}, TypeError, "must be a number or a scalar tensor"),
        ({"step_size": 0}, ValueError, "step_size must be positive, got 0"),
        ({"scale_fn": 1.0}, TypeError, "scale_fn must be a function of one argument, got 1.0"),
        ({"scale_mode": "step"}, ValueError, "must be 'cycle' or 'iterations', got 'step'"),
        ({"name": ""}, ValueError, "name must not be empty"),
    ],
)
def test_wrong_arguments(arguments, error, message):
    right = {"initial_learning_rate": 0.0, "maximal_learning_rate": 1.0, "step_size": 2}
    with pytest.raises(error, match=message):
        legacy_opt.CyclicalLearningRate(**{**right, "scale_fn": lambda x: 1.0, **arguments})


# In Keras.


def fed(api, optimizer):
    """Returns a compiled model, whose weight grows by the learning rate in each step."""
    keras = api.keras
    layer = keras.layers.Dense(1, use_bias=False, kernel_initializer="zeros")
    model = keras.Sequential(
        [keras.Input([1]) if api.name == "keras3" else (keras.layers.InputLayer([1])), layer]
    )
    loss = keras.losses.MeanAbsoluteError()
    model.compile(optimizer, loss, run_eagerly=True)  # the gradient is -1
    return model


def rates_of(model, steps):
    """Trains, and returns the changes of the model's weight."""
    found = []
    for _ in range(steps):
        before = model.get_weights()[0].item()
        model.train_on_batch(np.ones([1, 1], "f"), np.full([1, 1], 99, "f"))
        found.append(model.get_weights()[0].item() - before)
    return found


def optimizers(api, schedule):
    """Yields a bridged optimizer, and Keras' own."""
    yield api.bridged(v1.train.GradientDescentOptimizer(schedule))
    yield api.optimizers.SGD(compat.to_keras(schedule, api=api.name))


@every_schedule
@EVERY_API
def test_schedules_follow_iterations_in_keras_and_continue_from_files(api, name, tmp_path):
    ending = ".keras" if api.name == "keras3" else ".h5"
    for number, optimizer in enumerate(optimizers(api, SCHEDULES[name](0, 1, 2))):
        model = fed(api, optimizer)
        assert rates_of(model, 5) == BY_HAND[name][:5]
        path = str(tmp_path / f"{number}{ending}")
        model.save(path)
        assert rates_of(load_model(api, path), 5) == BY_HAND[name][5:]


@EVERY_API
def test_a_schedule_that_is_set_is_converted(api):
    optimizer = api.bridged(v1.train.GradientDescentOptimizer(3.0))
    optimizer.learning_rate = SCHEDULES["Triangular"](0.0, 1.0, 2)
    assert rates_of(fed(api, optimizer), 4) == BY_HAND["Triangular"][:4]


@EVERY_API
def test_a_scale_function_trains_but_is_not_saved(api):
    schedule = legacy_opt.CyclicalLearningRate(0.0, 1.0, 2, lambda cycle: 2.0)
    for optimizer in optimizers(api, schedule):
        assert rates_of(fed(api, optimizer), 4) == [0, 1, 2, 1]
        with pytest.raises(ValueError, match="scale_fn is a function. Save a Triangular"):
            optimizer.get_config()


@EVERY_API
def test_back_in_a_graph(api):
    bridged = api.bridged(v1.train.GradientDescentOptimizer(SCHEDULES["Triangular2"](0.0, 1.0, 2)))
    optimizer = compat.to_v1(bridged)
    w = tf.compat.v2.Variable(0.0)
    found = []
    for _ in range(7):
        optimizer.apply_gradients([(tf.constant(-1.0), w)])
        found.append(w.numpy().item())
    assert np.diff([0, *found]).tolist() == BY_HAND["Triangular2"][:7]


def test_gamma_is_a_tensor_of_another_dtype():
    schedule = legacy_opt.ExponentialCyclicalLearningRate(
        0.0, 1.0, 1, gamma=tf.constant(0.5, tf.float64)
    )
    assert schedule(tf.constant(1)).numpy() == 0.5

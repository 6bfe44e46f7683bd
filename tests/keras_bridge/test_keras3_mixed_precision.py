"""Mixed precision: Keras 3's LossScaleOptimizer around a bridged optimizer, and the policy."""

import numpy as np
import pytest
import tensorflow as tf

from tests.support import problems, running
from tests.support.keras import keras_models
from tests.support.keras.keras_apis import KERAS_3 as api

pytestmark = pytest.mark.keras3

v1 = tf.compat.v1.train
keras = api.keras
PROBLEM = keras_models.problem()
SCALE = np.float32(1024.0)
WAYS = pytest.mark.parametrize("way", ["function", "eager"])


def scaled(optimizer):
    """Returns a LossScaleOptimizer around an optimizer."""
    return keras.optimizers.LossScaleOptimizer(optimizer, initial_scale=float(SCALE))


def times(gradients, factor):
    return {
        "table": problems.Rows(gradients["table"].values * factor, gradients["table"].ids),
        "matrix": gradients["matrix"] * factor,
    }


class Loop:
    """Trains the problem's variables, one step at a time."""

    def __init__(self, name, way, **arguments):
        self.variables = keras_models.variables_of(PROBLEM)
        self.inner = api.bridged(name, **arguments)
        self.outer = scaled(self.inner)
        self.outer.build(list(self.variables.values()))
        self.step = self._step
        if way == "function":
            self.step = tf.function(self._step, input_signature=[running.signature(PROBLEM)])

    def _step(self, gradients):
        self.outer.apply_gradients(keras_models.pairs(gradients, self.variables))

    def train(self, gradients):
        self.step(keras_models.constants(gradients))

    def state(self):
        """Returns all that a skipped step must not change."""
        kept = list(self.variables.values()) + self.inner.variables
        return [variable.numpy() for variable in kept]

    def values(self):
        return {name: variable.numpy() for name, variable in self.variables.items()}


@WAYS
@pytest.mark.parametrize("name", ["AdagradDecay", "Adam", "Ftrl", "Momentum", "RMSProp"])
def test_scaling_by_a_power_of_two_changes_no_bit(name, way):
    loop = Loop(name, way)
    steps = []
    for gradients in PROBLEM.gradients:
        loop.train(times(gradients, SCALE))
        steps.append(loop.values())
    slots = keras_models.slots_of(loop.inner, loop.variables)
    actual = running.Trace(steps, {key: slot.numpy() for key, slot in slots.items()})
    config = running.config_of(way)
    running.assert_same(actual, keras_models.session(name, PROBLEM, config=config))
    assert int(loop.inner.iterations.numpy()) == PROBLEM.steps


@WAYS
@pytest.mark.parametrize("place", ["matrix", "table"])
@pytest.mark.parametrize("name", ["AdagradDecay", "Adam"])
def test_a_step_that_is_not_finite_counts_for_nothing(name, place, way):
    """Not in variables, slots, powers of beta or iterations; the scale is halved."""
    loop = Loop(name, way)
    loop.train(times(PROBLEM.gradients[0], SCALE))
    before = loop.state()
    broken = times(PROBLEM.gradients[1], SCALE)
    broken[place] = (
        problems.Rows(np.full_like(broken[place].values, np.nan), broken[place].ids)
        if (place == "table")
        else np.full_like(broken[place], np.inf)
    )
    loop.train(broken)
    for one, other in zip(loop.state(), before):
        np.testing.assert_array_equal(one, other)
    assert float(loop.outer.dynamic_scale.numpy()) == SCALE / 2
    assert int(loop.inner.iterations.numpy()) == 1
    loop.train(times(PROBLEM.gradients[1], SCALE / 2))
    problem = PROBLEM._replace(gradients=PROBLEM.gradients[:2])
    config = running.config_of(way)
    expected = keras_models.session(name, problem, config=config)
    for key, value in loop.values().items():
        np.testing.assert_array_equal(value, expected.steps[-1][key])


def test_fit_with_a_wrapper():
    optimizer = scaled(api.bridged("Adam"))
    actual, _ = api.fit(PROBLEM, optimizer)
    running.assert_same(actual, keras_models.session("Adam", PROBLEM))
    assert optimizer.built and float(optimizer.dynamic_scale.numpy()) == SCALE


def test_hyperparameters_through_the_wrapper():
    inner = api.bridged("GradientDescent")
    optimizer = scaled(inner)
    optimizer.learning_rate = 0.25
    assert float(inner.learning_rate.numpy()) == 0.25
    assert float(optimizer.learning_rate.numpy()) == 0.25
    variable = keras.Variable([1.0])
    optimizer.apply_gradients([(tf.constant([2.0]) * SCALE, variable)])
    np.testing.assert_array_equal(variable.numpy(), [0.5])


def test_a_fixed_scale_in_the_wrapper():
    """Newer versions of Keras drop it; older ones undo both scales. So does the bridge."""
    values = []
    for make in (api.bridged, lambda _, **arguments: keras.optimizers.SGD(**arguments)):
        optimizer = scaled(make("GradientDescent", loss_scale_factor=8.0, learning_rate=1.0))
        variable = keras.Variable([1.0])
        optimizer.apply_gradients([(tf.constant([0.5]) * SCALE, variable)])
        values.append(variable.numpy())
    np.testing.assert_array_equal(*values)
    assert values[0] < 1


@WAYS
def test_accumulated_gradients_in_the_wrapper(way):
    """A step that is not finite is not accumulated either."""
    inner = api.bridged(v1.GradientDescentOptimizer(1.0), gradient_accumulation_steps=2)
    optimizer = scaled(inner)
    variable = keras.Variable([0.0])
    optimizer.build([variable])

    def step(gradient):
        optimizer.apply([gradient * optimizer.dynamic_scale])

    step = tf.function(step) if way == "function" else step
    for gradient, wanted in ((1.0, 0.0), (np.inf, 0.0), (3.0, -2.0)):
        step(tf.constant([gradient]))
        np.testing.assert_array_equal(variable.numpy(), [wanted])


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64"])
@pytest.mark.parametrize("name", ["Adam", "AdagradDecay", "GradientDescent"])
def test_variables_of_other_dtypes(name, dtype):
    """Keras widens 16-bit gradients where it undoes the scale; the update is in 16 bits."""
    matrix = keras.Variable(np.ones([2, 2]), dtype=dtype)
    table = keras.Variable(np.ones([4, 2]), dtype=dtype)
    plain = [keras.Variable(np.ones(shape), dtype=dtype) for shape in ([2, 2], [4, 2])]
    gradient = tf.constant([[1.0, -2.0], [0.5, 3.0]], dtype)
    rows = tf.IndexedSlices(gradient, tf.constant([1, 1]), tf.constant([4, 2]))
    optimizer = scaled(api.bridged(name))
    inner = api.bridged(name)
    scale = tf.constant(SCALE, dtype)
    for _ in range(3):
        wide = tf.IndexedSlices(rows.values * scale, rows.indices, rows.dense_shape)
        optimizer.apply_gradients([(gradient * scale, matrix), (wide, table)])
        inner.apply_gradients(zip([gradient, rows], plain))
    for one, other in zip((matrix, table), plain):
        assert one.dtype == dtype
        np.testing.assert_array_equal(one.numpy(), other.numpy())
        assert np.any(np.asarray(one.numpy(), "f") != 1)


@pytest.fixture
def mixed_float16():
    keras.mixed_precision.set_global_policy("mixed_float16")
    yield
    keras.mixed_precision.set_global_policy("float32")


@pytest.mark.parametrize("wrapped", [False, True], ids=["by compile", "explicitly"])
@pytest.mark.parametrize("run_eagerly", [False, True])
def test_the_policy_mixed_float16_in_fit(mixed_float16, wrapped, run_eagerly):
    """float32 weights of a float16 model with an embedding train as with Keras' own SGD."""
    random = np.random.RandomState(0)
    x, y = random.randint(0, 5, size=[32, 2]), random.randn(32, 1).astype("f")
    start = [random.randn(5, 3).astype("f"), random.randn(6, 1).astype("f"), np.zeros(1, "f")]
    weights = []
    for optimizer in (api.bridged("GradientDescent"), keras.optimizers.SGD(0.1)):
        layers = [keras.layers.Embedding(5, 3), keras.layers.Flatten(), keras.layers.Dense(1)]
        model = keras.Sequential([keras.Input([2], dtype="int32")] + layers)
        assert model.layers[-1].kernel.dtype == "float32"
        model.set_weights(start)
        model.compile(scaled(optimizer) if wrapped else optimizer, "mse", run_eagerly=run_eagerly)
        model.fit(x, y, batch_size=8, epochs=2, shuffle=False, verbose=0)
        assert isinstance(model.optimizer, keras.optimizers.LossScaleOptimizer)
        assert model.optimizer.inner_optimizer is optimizer
        assert int(optimizer.iterations.numpy()) > 0
        weights.append(model.get_weights())
    assert not np.allclose(weights[0][0], start[0], atol=1e-2)
    for one, other in zip(*weights):
        np.testing.assert_allclose(one, other, rtol=1e-6, atol=1e-7)

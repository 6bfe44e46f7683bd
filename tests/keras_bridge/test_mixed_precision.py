"""Tests mixed precision with optimizers made by `to_keras`: LossScaleOptimizer and policies."""

import contextlib
import itertools

import numpy as np
import pytest
import tensorflow as tf

from tests.support import problems, running
from tests.support.keras import keras_models
from tests.support.keras.keras_apis import KERAS_3, OPTIMIZER_V2, of_each

v1 = tf.compat.v1
PROBLEM = keras_models.problem()
SCALE = np.float32(1024.0)
WAYS = pytest.mark.parametrize("way", ["function", "eager"])


def is_old(api):
    """Returns whether Keras has only an experimental LossScaleOptimizer (up to TensorFlow 2.3)."""
    return api is OPTIMIZER_V2 and not hasattr(api.keras.mixed_precision, "LossScaleOptimizer")


def problem_of(api):
    if not is_old(api):
        return PROBLEM
    # The experimental LossScaleOptimizer makes sparse gradients dense, so leave out the table.
    return PROBLEM._replace(
        values={"matrix": PROBLEM.values["matrix"]},
        gradients=[{"matrix": step["matrix"]} for step in PROBLEM.gradients],
        sparse=(),
    )


def scaled(api, optimizer):
    """Returns a LossScaleOptimizer with a dynamic scale that starts at SCALE."""
    if is_old(api):
        dynamic = v1.train.experimental.DynamicLossScale(initial_loss_scale=float(SCALE))
        return api.keras.mixed_precision.experimental.LossScaleOptimizer(optimizer, dynamic)
    home = api.keras.mixed_precision if api is OPTIMIZER_V2 else api.keras.optimizers
    return home.LossScaleOptimizer(optimizer, initial_scale=float(SCALE))


def loss_scale(api, optimizer):
    scale = optimizer.loss_scale if api is OPTIMIZER_V2 else optimizer.dynamic_scale
    return float((scale() if callable(scale) else scale).numpy())


def times(gradients, factor):
    return {
        name: problems.Rows(gradient[0] * factor, gradient[1])
        if isinstance(gradient, tuple)
        else gradient * factor
        for name, gradient in gradients.items()
    }


def apply_scaled(api, optimizer, pairs):
    """Applies scaled gradients. In Keras 2, apply_gradients does not unscale them."""
    if api is OPTIMIZER_V2:
        gradients, variables = zip(*pairs)
        pairs = zip(optimizer.get_unscaled_gradients(list(gradients)), variables)
    optimizer.apply_gradients(pairs)


class Loop:
    """Trains the problem's variables, one step at a time."""

    def __init__(self, api, name, way, problem=PROBLEM):
        self.api = api
        self.variables = keras_models.variables_of(problem)
        self.inner = api.bridged(name)
        self.outer = scaled(api, self.inner)
        if api is KERAS_3:
            self.outer.build(list(self.variables.values()))
        self.step = self._step
        if way == "function":
            self.step = tf.function(self._step, input_signature=[running.signature(problem)])

    def _step(self, gradients):
        apply_scaled(self.api, self.outer, keras_models.pairs(gradients, self.variables))

    def train(self, gradients, scale):
        self.step(keras_models.constants(times(gradients, scale)))
        return {name: variable.numpy() for name, variable in self.variables.items()}

    def state(self):
        """Returns the values that a skipped step must not change: all except `iterations`."""
        kept = [each for each in self.inner.weights if each is not self.inner.iterations]
        return [each.numpy() for each in list(self.variables.values()) + kept]


@WAYS
@pytest.mark.parametrize("name", ["AdagradDecay", "Adam", "Ftrl", "Momentum", "RMSProp"])
def test_scaling_by_a_power_of_two_changes_no_bit(api, name, way):
    problem = problem_of(api)
    loop = Loop(api, name, way, problem)
    assert loss_scale(api, loop.outer) == SCALE
    steps = [loop.train(gradients, SCALE) for gradients in problem.gradients]
    slots = keras_models.slots_of(loop.inner, loop.variables)
    actual = running.Trace(steps, {key: slot.numpy() for key, slot in slots.items()})
    expected = keras_models.session(name, problem, config=running.config_of(way))
    running.assert_same(actual, expected)
    assert int(loop.inner.iterations.numpy()) == PROBLEM.steps
    if api is OPTIMIZER_V2:
        assert int(loop.outer.iterations.numpy()) == PROBLEM.steps


@WAYS
@pytest.mark.parametrize("place", ["matrix", "table"])
@pytest.mark.parametrize("name", ["AdagradDecay", "Adam"])
def test_a_step_that_is_not_finite_is_skipped(api, name, place, way):
    """A skipped step changes no variable, slot or power of beta, and halves the loss scale."""
    loop = Loop(api, name, way)
    first, second = PROBLEM.gradients[:2]
    loop.train(first, SCALE)
    before = loop.state()
    assert len(before) > 3
    broken = problems.Rows(second["table"].values * np.nan, second["table"].ids)
    broken = broken if place == "table" else np.full_like(second["matrix"], np.inf)
    loop.train({**second, place: broken}, SCALE)
    for one, other in zip(loop.state(), before):
        np.testing.assert_array_equal(one, other)
    assert loss_scale(api, loop.outer) == SCALE / 2
    if api is KERAS_3:  # Keras 2 counts the skipped step, Keras 3 does not
        assert int(loop.inner.iterations.numpy()) == 1
    values = loop.train(second, SCALE / 2)
    assert not np.array_equal(loop.state()[0], before[0])
    for each in loop.state():
        assert np.all(np.isfinite(each))
    if api is KERAS_3:
        problem = PROBLEM._replace(gradients=[first, second])
        expected = keras_models.session(name, problem, config=running.config_of(way))
        for key, value in values.items():
            np.testing.assert_array_equal(value, expected.steps[-1][key])


@pytest.mark.keras3
def test_fit_with_a_wrapper():
    optimizer = scaled(KERAS_3, KERAS_3.bridged("Adam"))
    actual, _ = KERAS_3.fit(PROBLEM, optimizer)
    running.assert_same(actual, keras_models.session("Adam", PROBLEM))
    assert optimizer.built and float(optimizer.dynamic_scale.numpy()) == SCALE


def test_hyperparameters_through_the_wrapper(api):
    inner = api.bridged("GradientDescent")
    optimizer = scaled(api, inner)
    optimizer.learning_rate = 0.25
    names = ["learning_rate"] + ["lr"] * (api is OPTIMIZER_V2)
    for each in [getattr(one, name) for one in (inner, optimizer) for name in names]:
        assert api.number(each) == 0.25
    variable = api.variable([1.0])
    apply_scaled(api, optimizer, [(tf.constant([2.0]) * SCALE, variable)])
    np.testing.assert_array_equal(variable.numpy(), [0.5])


@pytest.mark.keras3
def test_a_fixed_scale_inside_the_wrapper():
    """With loss_scale_factor, a bridged optimizer computes the same as Keras' own SGD.

    The value depends on the version of Keras: the LossScaleOptimizer of new versions ignores the
    inner optimizer's loss_scale_factor.
    """
    values = []
    for make in (KERAS_3.bridged, lambda _, **arguments: KERAS_3.optimizers.SGD(**arguments)):
        optimizer = scaled(
            KERAS_3, make("GradientDescent", loss_scale_factor=8.0, learning_rate=1.0)
        )
        variable = KERAS_3.variable([1.0])
        optimizer.apply_gradients([(tf.constant([0.5]) * SCALE, variable)])
        values.append(variable.numpy())
    np.testing.assert_array_equal(*values)
    assert values[0] < 1


@pytest.mark.keras3
@WAYS
def test_accumulated_gradients_in_the_wrapper(way):
    """Only finite gradients are accumulated."""
    inner = KERAS_3.bridged(v1.train.GradientDescentOptimizer(1.0), gradient_accumulation_steps=2)
    optimizer = scaled(KERAS_3, inner)
    variable = KERAS_3.variable([0.0])
    optimizer.build([variable])

    def step(gradient):
        optimizer.apply([gradient * optimizer.dynamic_scale])

    step = tf.function(step) if way == "function" else step
    for gradient, wanted in ((1.0, 0.0), (np.inf, 0.0), (3.0, -2.0)):
        step(tf.constant([gradient]))
        np.testing.assert_array_equal(variable.numpy(), [wanted])


@pytest.mark.keras3
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64"])
@pytest.mark.parametrize("name", ["Adam", "AdagradDecay", "GradientDescent"])
def test_variables_of_other_dtypes(name, dtype):
    """Keras unscales 16-bit gradients in float32, but the optimizer computes in 16 bits."""
    shapes = [2, 2], [4, 2]
    actual, plain = (
        [KERAS_3.variable(np.ones(shape), dtype=dtype) for shape in shapes] for _ in range(2)
    )
    gradient = tf.constant([[1.0, -2.0], [0.5, 3.0]], dtype)
    rows = tf.IndexedSlices(gradient, tf.constant([1, 1]), tf.constant([4, 2]))
    optimizer = scaled(KERAS_3, KERAS_3.bridged(name))
    inner = KERAS_3.bridged(name)
    scale = tf.constant(SCALE, dtype)
    for _ in range(3):
        wide = tf.IndexedSlices(rows.values * scale, rows.indices, rows.dense_shape)
        optimizer.apply_gradients(zip([gradient * scale, wide], actual))
        inner.apply_gradients(zip([gradient, rows], plain))
    for one, other in zip(actual, plain):
        assert one.dtype == dtype
        np.testing.assert_array_equal(one.numpy(), other.numpy())
        assert np.any(np.asarray(one.numpy(), "f") != 1)


@contextlib.contextmanager
def mixed_float16(api):
    mixed = api.keras.mixed_precision
    if hasattr(mixed, "Policy"):
        policy, set_policy = mixed.Policy("mixed_float16"), mixed.set_global_policy
    else:  # up to TensorFlow 2.3
        policy = mixed.experimental.Policy("mixed_float16")
        set_policy = mixed.experimental.set_policy
    set_policy(policy)
    try:
        yield
    finally:
        set_policy("float32")


@of_each(
    "explicitly, run_eagerly",
    optimizer_v2=[(False, False)],
    keras3=itertools.product([False, True], repeat=2),
)
# The loss scaling of TensorFlow 2.3 looks for infinite numbers in the dense gradient of a table.
@pytest.mark.filterwarnings("ignore:Converting sparse IndexedSlices:UserWarning")
def test_the_policy_mixed_float16_in_fit(api, explicitly, run_eagerly):
    """With mixed_float16, a bridged GradientDescent trains a model like Keras' own SGD."""
    if not v1.resource_variables_enabled():  # TensorFlow 1.15
        message = "can only be set .* in TensorFlow 2"
        with pytest.raises(ValueError, match=message), mixed_float16(api):
            pass
        return
    random = np.random.RandomState(0)
    x, y = random.randint(0, 5, size=[32, 2]), random.randn(32, 1).astype("f")
    start = [random.randn(5, 3).astype("f"), random.randn(6, 1).astype("f"), np.zeros(1, "f")]
    weights, layers = [], api.keras.layers
    for optimizer in (api.bridged("GradientDescent"), api.optimizers.SGD(0.1)):
        with mixed_float16(api):  # in TensorFlow 2.3, a policy contains the loss scale
            ids = api.keras.Input([2], dtype="int32")
            dense = layers.Dense(1)
            model = api.keras.Model(ids, dense(layers.Flatten()(layers.Embedding(5, 3)(ids))))
            assert tf.as_dtype(dense.kernel.dtype).base_dtype == tf.float32
            model.set_weights(start)
            outer = scaled(api, optimizer) if explicitly else optimizer
            model.compile(outer, "mse", run_eagerly=run_eagerly)
            model.fit(x, y, batch_size=8, epochs=2, shuffle=False, verbose=0)
            assert type(model.optimizer).__name__.startswith("LossScaleOptimizer")
            inner = getattr(model.optimizer, "inner_optimizer", None)
            assert (inner or model.optimizer._optimizer) is optimizer  # or: TensorFlow 2.3
            assert int(optimizer.iterations.numpy()) > 0
            weights.append(model.get_weights())
    assert not np.allclose(weights[0][0], start[0], atol=1e-2)
    for one, other in zip(*weights):
        if api is OPTIMIZER_V2:
            np.testing.assert_array_equal(one, other)
        else:
            np.testing.assert_allclose(one, other, rtol=1e-6, atol=1e-7)

"""Mixed precision: Keras' LossScaleOptimizer around a bridged optimizer, and the policy in fit."""

import numpy as np
import pytest
import tensorflow as tf

from tests.support import running
from tests.support.keras import keras_models as models
from tests.support.keras.keras_apis import OPTIMIZER_V2 as api

v1 = tf.compat.v1
mixed = api.keras.mixed_precision
PROBLEM = models.problem()
SCALE = 1024.0


def scaled(optimizer):
    """Returns a LossScaleOptimizer with a dynamic scale that starts at SCALE."""
    if hasattr(mixed, "LossScaleOptimizer"):  # from 2.4 on
        return mixed.LossScaleOptimizer(optimizer, initial_scale=SCALE)
    dynamic = v1.train.experimental.DynamicLossScale(initial_loss_scale=SCALE)
    return mixed.experimental.LossScaleOptimizer(optimizer, dynamic)


def loss_scale(optimizer):
    scale = optimizer.loss_scale
    return float((scale() if callable(scale) else scale).numpy())


def times(gradients, factor):
    return {
        name: (gradient[0] * factor, gradient[1])
        if isinstance(gradient, tuple)
        else gradient * factor
        for name, gradient in gradients.items()
    }


def apply_scaled(optimizer, gradients, variables):
    """Unscales scaled gradients and applies them, as the documentation shows it."""
    pairs = models.pairs(times(gradients, SCALE), variables)
    unscaled = optimizer.get_unscaled_gradients([gradient for gradient, _ in pairs])
    optimizer.apply_gradients(zip(unscaled, [variable for _, variable in pairs]))


@pytest.mark.parametrize("name", ["AdagradDecay", "Adam", "Ftrl", "Momentum", "RMSProp"])
def test_scaling_by_a_power_of_two_changes_no_bit(name):
    inner = api.bridged(name)
    optimizer = scaled(inner)
    assert loss_scale(optimizer) == SCALE
    problem = PROBLEM
    if not hasattr(mixed, "LossScaleOptimizer"):  # the old one makes sparse gradients dense
        problem = PROBLEM._replace(
            values={"matrix": PROBLEM.values["matrix"]},
            gradients=[{"matrix": step["matrix"]} for step in PROBLEM.gradients],
            sparse=(),
        )
    actual, _ = models.loop(problem, None, apply=lambda _, g, v: apply_scaled(optimizer, g, v))
    expected = running.session(problem, lambda step: models.make(name, step), True)
    running.assert_same(actual, expected._replace(slots={}))
    assert int(optimizer.iterations.numpy()) == PROBLEM.steps


@pytest.mark.parametrize("name", ["AdagradDecay", "Adam"])
def test_a_step_that_is_not_finite_is_skipped(name):
    """Variables, slots and powers of beta stay; the scale is halved; the next step goes on."""
    inner = api.bridged(name)
    optimizer = scaled(inner)
    variables = models.variables_of(PROBLEM)

    @tf.function(input_signature=[running.signature(PROBLEM)])
    def train(gradients):
        optimizer.apply_gradients(models.pairs(gradients, variables))

    def state():
        kept = [w for w in inner.weights if w is not inner.iterations]
        return [w.numpy() for w in list(variables.values()) + kept]

    train(models.constants(PROBLEM.gradients[0]))
    before = state()
    assert len(before) > 3
    infinite = dict(PROBLEM.gradients[1])
    infinite["matrix"] = np.full_like(infinite["matrix"], np.inf)
    train(models.constants(infinite))
    for one, other in zip(state(), before):
        np.testing.assert_array_equal(one, other)
    assert loss_scale(optimizer) == SCALE / 2
    train(models.constants(PROBLEM.gradients[1]))
    assert not np.array_equal(state()[0], before[0])
    for one in state():
        assert np.all(np.isfinite(one))


def test_hyperparameters_through_the_wrapper():
    inner = api.bridged("Adam")
    optimizer = scaled(inner)
    optimizer.learning_rate = 0.25
    assert float(api.keras.backend.get_value(inner.learning_rate)) == 0.25
    assert float(api.keras.backend.get_value(optimizer.lr)) == 0.25


def test_the_policy_mixed_float16_in_fit():
    """The wrapped optimizer trains float32 weights of a float16 model as Keras' own would."""
    if hasattr(mixed, "Policy"):
        policy, set_policy = mixed.Policy("mixed_float16"), mixed.set_global_policy
    else:
        policy = mixed.experimental.Policy("mixed_float16")
        set_policy = mixed.experimental.set_policy
    random = np.random.RandomState(0)
    x, y = random.randn(32, 4).astype("f"), random.randn(32, 1).astype("f")
    start = [random.randn(4, 1).astype("f"), np.zeros(1, "f")]
    weights = []
    if not v1.resource_variables_enabled():  # 1.15
        with pytest.raises(ValueError, match="can only be set .* in TensorFlow 2"):
            set_policy(policy)
        return
    set_policy(policy)
    try:
        legacy = getattr(api.keras.optimizers, "legacy", api.keras.optimizers)
        for optimizer in (api.bridged("GradientDescent"), legacy.SGD(0.1)):
            inputs = api.keras.Input([4])
            model = api.keras.Model(inputs, api.keras.layers.Dense(1)(inputs))
            assert model.layers[-1].kernel.dtype.base_dtype == tf.float32
            model.set_weights(start)
            model.compile(optimizer, "mse")
            model.fit(x, y, batch_size=8, epochs=2, shuffle=False, verbose=0)
            assert type(model.optimizer).__name__.startswith("LossScaleOptimizer")
            weights.append(model.get_weights())
    finally:
        set_policy("float32")
    assert not np.array_equal(weights[0][0], start[0])
    for one, other in zip(*weights):
        np.testing.assert_array_equal(one, other)

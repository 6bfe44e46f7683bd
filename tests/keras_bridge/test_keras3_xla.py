"""Bridged Keras 3 optimizers under XLA.

What XLA compiles rounds otherwise than a kernel: it fuses a product and a sum into one operation
and takes other approximations of powers and roots. So the comparison with the Session is by a
tolerance: a few float32 roundings in each of twelve steps, of values of about one.
"""

import pytest
import tensorflow as tf

from legacy_opt import AdagradDecayOptimizerV2
from tests.support import running
from tests.support.keras import keras_models
from tests.support.keras.keras_apis import KERAS_3 as api

pytestmark = pytest.mark.keras3

v1 = tf.compat.v1.train
PROBLEM = keras_models.problem()
SHORT = keras_models.problem(steps=2)
MAKERS = {
    name: lambda step, name=name: keras_models.make(name, step)
    for name in keras_models.V1_OPTIMIZERS
}
MAKERS.update(
    {
        "AdagradDecayV2": lambda step: AdagradDecayOptimizerV2(0.3, step, 0.25, 3, 0.7),
        "Ftrl-shrinkage": lambda _: v1.FtrlOptimizer(0.3, l2_shrinkage_regularization_strength=0.1),
        "Momentum-plain": lambda _: v1.MomentumOptimizer(0.1, 0.9),
        "RMSProp-plain": lambda _: v1.RMSPropOptimizer(0.05, momentum=0.5),
    }
)
# XLA itself can compile the sparse updates of these: they have no fused kernel, or one in XLA.
COMPILES_FUSED = ["Adam", "GradientDescent"]
# The others compile in the full run.
DAILY = ["AdagradDA", "AdagradDecay", "Adam", "Ftrl", "Momentum"]
EVERY_OPTIMIZER = pytest.mark.parametrize(
    "name",
    [
        name if name in DAILY else pytest.param(name, marks=pytest.mark.full)
        for name in sorted(MAKERS)
    ],
)
TOLERANCE = {"rtol": 2e-5, "atol": 2e-5}


def bridged(name, **arguments):
    return api.bridged(MAKERS[name](None), **arguments)


def only_dense(problem):
    return problem._replace(
        values={"matrix": problem.values["matrix"]},
        gradients=[{"matrix": step["matrix"]} for step in problem.gradients],
        sparse=(),
    )


def train(optimizer, problem=PROBLEM):
    """Trains in a tf.function that XLA compiles whole, and that builds the optimizer."""
    variables = keras_models.variables_of(problem)

    @tf.function(jit_compile=True)
    def step(gradients):
        optimizer.apply_gradients(keras_models.pairs(gradients, variables))

    steps = []
    for gradients in problem.gradients:
        step(keras_models.constants(gradients))
        steps.append({name: variable.numpy() for name, variable in variables.items()})
    slots = keras_models.slots_of(optimizer, variables)
    return running.Trace(steps, {key: slot.numpy() for key, slot in slots.items()})


def session(name, problem):
    return running.session(problem, MAKERS[name], True)


@EVERY_OPTIMIZER
def test_every_optimizer_compiles_without_fused_kernels(name):
    running.assert_close(train(bridged(name, fused=False)), session(name, PROBLEM), **TOLERANCE)


@EVERY_OPTIMIZER
def test_every_optimizer_compiles_with_dense_gradients(name):
    problem = only_dense(PROBLEM)
    running.assert_close(train(bridged(name), problem), session(name, problem), **TOLERANCE)


@EVERY_OPTIMIZER
def test_a_missing_kernel_names_both_ways_out(name):
    """While the function is traced: no step is taken."""
    optimizer = bridged(name)
    if name in COMPILES_FUSED:
        running.assert_close(train(optimizer, SHORT), session(name, SHORT), **TOLERANCE)
        return
    with pytest.raises(ValueError, match=r"XLA has no kernel for ResourceSparse\w+") as raised:
        train(optimizer, SHORT)
    assert "fused=False" in str(raised.value) and "jit_compile=False" in str(raised.value)
    assert int(optimizer.iterations.numpy()) == 0


@pytest.mark.parametrize("name", ["AdagradDecay", "Momentum"])
def test_fit_with_xla(name):
    actual, model = api.fit(PROBLEM, bridged(name, fused=False), jit_compile=True)
    assert model.jit_compile is True
    running.assert_close(actual, session(name, PROBLEM), **TOLERANCE)


@pytest.mark.parametrize("wrapped", [False, True], ids=["plain", "LossScaleOptimizer"])
def test_fit_with_xla_and_fused_kernels(wrapped):
    optimizer = bridged("Adagrad")
    if wrapped:
        optimizer = api.keras.optimizers.LossScaleOptimizer(optimizer)
    with pytest.raises(ValueError, match="XLA has no kernel for ResourceSparse") as raised:
        api.fit(SHORT, optimizer, jit_compile=True)
    assert "fused=False" in str(raised.value) and "jit_compile=False" in str(raised.value)
    assert int(optimizer.iterations.numpy()) == 0


def test_fit_as_keras_chooses():
    """jit_compile="auto", the default, is without XLA where there is no accelerator."""
    actual, model = api.fit(PROBLEM, bridged("Adagrad"), jit_compile="auto")
    if model.jit_compile is False:
        running.assert_same(actual, session("Adagrad", PROBLEM))


FEATURES = {
    "clipnorm": {"clipnorm": 0.7},
    "clipvalue": {"clipvalue": 0.4},
    "global_clipnorm": {"global_clipnorm": 0.9},
    "ema": {"use_ema": True, "ema_overwrite_frequency": 3},
    "accumulation": {"gradient_accumulation_steps": 2},
    "loss_scale_factor": {"loss_scale_factor": 1000.0},
    "weight_decay": {"weight_decay": 0.25},
}


@pytest.mark.parametrize("feature", sorted(FEATURES))
@pytest.mark.parametrize(
    "name",
    ["Momentum"] + [pytest.param(n, marks=pytest.mark.full) for n in ("AdagradDecay", "Adam")],
)
def test_what_keras_adds_compiles(feature, name):
    """With XLA the same as without."""
    arguments = FEATURES[feature]
    problem = PROBLEM._replace(gradients=PROBLEM.gradients[:4])
    actual = train(bridged(name, fused=False, **arguments), problem)
    expected, _ = keras_models.loop(problem, bridged(name, **arguments))
    running.assert_close(actual, expected, **TOLERANCE)

"""Bridged optimizers under XLA, and without TensorFlow's fused kernels.

What XLA compiles rounds otherwise than a kernel: it fuses a product and a sum into one operation
and takes other approximations of powers and roots. So the comparison is by a tolerance: a few
float32 roundings in each of twelve steps, of values of about one.
"""

import inspect

import pytest
import tensorflow as tf

from legacy_opt import AdagradDecayOptimizerV2, versions
from tests.support import running
from tests.support.keras import keras_models as models
from tests.support.keras.keras_apis import OPTIMIZER_V2 as api

v1 = tf.compat.v1
PROBLEM = models.problem()
SHORT = models.problem(steps=2)
MAKERS = {name: lambda name=name: models.make(name) for name in models.V1_OPTIMIZERS}
MAKERS.update(
    {
        "AdagradDecayV2": lambda: AdagradDecayOptimizerV2(0.3, None, 0.25, 3, 0.7),
        "Ftrl-shrinkage": lambda: v1.train.FtrlOptimizer(
            0.3, l2_shrinkage_regularization_strength=0.1
        ),
        "Momentum-plain": lambda: v1.train.MomentumOptimizer(0.1, 0.9),
        "RMSProp-plain": lambda: v1.train.RMSPropOptimizer(0.05, momentum=0.5),
    }
)
# XLA itself can compile the sparse updates of these: they have no fused kernel, or one in XLA.
COMPILES_FUSED = ["Adam", "GradientDescent"]
TOLERANCE = {"rtol": 2e-5, "atol": 2e-5}


def compiled():
    """Returns the argument with which this tf.function asks for XLA."""
    for name in ("jit_compile", "experimental_compile"):  # its name before TensorFlow 2.5
        try:
            tf.function(lambda: 0, **{name: True})
        except TypeError:
            continue
        return {name: True}
    pytest.skip("this tf.function cannot ask for XLA")


def needs_unique(name):
    """Whether a sparse update has to sum the gradients of equal ids, which old XLAs cannot."""
    return name != "GradientDescent" and not versions.xla_compiles_unique()


def raises_no_kernel(message):
    """Expects the bridge's error; TensorFlow's where it does not tell that XLA will compile."""
    told = []
    tf.function(lambda: told.append(versions.compiling_with_xla()), **compiled())()
    if not told[-1]:  # 1.15: the function is compiled after all has been built
        return pytest.raises(tf.errors.InvalidArgumentError, match="Unique: unsupported op")
    return pytest.raises(ValueError, match=message)


def train(optimizer, problem=PROBLEM, names=("table", "matrix"), **options):
    """Trains in a tf.function with a gradient for each of the variables named."""
    variables = {name: models.variables_of(problem)[name] for name in names}
    with tf.init_scope():  # variables cannot be created inside what XLA compiles
        _ = optimizer.iterations
        optimizer._create_all_weights(list(variables.values()))

    @tf.function(**options)
    def step(values, ids, matrix):
        gradients = {"table": (values, ids), "matrix": matrix}
        optimizer.apply_gradients(models.pairs(gradients, variables))

    steps = []
    for gradients in problem.gradients:
        step(*map(tf.constant, (*gradients["table"], gradients["matrix"])))
        steps.append({name: variable.numpy() for name, variable in variables.items()})
    slots = {key: slot.numpy() for key, slot in models.slots_of(optimizer, variables).items()}
    return running.Trace(steps, slots)


@pytest.mark.parametrize("name", sorted(MAKERS))
def test_every_optimizer_compiles_without_fused_kernels(name):
    if needs_unique(name):
        with raises_no_kernel("no kernel for Unique.*jit_compile=False") as raised:
            train(api.bridged(MAKERS[name](), fused=False), SHORT, **compiled())
        assert "fused=False" not in str(raised.value)
        return
    expected = train(api.bridged(MAKERS[name]()))
    actual = train(api.bridged(MAKERS[name](), fused=False), **compiled())
    running.assert_close(actual, expected, **TOLERANCE)


@pytest.mark.parametrize("fused", [False, True], ids=["composed", "fused"])
@pytest.mark.parametrize("name", sorted(MAKERS))
def test_every_optimizer_compiles_with_dense_gradients(name, fused):
    expected = train(api.bridged(MAKERS[name]()), names=["matrix"])
    optimizer = api.bridged(MAKERS[name](), fused=fused)
    actual = train(optimizer, names=["matrix"], **compiled())
    if name == "Ftrl-shrinkage":  # XLA's own kernel keeps `linear` in another unit in 2.4
        actual, expected = actual._replace(slots={}), expected._replace(slots={})
    running.assert_close(actual, expected, **TOLERANCE)


@pytest.mark.parametrize("way", ["function", "eager"])
@pytest.mark.parametrize("name", sorted(MAKERS))
def test_without_fused_kernels_the_same_is_computed(name, way):
    expected, _ = models.loop(PROBLEM, api.bridged(MAKERS[name]()), way)
    actual, _ = models.loop(PROBLEM, api.bridged(MAKERS[name](), fused=False), way)
    running.assert_close(actual, expected, **TOLERANCE)


@pytest.mark.parametrize("limit", ["clipnorm", "clipvalue"])
def test_clipping_compiles(limit):
    """It sums the gradients of equal ids, and so does the update that comes after."""
    arguments = {limit: 0.4}
    optimizer = api.bridged("Momentum", fused=False, **arguments)
    if needs_unique("Momentum"):
        with raises_no_kernel("no kernel for Unique.*jit_compile=False"):
            train(optimizer, SHORT, **compiled())
        return
    expected = train(api.bridged("Momentum", **arguments), SHORT)
    running.assert_close(train(optimizer, SHORT, **compiled()), expected, **TOLERANCE)


@pytest.mark.parametrize("name", sorted(MAKERS))
def test_a_missing_kernel_names_both_ways_out(name):
    optimizer = api.bridged(MAKERS[name]())
    if needs_unique(name):
        with raises_no_kernel("no kernel for Unique.*jit_compile=False"):
            train(optimizer, SHORT, **compiled())
        return
    if name in COMPILES_FUSED:
        running.assert_close(
            train(optimizer, SHORT, **compiled()), train(api.bridged(name), SHORT), **TOLERANCE
        )
        return
    with pytest.raises(ValueError, match=r"XLA has no kernel for ResourceSparse\w+") as raised:
        train(optimizer, SHORT, **compiled())
    assert "fused=False" in str(raised.value) and "jit_compile=False" in str(raised.value)


def test_fit_with_xla():
    """compile(jit_compile=True), where this Keras has it."""
    if "jit_compile" not in inspect.signature(api.keras.Model.compile).parameters:
        return
    expected, _ = api.fit(SHORT, api.bridged("Adagrad"))
    actual, _ = api.fit(SHORT, api.bridged("Adagrad", fused=False), jit_compile=True)
    running.assert_close(actual, expected, **TOLERANCE)
    with pytest.raises(ValueError, match="XLA has no kernel for ResourceSparseApplyAdagrad"):
        api.fit(SHORT, api.bridged("Adagrad"), jit_compile=True)

"""Tests bridged optimizers (made by `to_keras`) with XLA, and without TensorFlow's fused kernels.

Code compiled by XLA rounds differently from TensorFlow's kernels: XLA fuses products with sums, and
approximates powers and roots differently. Therefore the comparison with the Session tolerates a few
float32 rounding errors in each of twelve steps, for values of about one.

With fused=False, bridged optimizers use elementary operations. The tests call this "composed".
"""

import inspect
import itertools

import pytest
import tensorflow as tf

from legacy_opt import AdagradDecayOptimizerV2, versions
from tests.support import running
from tests.support.keras import keras_models
from tests.support.keras.keras_apis import KERAS_3, OPTIMIZER_V2, of_each
from tests.support.xla import with_xla

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
# XLA compiles the sparse updates of these optimizers even with fused=True, because XLA has the
# fused kernel, or because the updates need no fused kernel.
COMPILES_FUSED = ["Adam", "GradientDescent"]
# With Keras 3, tests of all other optimizers have the mark `full`.
DAILY = ["AdagradDA", "AdagradDecay", "Adam", "Ftrl", "Momentum"]
NAMES = sorted(MAKERS)
NAMES_3 = [name if name in DAILY else pytest.param(name, marks=pytest.mark.full) for name in NAMES]
TOLERANCE = {"rtol": 2e-5, "atol": 2e-5}


def needs_unique(name):
    """Returns whether a sparse update needs tf.unique, but this XLA cannot compile tf.unique."""
    return name != "GradientDescent" and not versions.xla_compiles_unique()


def raises_no_kernel(message):
    """Expects the bridge's error, or TensorFlow's error if the bridge cannot detect XLA."""
    knows_xla = []
    tf.function(lambda: knows_xla.append(versions.compiling_with_xla()), **with_xla())()
    if not knows_xla[-1]:  # TensorFlow 1.15 does not mark a graph that XLA will compile
        return pytest.raises(tf.errors.InvalidArgumentError, match="Unique: unsupported op")
    return pytest.raises(ValueError, match=message)


def bridged(api, name, **arguments):
    return api.bridged(MAKERS[name](None), **arguments)


def only_dense(problem):
    return problem._replace(
        values={"matrix": problem.values["matrix"]},
        gradients=[{"matrix": step["matrix"]} for step in problem.gradients],
        sparse=(),
    )


def train(api, optimizer, problem=PROBLEM):
    """Trains in a tf.function compiled by XLA. In Keras 3, the first step builds the optimizer."""
    variables = keras_models.variables_of(problem)
    if api is OPTIMIZER_V2:
        with tf.init_scope():  # XLA cannot compile the creation of variables
            _ = optimizer.iterations
            optimizer._create_all_weights(list(variables.values()))

    @tf.function(**with_xla())
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


def assert_names_both_ways_out(raised):
    assert "fused=False" in str(raised.value) and "jit_compile=False" in str(raised.value)


@of_each("name", NAMES, NAMES_3)
def test_every_optimizer_compiles_without_fused_kernels(api, name):
    optimizer = bridged(api, name, fused=False)
    if needs_unique(name):
        with raises_no_kernel("no kernel for Unique.*jit_compile=False") as raised:
            train(api, optimizer, SHORT)
        assert "fused=False" not in str(raised.value)
        return
    running.assert_close(train(api, optimizer), session(name, PROBLEM), **TOLERANCE)


def multiplies_linear():
    """Whether Ftrl with a shrinkage multiplies its slot by the learning rate, as in 2.4."""
    with tf.Graph().as_default():
        zero = tf.compat.v1.get_variable("zero", initializer=0.0, use_resource=True)
        optimizer = v1.FtrlOptimizer(0.5, l2_shrinkage_regularization_strength=0.1)
        step = optimizer.apply_gradients([(tf.constant(1.0), zero)])
        with tf.compat.v1.Session() as session:
            session.run(tf.compat.v1.global_variables_initializer())
            session.run(step)
            return session.run(optimizer.get_slot(zero, "linear")) != 1


@pytest.mark.parametrize("fused", [False, True], ids=["composed", "fused"])
@of_each("name", NAMES, NAMES_3)
def test_every_optimizer_compiles_with_dense_gradients(api, name, fused):
    problem = only_dense(PROBLEM)
    actual = train(api, bridged(api, name, fused=fused), problem)
    expected = session(name, problem)
    # XLA has no kernel that multiplies the slot `linear`, so slots are not compared.
    if name == "Ftrl-shrinkage" and multiplies_linear():
        actual, expected = actual._replace(slots={}), expected._replace(slots={})
    running.assert_close(actual, expected, **TOLERANCE)


@pytest.mark.in_turn(name=NAMES, way=["function", "eager"])
def test_composed_updates_equal_fused_kernels(name, way):
    expected, _ = keras_models.loop(PROBLEM, bridged(OPTIMIZER_V2, name), way)
    actual, _ = keras_models.loop(PROBLEM, bridged(OPTIMIZER_V2, name, fused=False), way)
    running.assert_close(actual, expected, **TOLERANCE)


@of_each("name", NAMES, NAMES_3)
def test_a_missing_kernel_names_both_ways_out(api, name):
    """The error is raised while tracing, before any step."""
    optimizer = bridged(api, name)
    if needs_unique(name):
        with raises_no_kernel("no kernel for Unique.*jit_compile=False"):
            train(api, optimizer, SHORT)
        return
    if name in COMPILES_FUSED:
        running.assert_close(train(api, optimizer, SHORT), session(name, SHORT), **TOLERANCE)
        return
    with pytest.raises(ValueError, match=r"XLA has no kernel for ResourceSparse\w+") as raised:
        train(api, optimizer, SHORT)
    assert_names_both_ways_out(raised)
    assert int(optimizer.iterations.numpy()) == 0


def test_in_a_graph_the_answer_about_unique_is_the_same():
    with tf.Graph().as_default() as graph:
        answer = versions.xla_compiles_unique.__wrapped__()
    assert not graph.get_operations()
    # In a graph of TensorFlow 1.15, a function runs without XLA if XLA cannot compile it.
    if not tf.__version__.startswith("1."):
        assert answer == versions.xla_compiles_unique.__wrapped__()


def can_fit(api):
    """Returns whether this version of Keras has compile(jit_compile=True)."""
    return "jit_compile" in inspect.signature(api.keras.Model.compile).parameters


@of_each("name", optimizer_v2=["Adagrad"], keras3=["AdagradDecay", "Momentum"])
def test_fit_with_xla(api, name):
    if can_fit(api):
        optimizer = bridged(api, name, fused=False)
        actual, model = api.fit(PROBLEM, optimizer, jit_compile=True)
        attribute = "jit_compile" if hasattr(model, "jit_compile") else "_jit_compile"
        assert getattr(model, attribute) is True
        running.assert_close(actual, session(name, PROBLEM), **TOLERANCE)


@of_each("wrapped", optimizer_v2=[False], keras3=[False, True])
def test_fit_with_xla_and_fused_kernels(api, wrapped):
    if not can_fit(api):
        return
    optimizer = bridged(api, "Adagrad")
    if wrapped:
        optimizer = api.keras.optimizers.LossScaleOptimizer(optimizer)
    message = "XLA has no kernel for ResourceSparseApplyAdagrad"
    with pytest.raises(ValueError, match=message) as raised:
        api.fit(SHORT, optimizer, jit_compile=True)
    assert_names_both_ways_out(raised)
    assert int(optimizer.iterations.numpy()) == 0


@pytest.mark.keras3
def test_fit_with_jit_compile_auto():
    """The default jit_compile="auto" does not use XLA on a machine without an accelerator."""
    actual, model = KERAS_3.fit(PROBLEM, bridged(KERAS_3, "Adagrad"), jit_compile="auto")
    if model.jit_compile is False:
        running.assert_same(actual, session("Adagrad", PROBLEM))


CLIPPING = {"clipnorm": {"clipnorm": 0.7}, "clipvalue": {"clipvalue": 0.4}}
FEATURES = {
    **CLIPPING,
    "global_clipnorm": {"global_clipnorm": 0.9},
    "ema": {"use_ema": True, "ema_overwrite_frequency": 3},
    "accumulation": {"gradient_accumulation_steps": 2},
    "loss_scale_factor": {"loss_scale_factor": 1000.0},
    "weight_decay": {"weight_decay": 0.25},
}


@of_each(
    "name, feature",
    optimizer_v2=[("Momentum", limit) for limit in CLIPPING],
    keras3=[("Momentum", feature) for feature in FEATURES]
    + [
        pytest.param(name, feature, marks=pytest.mark.full)
        for name, feature in itertools.product(["AdagradDecay", "Adam"], FEATURES)
    ],
)
def test_keras_own_options_compile(api, name, feature):
    """Compares training with XLA to training without XLA."""
    arguments = FEATURES[feature]
    optimizer = bridged(api, name, fused=False, **arguments)
    problem = PROBLEM._replace(gradients=PROBLEM.gradients[:4])
    if needs_unique(name):
        with raises_no_kernel("no kernel for Unique.*jit_compile=False"):
            train(api, optimizer, problem)
        return
    expected, _ = keras_models.loop(problem, bridged(api, name, **arguments))
    running.assert_close(train(api, optimizer, problem), expected, **TOLERANCE)

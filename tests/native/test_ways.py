"""Tests kernels in Keras, in an Estimator, with partitions, with unknown shapes, and with XLA."""

import functools
import warnings

import numpy as np
import pytest
import tensorflow as tf

import legacy_opt
from legacy_opt import versions
from legacy_opt.compat import estimator, to_keras
from legacy_opt.core.user_warnings import NativeKernelWarning
from legacy_opt.native.updates import kernel_choice
from legacy_opt.programs.program import UnsupportedError
from tests.native.training import START, is_native, native, trained
from tests.support import estimators, running
from tests.support.checkpoints.v1_checkpoints import APIS
from tests.support.keras import keras_ways
from tests.support.xla import with_xla

v1 = tf.compat.v1
GRADIENT = START / 8 - 1
STEPS = 4
OPTIMIZERS = {
    "Adam": lambda: legacy_opt.native.accelerate(v1.train.AdamOptimizer(0.01)),
    "AdagradDecay": lambda: legacy_opt.AdagradDecayOptimizer(0.1, None, accumulator_decay_step=2),
    "AdamW": lambda: legacy_opt.AdamWOptimizer(0.1, 0.01),
    "DiffGrad": lambda: legacy_opt.DiffGradOptimizer(0.01),
    "LAMB": lambda: legacy_opt.LAMBOptimizer(0.01, 0.1),
    "LARS": lambda: legacy_opt.LARSOptimizer(0.1),
    "LazyAdam": lambda: legacy_opt.LazyAdamOptimizer(0.01),
}


def make(name, setting="require"):
    optimizer = OPTIMIZERS[name]()
    optimizer.native = setting
    return optimizer


def gradient(sparse):
    if sparse:  # row 4 occurs twice
        return tf.IndexedSlices(tf.constant(GRADIENT[:3]), tf.constant([4, 1, 4]), START.shape)
    return tf.constant(GRADIENT)


def in_a_session(optimizer, sparse):
    with tf.Graph().as_default():
        step = v1.train.get_or_create_global_step()
        variable = v1.get_variable("w", initializer=START, use_resource=True)
        train_op = optimizer.apply_gradients([(gradient(sparse), variable)], global_step=step)
        return running.after(train_op, variable, STEPS)


@pytest.mark.pairwise(name=OPTIMIZERS, api=APIS, sparse=[False, True], in_function=[False, True])
def test_a_bridged_optimizer_has_the_bits_of_a_session(api, name, sparse, in_function):
    optimizer = to_keras(make(name), api=api)
    variable = tf.Variable(START)

    def step():
        optimizer.apply_gradients([(gradient(sparse), variable)])

    run = step
    if in_function:
        run = tf.function(step)
        graph = run.get_concrete_function().graph
        assert is_native({each.type for each in graph.get_operations()})
    for _ in range(STEPS):
        run()
    np.testing.assert_array_equal(variable.numpy(), in_a_session(make(name), sparse))


@pytest.mark.in_turn(name=["Adam", "AdagradDecay", "AdamW"], api=APIS)
def test_fit_on_a_dataset_of_unknown_length(name, api):
    model = keras_ways.small_model("float32", steps=6)
    traces = [
        keras_ways.fit(model, lambda _: make(name), api, known_length=known_length)
        for known_length in (True, False)
    ]
    running.assert_same(*traces)


@pytest.mark.parametrize("name", ["AdamW", "LazyAdam"])
@estimators.needed
def test_an_estimator_resumes_with_the_bits_of_a_session(name, tmp_path):
    def model_fn(features, labels, mode):
        del features, labels
        step = v1.train.get_global_step()
        variable = v1.get_variable("w", initializer=START)
        train_op = make(name).apply_gradients([(gradient(True), variable)], global_step=step)
        assert is_native({each.type for each in step.graph.get_operations()})
        return estimator.EstimatorSpec(mode, loss=tf.constant(0.0), train_op=train_op)

    config = estimator.RunConfig(log_step_count_steps=None)
    for last in (1, STEPS):
        trained = estimator.Estimator(model_fn, str(tmp_path), config)
        trained.train(lambda: tf.constant(0.0), max_steps=last)
    value = v1.train.load_variable(trained.latest_checkpoint(), "w")
    np.testing.assert_array_equal(value, in_a_session(make(name), sparse=True))


def knows_xla_in_functions():
    """Returns whether `compiling_with_xla` works in a tf.function (from TensorFlow 2.2 on)."""
    known = []
    tf.function(lambda: known.append(versions.compiling_with_xla()), **with_xla())()
    return known[-1]


def test_xla_compiles_tensorflows_operations(monkeypatch):
    """XLA cannot compile the operation of a kernel, so TensorFlow's operations run instead."""
    monkeypatch.setattr(kernel_choice, "_warned", set())
    variables = [tf.Variable(START), tf.Variable(START)]
    optimizers = [make("LazyAdam", setting) for setting in ("auto", "off")]

    def step(optimizer, variable):
        optimizer.apply_gradients([(gradient(False), variable)])

    optimizers[0]._create_slots(variables[:1])
    run = tf.function(functools.partial(step, optimizers[0], variables[0]), **with_xla())
    if not knows_xla_in_functions():
        with pytest.raises(tf.errors.InvalidArgumentError, match="LegacyOptUpdate"):
            run()
        return
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for optimizer, variable in zip(optimizers, variables):
            optimizer._create_slots([variable])
            tf.function(functools.partial(step, optimizer, variable), **with_xla())()
    reasons = [str(each.message) for each in caught if each.category is NativeKernelWarning]
    assert reasons == ["LazyAdamOptimizer runs without a native kernel: XLA compiles this function"]
    np.testing.assert_array_equal(variables[0].numpy(), variables[1].numpy())
    assert np.any(variables[0].numpy() != START)


@pytest.mark.parametrize(
    "device, reason",
    [
        ("/job:ps/task:0", "in another process"),
        ("/device:GPU:0", "kernels run on CPUs"),
    ],
)
def test_a_variable_on_another_device(device, reason):
    with tf.Graph().as_default(), tf.device(device):
        variable = v1.get_variable("w", initializer=START, use_resource=False)
        with pytest.raises(UnsupportedError, match=reason):
            native().apply_gradients([(tf.ones_like(START), variable)])


def test_a_distribution_strategy():
    strategy = tf.distribute.MirroredStrategy(["/cpu:0"])
    with tf.Graph().as_default(), strategy.scope():
        variable = v1.get_variable("w", initializer=START)
        optimizer = native()

        def step():
            optimizer.apply_gradients([(tf.ones_like(START), variable)])

        with pytest.raises(UnsupportedError, match="a tf.distribute.Strategy"):
            running.on_replicas(strategy)(step)


@pytest.mark.parametrize("sparse", [False, True])
def test_a_partitioned_variable(sparse):
    """LazyAdam updates each element separately, so partitions do not change the results."""
    results = {}
    for parts in 1, 2:
        with tf.Graph().as_default() as graph:
            variable = v1.get_variable(
                "w",
                initializer=tf.constant(START),
                partitioner=v1.fixed_size_partitioner(parts),
                use_resource=True,
            )
            ids = tf.constant([4, 1, 4])
            value = v1.nn.embedding_lookup(variable, ids, partition_strategy="div")
            if not sparse:
                value = tf.convert_to_tensor(variable)
            optimizer = make("LazyAdam")
            train_op = optimizer.minimize(tf.reduce_sum(value * value))
            assert is_native({each.type for each in graph.get_operations()})
            results[parts] = running.after(train_op, tf.convert_to_tensor(variable), STEPS)
    np.testing.assert_array_equal(results[1], results[2])


def test_a_gradient_of_an_unknown_shape():
    def train(fed):
        with tf.Graph().as_default():
            variable = v1.get_variable("w", initializer=START, use_resource=True)
            placeholder = v1.placeholder(tf.float32)
            train_op = native().apply_gradients([(placeholder, variable)])
            return running.after(train_op, variable, feed={placeholder: fed})

    np.testing.assert_array_equal(train(GRADIENT), trained(native(), lambda _: GRADIENT)[0])
    with pytest.raises(tf.errors.InvalidArgumentError, match="not compatible"):
        train(GRADIENT[:2])


def test_a_variable_of_an_unknown_shape():
    """Kernels need the rank of a variable, but not its shape."""
    results = {}
    for setting in "off", "require":
        with tf.Graph().as_default():
            start = v1.placeholder_with_default(START, [None, None])
            variable = v1.get_variable(
                "w", initializer=start, validate_shape=False, use_resource=True
            )
            optimizer = make("LazyAdam", setting)
            train_op = optimizer.apply_gradients([(gradient(True), variable)])
            results[setting] = running.after(train_op, variable)
    np.testing.assert_allclose(results["require"], results["off"], rtol=1e-6)

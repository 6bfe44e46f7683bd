"""Tests that to_v1 accepts optimizers, factories and classes, and refuses wrong arguments."""

import numpy as np
import pytest
import tensorflow as tf

from legacy_opt import versions
from legacy_opt.compat import to_v1
from tests.support.keras import keras_apis
from tests.support.keras.keras_apis import OPTIMIZER_V2

from .to_v1_runs import run, small_graph

v1 = tf.compat.v1
optimizers = keras_apis.keras_2().optimizers
home = OPTIMIZER_V2.optimizers


def test_the_current_settings_are_copied_but_not_the_state(api):
    keras = api.optimizers.SGD(0.5, momentum=0.5)
    variable = tf.compat.v2.Variable([1.0])
    keras.apply_gradients([(tf.ones([1]), variable)])
    keras.learning_rate = 0.25
    with tf.Graph().as_default():  # a graph cannot read eager variables
        optimizer = to_v1(keras)
        keras_of_graph = optimizer.keras_optimizer
        now = run(small_graph(optimizer)[1])
        assert now["SGD/learning_rate"] == 0.25
        if api is OPTIMIZER_V2:
            assert now["SGD/momentum"] == 0.5
        assert np.array_equal(now["w"], [0.5, 1, 1.5])  # 1 - 0.25 * 2: momentum starts at 0
    assert optimizer.keras_optimizer is not keras_of_graph and keras_of_graph is not keras


def test_a_factory_is_called_once_for_each_graph(api):
    calls = []

    def factory():
        calls.append(1)
        return api.optimizers.SGD(0.5)

    optimizer = to_v1(factory, name="Made")
    assert not calls
    for number in (1, 2):
        with tf.Graph().as_default():
            first = small_graph(optimizer)[1]
            assert optimizer.keras_optimizer is optimizer.keras_optimizer
            assert len(calls) == number
            run([first, optimizer.minimize(tf.reduce_sum(v1.trainable_variables()[0]))])
            assert len(calls) == number


def test_a_class(api):
    with tf.Graph().as_default():
        optimizer = to_v1(api.optimizers.Adam)
        assert optimizer.get_name() == "Adam"
        run(small_graph(optimizer)[1])


def test_refused_arguments(api):
    rate = tf.compat.v2.Variable(0.1)

    class Forgetful(api.optimizers.SGD):
        def __init__(self, strength=2.0, **kwargs):
            super().__init__(**kwargs)

    nearest = "Adam" if api is OPTIMIZER_V2 else "AdamW"
    for wrong, error, message in [
        (v1.train.AdamOptimizer(0.1), TypeError, "is a v1 optimizer already"),
        (v1.train.AdamOptimizer, TypeError, "is a v1 optimizer already"),
        (3, TypeError, "got 3"),
        (tf.keras.Model, TypeError, "takes a Keras optimizer"),
        ("adamm", ValueError, "Keras has no optimizer 'adamm'. It has: .*" + nearest),
        (api.optimizers.SGD(lambda: rate), ValueError, "learning_rate of SGD.*Pass a factory"),
        (Forgetful(), ValueError, "get_config of Forgetful does not include its argument strength"),
    ]:
        with pytest.raises(error, match=message):
            to_v1(wrong)
    with tf.Graph().as_default(), pytest.raises(TypeError, match="got 3"):
        small_graph(to_v1(lambda: 3))


def test_ref_variables_are_refused_by_name(api):
    with tf.Graph().as_default():
        optimizer = to_v1(lambda: api.optimizers.SGD(0.5))
        variable = v1.get_variable("ref", initializer=[1.0], use_resource=False)
        with pytest.raises(ValueError, match="'ref:0' is a ref variable.*use_resource=True"):
            optimizer.minimize(variable)


def test_strategies_are_refused(api):
    variable = tf.compat.v2.Variable([1.0])
    optimizer = to_v1(api.optimizers.SGD(0.5))
    strategy = tf.distribute.OneDeviceStrategy("/cpu:0")
    with strategy.scope(), pytest.raises(ValueError, match="OneDeviceStrategy"):
        optimizer.apply_gradients([(tf.ones([1]), variable)])


# Features that only Keras 2 has.


def ten_times(pairs):
    return [(grad * 10, variable) for grad, variable in pairs]


def test_functions_that_are_not_in_the_config_need_a_factory():
    if not hasattr(home.SGD(0.1), "gradient_aggregator"):  # up to TensorFlow 2.3
        with pytest.raises(TypeError, match="gradient_aggregator"):
            home.SGD(0.1, gradient_aggregator=ten_times)
        return
    v1_sgd = v1.train.GradientDescentOptimizer(0.1)
    for optimizer in (
        home.SGD(0.1, gradient_aggregator=ten_times),
        home.SGD(0.1, gradient_transformers=[ten_times]),
        OPTIMIZER_V2.bridged(v1_sgd, gradient_aggregator=ten_times),
    ):
        with pytest.raises(ValueError, match="has gradient_.*Pass a factory"):
            to_v1(optimizer)
    variable = tf.compat.v2.Variable([1.0])
    optimizer = to_v1(lambda: home.SGD(0.1, gradient_aggregator=ten_times))
    optimizer.apply_gradients([(tf.ones([1]), variable)])
    assert np.array_equal(variable.numpy(), [0])


def test_the_other_optimizers_of_keras_2():
    if issubclass(optimizers.Adam, versions.optimizer_v2()):  # up to TensorFlow 2.10
        assert isinstance(to_v1(optimizers.Adam(0.1)), v1.train.Optimizer)
        return
    for wrong in optimizers.Adam(0.1), optimizers.Adam:
        with pytest.raises(TypeError, match=r"Pass tf.keras.optimizers.legacy.Adam"):
            to_v1(wrong)


def test_loss_scaling_of_keras_2():
    mixed_precision = keras_apis.keras_2().mixed_precision
    scaling = getattr(mixed_precision, "LossScaleOptimizer", None)
    cls = scaling or mixed_precision.experimental.LossScaleOptimizer
    arguments = {"initial_scale": 4.0} if scaling else {"loss_scale": 4.0}
    with tf.Graph().as_default():
        optimizer = to_v1(lambda: cls(home.SGD(0.5), **arguments))
        variable = v1.get_variable("w", initializer=[1.0, 2.0], use_resource=True)
        ((grad, _),) = pairs = optimizer.compute_gradients(tf.reduce_sum(variable**2))
        train_op = optimizer.apply_gradients(pairs)
        with v1.Session() as session:
            session.run(v1.global_variables_initializer())
            assert np.array_equal(session.run(grad), [2.0, 4.0])
            session.run(train_op)
            assert np.array_equal(session.run(variable), [0.0, 0.0])

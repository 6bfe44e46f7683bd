"""Tests an OptimizerV2 of Keras 2 in Keras 3: equal, bit for bit, to itself in tf_keras."""

import collections

import numpy as np
import pytest
import tensorflow as tf

from legacy_opt.compat import to_keras, to_v1
from tests.support import running
from tests.support.keras import keras_models
from tests.support.keras.keras_apis import KERAS_3, OPTIMIZER_V2
from tests.support.keras.optimizers_v2 import MAKERS, Gravity, Heavy, Lookahead, legacy

pytestmark = pytest.mark.keras3

keras = KERAS_3.keras
PROBLEM = keras_models.problem()


def crossed(name, **arguments):
    return to_keras(MAKERS[name](), api="keras3", **arguments)


@pytest.mark.in_turn(name=MAKERS, way=["function", "eager", "fit", "fit eagerly"])
def test_equals_itself_in_keras_2(name, way):
    expected = OPTIMIZER_V2.run(MAKERS[name](), way, PROBLEM)
    optimizer = crossed(name)
    running.assert_same(KERAS_3.run(optimizer, way, PROBLEM), expected)
    assert optimizer.iterations.numpy() == optimizer._inner.iterations.numpy() == PROBLEM.steps


def test_the_given_optimizer_does_not_change():
    given = MAKERS["Heavy"]()
    first, second = (to_keras(given, api="keras3") for _ in range(2))
    for each in (first, second):
        running.assert_same(
            KERAS_3.run(each, "fit", PROBLEM), OPTIMIZER_V2.run(MAKERS["Heavy"](), "fit", PROBLEM)
        )
    assert not given._slots and given._iterations is None


def test_names_of_variables_are_those_of_keras_2():
    names = []

    class Noting(legacy.SGD):
        def _resource_apply_dense(self, grad, var, apply_state=None):
            names.append(var.name)
            return super()._resource_apply_dense(grad, var, apply_state)

    class Model(keras.Model):
        def __init__(self):
            super().__init__(name="top")
            self.last = keras.layers.Dense(1, name="last")

        def call(self, inputs):
            return self.last(inputs)

    model = Model()
    model.compile(to_keras(Noting(0.1), api="keras3"), "mse")
    model.fit(np.ones([2, 2]), np.ones(2), verbose=0)
    assert set(names) == {"top/last/kernel:0", "top/last/bias:0"}
    assert [each.value.name for each in model.trainable_variables] == ["top/kernel:0", "top/bias:0"]


# Options of Keras 3.


@pytest.mark.parametrize(
    "options", [{"clipnorm": 0.5}, {"global_clipnorm": 0.5}, {"clipvalue": 0.3}]
)
def test_clipping_by_keras_3(options):
    """Keras 3's own options clip as they do for an optimizer of TensorFlow 1."""
    v1_optimizer = tf.compat.v1.train.GradientDescentOptimizer(0.1)
    traces = [
        KERAS_3.run(to_keras(each, api="keras3", **options), "function", PROBLEM)
        for each in (legacy.SGD(0.1), v1_optimizer)
    ]
    running.assert_same(*traces)


def test_accumulation_counts_updates():
    optimizer = crossed("Adam", gradient_accumulation_steps=3)
    variable = keras.Variable(np.ones(3, np.float32))
    for value in range(6):
        optimizer.apply([tf.fill([3], float(value))], [variable])
    expected = tf.Variable(np.ones(3, np.float32))
    plain = MAKERS["Adam"]()
    for value in (1.0, 4.0):
        plain.apply_gradients([(tf.fill([3], value), expected)])
    np.testing.assert_array_equal(variable.numpy(), expected.numpy())
    assert optimizer.iterations.numpy() == 2


def test_mixed_precision():
    weights = []
    for home, optimizer in ((OPTIMIZER_V2.keras, MAKERS["Adam"]()), (keras, crossed("Adam"))):
        scaling = home.mixed_precision if home is OPTIMIZER_V2.keras else home.optimizers
        layer = home.layers.Dense(2, dtype="mixed_float16", kernel_initializer="ones")
        model = home.Sequential([layer])
        model.compile(scaling.LossScaleOptimizer(optimizer, initial_scale=64.0), "mse")
        model.fit(np.ones([4, 3], np.float16), np.ones([4, 2]), verbose=0, epochs=3)
        weights.append(model.get_weights())
    for one, other in zip(*weights):
        np.testing.assert_array_equal(one, other)


# What is refused.


class Minimizes(legacy.SGD):
    def minimize(self, loss, var_list, grad_loss=None, name=None, tape=None):
        return super().minimize(loss * 2, var_list, grad_loss, name, tape)


class AssignsMore(legacy.SGD):
    def minimize(self, *args, **kwargs):
        done = super().minimize(*args, **kwargs)
        self.iterations.assign_add(1)
        return done


class MinimizesAlike(legacy.SGD):
    """Adds an argument to `minimize`, as TensorFlow Addons' AdamW does."""

    decays = None

    def minimize(self, loss, var_list, grad_loss=None, name=None, decays=None, tape=None):
        self.decays = decays
        return super().minimize(loss, var_list=var_list, grad_loss=grad_loss, name=name, tape=tape)


class OwnsAVariable(legacy.SGD):
    def __init__(self, learning_rate=0.1, **kwargs):
        super().__init__(learning_rate, **kwargs)
        self.scale = self.add_weight("scale", shape=[])


class Forgets(legacy.SGD):
    def __init__(self, learning_rate=0.1, factor=2.0, **kwargs):
        super().__init__(learning_rate, **kwargs)


class Holds(legacy.SGD):
    def __init__(self, value=None, learning_rate=0.1, name="Holds", **kwargs):
        super().__init__(learning_rate, name=name, **kwargs)
        self.value = value

    def get_config(self):
        return dict(super().get_config(), value=self.value)


def first(pairs):
    return pairs[0]


@pytest.mark.parametrize("value", [np.arange(3), (1, (2.0, "x")), {"a": [(1,), first]}])
def test_objects_in_a_configuration(value):
    config = keras.saving.serialize_keras_object(to_keras(Holds(value), api="keras3"))
    known = {"Holds": Holds, "first": first}
    made = keras.saving.deserialize_keras_object(config, custom_objects=known)
    np.testing.assert_equal(made.value, value)
    assert type(made.value) is type(value)


@pytest.mark.parametrize(
    "value", [np.zeros(2), collections.deque([1]), collections.OrderedDict(a=1), [[1]]]
)
def test_containers_are_copied(value):
    given = Holds(value)
    made = to_keras(given, api="keras3")
    assert made.value is not value and type(made.value) is type(value)


def trained():
    optimizer = legacy.Adam()
    optimizer.apply_gradients([(tf.ones([]), tf.Variable(1.0))])
    return optimizer


@pytest.mark.parametrize(
    "make, error, message",
    [
        (Minimizes, TypeError, "Minimizes overrides minimize, which Keras 3 does not call"),
        (AssignsMore, TypeError, "AssignsMore overrides minimize"),
        (lambda: Holds([legacy.SGD()]), ValueError, "Holds has optimizers in the container value"),
        (lambda: legacy.SGD, TypeError, "Pass an instance, not the class"),
        (trained, ValueError, "This Adam has trained already"),
        (lambda: Lookahead(trained()), ValueError, "This Lookahead has trained already"),
        (OwnsAVariable, ValueError, "creates the variable 'scale' in its constructor"),
        (
            lambda: OPTIMIZER_V2.keras.mixed_precision.LossScaleOptimizer(legacy.SGD()),
            ValueError,
            "scales the loss. Pass the optimizer inside it",
        ),
        (
            lambda: to_keras(tf.compat.v1.train.AdamOptimizer(), api="optimizer_v2"),
            ValueError,
            "was made by to_keras for Keras 2. Pass the v1 optimizer itself",
        ),
        (
            lambda: OPTIMIZER_V2.keras.optimizers.Adam(),
            TypeError,
            "pass tf_keras.optimizers.legacy.Adam",
        ),
    ],
)
def test_refused(make, error, message):
    with pytest.raises(error, match=message):
        to_keras(make(), api="keras3")


def test_a_minimize_that_computes_the_same_is_not_refused():
    given = MinimizesAlike(0.1, momentum=0.5)
    given.decays = False
    assert to_keras(given, api="keras3")._inner.decays is given.decays is False
    given.decays = "a list of an earlier call, which minimize would forget"
    with pytest.raises(TypeError, match="MinimizesAlike overrides minimize"):
        to_keras(given, api="keras3")


def test_wrong_arguments():
    with pytest.raises(TypeError, match="It is a Keras optimizer already"):
        to_keras(legacy.SGD(), api="optimizer_v2")
    with pytest.raises(ValueError, match="takes only api, name and arguments of Keras 3"):
        to_keras(legacy.SGD(), learning_rate=0.1, api="keras3")
    with pytest.raises(ValueError, match="weight_decay=0.5: Keras would apply it besides Heavy"):
        to_keras(Heavy(), api="keras3", weight_decay=0.5)
    with pytest.raises(ValueError, match="does not include the argument factor"):
        to_keras(Forgets(), api="keras3").get_config()
    with tf.Graph().as_default(), pytest.raises(ValueError, match="Keras 3 has no Session"):
        to_keras(legacy.SGD(), api="keras3")


def test_a_strategy_is_refused_when_the_optimizer_trains():
    """The constructor could not know it."""
    optimizer, variable = crossed("Adam"), tf.Variable(1.0)
    message = "Adam is an OptimizerV2, which to_keras supports in Keras 3 in one replica only"
    strategy = tf.distribute.OneDeviceStrategy("/cpu:0")
    with strategy.scope(), pytest.raises(ValueError, match=message):
        optimizer.apply_gradients([(tf.constant(1.0), variable)])


def test_to_v1_takes_a_class_that_does_not_say_self():
    assert type(to_v1(Gravity())).__name__ == "KerasInV1"

"""Tests the hyperparameters and attributes of an OptimizerV2 in Keras 3."""

import functools

import numpy as np
import pytest
import tensorflow as tf

from legacy_opt.compat import to_keras
from tests.support import running
from tests.support.keras import keras_models
from tests.support.keras.keras_apis import KERAS_3, OPTIMIZER_V2
from tests.support.keras.optimizers_v2 import MAKERS, legacy, schedules

pytestmark = pytest.mark.keras3

keras = KERAS_3.keras
PROBLEM = keras_models.problem()


def crossed(name, **arguments):
    return to_keras(MAKERS[name](), api="keras3", **arguments)


@pytest.mark.parametrize("way", ["function", "eager"])
def test_hyperparameters_can_be_set(way):
    def between(variables, number, optimizer):
        if number == 4:
            optimizer.learning_rate = 0.03
            optimizer.momentum = 0.5
        if number == 8:
            optimizer.weight_decay = 0.2

    traces = []
    for optimizer in (MAKERS["Heavy"](), crossed("Heavy")):
        traces.append(
            keras_models.loop(
                PROBLEM, optimizer, way, lambda *args, each=optimizer: between(*args, each)
            )[0]
        )
    running.assert_same(traces[1], traces[0])
    assert float(optimizer.learning_rate) == np.float32(0.03)
    assert float(optimizer.weight_decay) == np.float32(0.2)


def test_schedules_can_be_set():
    optimizer = crossed("SGD, schedule")
    assert float(optimizer.learning_rate) == np.float32(0.1)
    optimizer.learning_rate = keras.optimizers.schedules.ExponentialDecay(0.2, 3, 0.5)
    expected = legacy.SGD(schedules.ExponentialDecay(0.2, 3, 0.5), momentum=0.9)
    running.assert_same(
        KERAS_3.run(optimizer, "fit", PROBLEM), OPTIMIZER_V2.run(expected, "fit", PROBLEM)
    )

    class Own(keras.optimizers.schedules.LearningRateSchedule):
        def __call__(self, step):
            return 0.1

        def get_config(self):
            return {}

    with pytest.raises(TypeError, match="is a schedule of Keras 3 that Keras 2 does not have"):
        optimizer.learning_rate = Own()


def test_a_variable_of_the_user_is_the_learning_rate():
    values = []
    for make in (lambda each: each, functools.partial(to_keras, api="keras3")):
        rate, variable = tf.Variable(0.1), tf.Variable(1.0)
        optimizer = make(legacy.SGD(rate))
        for number in (0.1, 0.5):
            rate.assign(number)
            optimizer.apply_gradients([(tf.constant(1.0), variable)])
        values.append(variable.numpy())
    assert values[0] == values[1]


def test_attributes_that_are_no_hyperparameters_can_be_set():
    values = []
    for make in (lambda each: each, functools.partial(to_keras, api="keras3")):
        variable, optimizer = tf.Variable(1.0), make(legacy.Adam(0.1))
        optimizer.epsilon = 3.0
        optimizer.lr = 0.4
        optimizer.apply_gradients([(tf.constant(1.0), variable)])
        values.append(variable.numpy())
    assert values[0] == values[1] and optimizer.epsilon == 3.0


def test_a_hyperparameter_that_is_read_early_is_saved(tmp_path):
    optimizer = crossed("Adam")
    assert optimizer.learning_rate == 0.1 and optimizer.beta_1 == 0.9
    optimizer.build([keras.Variable([1.0])])
    assert len(optimizer.variables) == 3 + 4  # iterations and slots; hyperparameters


class Halves(legacy.SGD):
    """Has a property, a method, and an attribute that Keras 3 has, too."""

    factor = property(
        lambda self: self._factor, lambda self, value: setattr(self, "_factor", value)
    )

    def __init__(self, learning_rate=0.1, **kwargs):
        super().__init__(learning_rate, **kwargs)
        self._factor, self.weight_decay = 1.0, 0.25

    def half(self, number):
        return number * self._factor / 2

    def _resource_apply_dense(self, grad, var, apply_state=None):
        change = self.half(grad) + self.weight_decay * var
        return super()._resource_apply_dense(change, var, apply_state)


def test_attributes_of_the_class():
    values = []
    for make in (lambda each: each, functools.partial(to_keras, api="keras3")):
        variable, optimizer = tf.Variable(1.0), make(Halves(0.1))
        assert (optimizer.factor, optimizer.weight_decay) == (1.0, 0.25)
        optimizer.factor, optimizer.weight_decay = 3.0, 0.5
        assert optimizer.half(2.0) == 3.0
        optimizer.apply_gradients([(tf.constant(1.0), variable)])
        values.append(variable.numpy())
    assert values[0] == values[1]


@pytest.mark.parametrize("name", ["clipnorm", "clipvalue", "global_clipnorm"])
@pytest.mark.parametrize("later", [2.0, None])
def test_clipping_by_the_optimizer_v2_can_be_set(name, later):
    values = []
    for make in (lambda each: each, functools.partial(to_keras, api="keras3")):
        variable, optimizer = tf.Variable([1.0, 2.0]), make(legacy.SGD(0.1, **{name: 0.5}))
        assert getattr(optimizer, name) == 0.5
        for _ in range(2):
            optimizer.apply_gradients([(tf.constant([3.0, 4.0]), variable)])
            setattr(optimizer, name, later)
        values.append(variable.numpy())
    np.testing.assert_array_equal(*values)
    assert getattr(type(optimizer).from_config(optimizer.get_config()), name) == later
    with pytest.raises(ValueError, match=f"{name}=0.3: Keras would apply it besides SGD"):
        to_keras(legacy.SGD(0.1, **{name: 0.5}), api="keras3", **{name: 0.3})


def test_a_function_is_called_once_in_each_step():
    rates = iter([0.5, 0.25, 0.125])
    optimizer = to_keras(legacy.SGD(lambda: next(rates)), api="keras3")
    variable = tf.Variable(1.0)
    for _ in range(3):
        optimizer.apply_gradients([(tf.constant(1.0), variable)])
    assert variable.numpy() == 1 - 0.5 - 0.25 - 0.125


class Skips(legacy.Adam):
    """Skips steps with large gradients, and does not count them."""

    def apply_gradients(self, grads_and_vars, name=None, **kwargs):
        pairs = list(grads_and_vars)
        with tf.init_scope():
            self._create_all_weights([variable for _, variable in pairs])

        def update():
            super(Skips, self).apply_gradients(pairs)
            return True

        return tf.cond(pairs[0][0] < 3.0, update, lambda: False)


@pytest.mark.parametrize("way", ["function", "eager"])
@pytest.mark.parametrize("batches", [None, 2])
def test_the_class_decides_which_steps_count(batches, way):
    results = []
    options = {} if batches is None else {"gradient_accumulation_steps": batches}
    for make in (lambda each: each, functools.partial(to_keras, api="keras3", **options)):
        variable, optimizer = tf.Variable(1.0), make(Skips(0.1))
        of_keras_2 = optimizer._iterations is None

        def step(grad, variable=variable, optimizer=optimizer):
            optimizer.apply_gradients([(grad, variable)])

        step = tf.function(step) if way == "function" else step
        for grad in (1.0, 2.0, 3.0, 2.5, 4.0, 1.5):
            for _ in range(1 if of_keras_2 else batches or 1):
                step(tf.constant(grad))
        results.append((variable.numpy(), int(optimizer.iterations)))
    assert results[0] == results[1] and results[0][1] == 4


def test_the_learning_rate_of_an_optimizer_that_wraps_another():
    values = []
    for make in (lambda each: each, functools.partial(to_keras, api="keras3")):
        variable, optimizer = tf.Variable(1.0), make(MAKERS["Lookahead"]())
        assert float(optimizer.learning_rate) == np.float32(0.1)
        optimizer.learning_rate = 0.5
        optimizer.apply_gradients([(tf.constant(1.0), variable)])
        values.append(variable.numpy())
        optimizer.learning_rate = 0.2
        optimizer.apply_gradients([(tf.constant(1.0), variable)])
        values.append(variable.numpy())
    assert values[:2] == values[2:]


def test_slots_start_with_numbers_in_full_precision():
    class Starts(legacy.SGD):
        def _create_slots(self, var_list):
            for each in var_list:
                self.add_slot(each, "start", initializer=0.1, shape=[])

    optimizer = to_keras(Starts(0.1), api="keras3")
    variable = keras.Variable([1.0], dtype="float64")
    optimizer.build([variable])
    assert optimizer.get_slot(variable, "start").numpy() == 0.1


def test_a_constraint_is_applied_once():
    values = []
    for make in (lambda each: each, functools.partial(to_keras, api="keras3")):
        variable = tf.Variable(1.0, constraint=lambda value: value * 0.5)
        make(legacy.SGD(0.1)).apply_gradients([(tf.constant(1.0), variable)])
        values.append(variable.numpy())
    assert values[0] == values[1]


def test_callbacks_read_and_set_the_learning_rate():
    optimizer = crossed("Adam")
    scheduler = keras.callbacks.LearningRateScheduler(lambda epoch, rate: rate * 0.5)
    KERAS_3.fit(PROBLEM, optimizer, [scheduler], epochs=2)
    assert float(optimizer.learning_rate) == np.float32(0.1) * np.float32(0.25)

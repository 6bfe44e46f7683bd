"""Regression tests for wrong results and unclear messages of the Keras 3 bridge (`to_keras`)."""

import numpy as np
import pytest
import tensorflow as tf

from legacy_opt import AdagradDecayOptimizer
from tests.support import running
from tests.support.keras.keras_apis import KERAS_3 as api
from tests.support.keras.loading import load_model

pytestmark = pytest.mark.keras3

v1 = tf.compat.v1
keras = api.keras
GradientDescent = v1.train.GradientDescentOptimizer
ONE = np.ones([1], "f")


def trainable():
    return tf.Variable([1.0])


def step_of(optimizer, variable):
    """Returns a tf.function that applies the gradient 1.0 to the variable."""
    optimizer.build([variable])
    return tf.function(lambda: optimizer.apply_gradients([(tf.constant(ONE), variable)]))


# Learning rates.


def test_a_tensor_can_be_assigned_as_the_learning_rate():
    """Many callbacks execute `optimizer.learning_rate = optimizer.learning_rate * 0.5`."""
    optimizer, variable = api.bridged(GradientDescent(0.5)), trainable()
    step = step_of(optimizer, variable)
    step()
    optimizer.learning_rate = optimizer.learning_rate * 0.5
    step()
    assert variable.numpy() == [0.25]
    optimizer.learning_rate = 0.125
    step()
    assert variable.numpy() == [0.125]
    assert optimizer.get_config()["learning_rate"] == 0.125
    assert len(optimizer.variables) == 2


def test_a_tensor_can_be_assigned_inside_a_function():
    optimizer, variable = api.bridged(GradientDescent(0.5)), trainable()
    optimizer.build([variable])

    @tf.function
    def step(rate):
        optimizer.learning_rate = rate
        optimizer.apply_gradients([(tf.constant(ONE), variable)])

    step(tf.constant(0.25))
    optimizer.apply_gradients([(tf.constant(ONE), variable)])
    assert variable.numpy() == [0.5]


@pytest.mark.parametrize("source", [tf.Variable, keras.Variable])
def test_a_variable_as_the_learning_rate_is_read_in_each_step(source):
    rate, variable = source(0.5), trainable()
    optimizer = api.bridged(GradientDescent(0.1), learning_rate=rate)
    step = step_of(optimizer, variable)
    step()
    rate.assign(0.25)
    step()
    optimizer.learning_rate = 0.125
    step()
    assert variable.numpy() == [0.125]


def test_a_callable_learning_rate_cannot_be_replaced_by_a_number():
    optimizer = api.bridged(GradientDescent(0.1), learning_rate=lambda: 0.5)
    with pytest.raises(TypeError, match="0.25: the current learning rate is a schedule"):
        optimizer.learning_rate = 0.25


@pytest.mark.parametrize(
    "decay", [v1.train.exponential_decay, v1.train.linear_cosine_decay], ids=lambda d: d.__name__
)
@pytest.mark.parametrize("saved", [False, True])
def test_decays_of_v1_count_updates(decay, saved):
    def make(step):
        return GradientDescent(decay(0.5, step, 3, 0.5))

    wanted, step = trainable(), tf.Variable(0, dtype=tf.int64)
    for _ in range(4):
        make(step).apply_gradients([(tf.constant(ONE), wanted)], global_step=step)
    # The bridge accumulates two gradients for each update, so its eight steps make four updates.
    optimizer, variable = api.bridged(make(step), gradient_accumulation_steps=2), trainable()
    if saved and decay is v1.train.exponential_decay:  # linear_cosine_decay is saved as a number
        optimizer = type(optimizer).from_config(optimizer.get_config())
    for _ in range(8):
        optimizer.apply_gradients([(tf.constant(ONE), variable)])
    np.testing.assert_allclose(variable.numpy(), wanted.numpy(), rtol=0, atol=1e-6)


@pytest.mark.parametrize(
    "wrong, right",
    [("beta_1", "beta1"), ("learningrate", "learning_rate"), ("lr", "learning_rate")],
)
def test_keras_names_of_hyperparameters_are_refused(wrong, right):
    with pytest.raises(AttributeError, match=right):
        setattr(api.bridged("Adam"), wrong, 0.5)


# TF1 graphs.


@pytest.mark.parametrize(
    "option", [{"gradient_accumulation_steps": 2}, {"use_ema": True, "ema_overwrite_frequency": 2}]
)
def test_options_that_fail_in_a_graph_are_refused(option):
    with tf.Graph().as_default():
        optimizer, variable = api.bridged(GradientDescent(0.1), **option), trainable()
        with pytest.raises(ValueError, match="=2 does not work in a TF1 graph"):
            optimizer.apply_gradients([(tf.constant(ONE), variable)])


def test_in_a_graph_the_learning_rate_is_set_in_a_session():
    with tf.Graph().as_default():
        optimizer, variable = api.bridged(GradientDescent(0.5)), trainable()
        with pytest.raises(RuntimeError, match="session.run"):
            optimizer.learning_rate = 0.25
        train_op = optimizer.apply_gradients([(tf.constant(ONE), variable)])
        halve = optimizer.learning_rate.value.assign(0.25)
        with running.started() as session:
            session.run(halve)
            session.run(train_op)
            assert session.run(variable) == [0.75]


def test_training_inside_a_cond():
    with tf.Graph().as_default():
        optimizer, variable = api.bridged(GradientDescent(0.5)), trainable()
        optimizer.build([variable])
        train = v1.placeholder(tf.bool, [])

        def update():
            with tf.control_dependencies(
                [optimizer.apply_gradients([(tf.constant(ONE), variable)])]
            ):
                return tf.constant(1)

        done = tf.cond(train, update, lambda: tf.constant(0))
        with running.started() as session:
            for feed in (True, False, True):
                session.run(done, {train: feed})
            assert session.run(variable) == [0.0]


# Unusual v1 classes.


class OddNames(v1.train.MomentumOptimizer):
    """Uses names with slashes, which Keras forbids. Slots a/b and a_b must stay distinct."""

    def _create_slots(self, var_list):
        super()._create_slots(var_list)
        self._create_non_slot_variable(0.5, "x/y", var_list[0])
        for variable in var_list:
            self._zeros_slot(variable, "a/b", self._name)
            self._zeros_slot(variable, "a_b", self._name)


def test_names_with_slashes(tmp_path):
    def make():
        optimizer = api.bridged(OddNames(0.5, 0.5, name="odd/name"))
        optimizer.build([tf.Variable([1.0])])
        return optimizer

    optimizer = make()
    assert optimizer.name == "odd_name"
    variable = optimizer._trainable_variables[0]
    optimizer.get_slot(variable, "a/b").assign(ONE)
    path = tf.train.Checkpoint(optimizer=optimizer).save(str(tmp_path / "odd"))
    again = make()
    tf.train.Checkpoint(optimizer=again).restore(path).assert_consumed()
    variable = again._trainable_variables[0]
    assert again.get_slot(variable, "a/b").numpy() == ONE
    assert again.get_slot(variable, "a_b").numpy() == 0 * ONE


class Fails(GradientDescent):
    """Raises an error in apply_gradients if `failing` is set."""

    failing = False

    def apply_gradients(self, grads_and_vars, global_step=None, name=None):
        if Fails.failing:
            raise RuntimeError("failing is set")
        return super().apply_gradients(grads_and_vars, global_step, name)


def test_an_update_that_fails_does_not_change_the_step(monkeypatch):
    optimizer = api.bridged(Fails(0.5), gradient_accumulation_steps=2)
    variable = trainable()
    for _ in range(5):
        optimizer.apply_gradients([(tf.constant(ONE), variable)])
    monkeypatch.setattr(Fails, "failing", True)
    with pytest.raises(RuntimeError, match="failing is set"):
        optimizer.apply_gradients([(tf.constant(ONE), variable)])
    assert optimizer._iterations.numpy() == 5


class KeepsInADict(GradientDescent):
    """Caches the learning rate tensor in a dict at the first call of _prepare."""

    def __init__(self, learning_rate):
        super().__init__(learning_rate)
        self.cache = {}

    def _prepare(self):
        super()._prepare()
        self.cache.setdefault("rate", self._learning_rate_tensor)


def test_tensors_kept_in_a_dict_do_not_outlive_their_graph():
    optimizer, variable = api.bridged(KeepsInADict(0.5)), trainable()
    step_of(optimizer, variable)()
    step_of(optimizer, variable)()
    assert variable.numpy() == [0.0]


# Saved state, and the error of a v1 optimizer that is not bridged.


@pytest.mark.parametrize("way", ["checkpoint", "weights"])
def test_state_without_slots_is_not_loaded_where_there_are_some(way, tmp_path):
    def make(optimizer):
        model = keras.Sequential([keras.Input([2]), keras.layers.Dense(1)])
        model.compile(api.bridged(optimizer), "mse")
        model.optimizer.build(model.trainable_variables)
        return model

    saved, other = make(GradientDescent(0.5)), make(v1.train.AdagradOptimizer(0.5))
    saved.fit(np.ones([4, 2]), np.ones([4, 1]), batch_size=2, verbose=0)
    with pytest.raises(ValueError, match="accumulator is missing in the saved optimizer"):
        if way == "checkpoint":
            path = tf.train.Checkpoint(optimizer=saved.optimizer).save(str(tmp_path / "model"))
            tf.train.Checkpoint(optimizer=other.optimizer).restore(path)
        else:
            saved.save_weights(str(tmp_path / "model.weights.h5"))
            other.load_weights(str(tmp_path / "model.weights.h5"))
    assert other.optimizer.iterations.numpy() == 0


def test_the_error_of_an_unbridged_v1_optimizer_mentions_to_keras():
    optimizer = AdagradDecayOptimizer(0.1, tf.Variable(0, dtype=tf.int64))
    with pytest.raises(TypeError, match="variable of Keras 3.*to_keras"):
        optimizer.apply_gradients([(tf.constant(ONE), keras.Variable(ONE))])


def test_a_model_loaded_from_h5_continues_with_its_state(tmp_path):
    def data(rows):
        return np.ones([rows, 2], "f"), np.ones([rows, 1], "f")

    model = keras.Sequential([keras.Input([2]), keras.layers.Dense(1)])
    model.compile(api.bridged("Adam"), keras.losses.MeanSquaredError())
    model.fit(*data(2), batch_size=1, verbose=0)
    model.save(str(tmp_path / "model.h5"))
    again = load_model(api, tmp_path / "model.h5")
    for one in (model, again):
        one.fit(*data(3), batch_size=1, verbose=0)
    assert again.optimizer.iterations.numpy() == 5
    for one, other in zip(model.variables, again.variables):
        assert np.array_equal(one.numpy(), other.numpy())

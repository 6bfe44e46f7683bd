"""Tests training with the Keras 3 bridge (`to_keras`): fit, constraints, layers, threads.

The expected values come from the v1 optimizer in a Session, or from NumPy.
"""

import numpy as np
import pytest
import tensorflow as tf

from legacy_opt import AdagradDecayOptimizer
from tests.support import running
from tests.support.keras import keras_models
from tests.support.keras.keras_apis import KERAS_3 as api
from tests.support.threads import in_threads

pytestmark = pytest.mark.keras3

v1 = tf.compat.v1
keras = api.keras
PROBLEM = keras_models.problem()
STATEFUL = ["AdagradDA", "AdagradDecay", "Adam", "Momentum", "RMSProp"]
WAYS = pytest.mark.parametrize("way", ["function", "eager"])


# fit, train_step and train_on_batch.


@pytest.mark.one_lane
@pytest.mark.parametrize("way", ["fit", "fit eagerly"])
@pytest.mark.parametrize("name", STATEFUL)
def test_fit(name, way):
    optimizer = api.bridged(name)
    config = running.config_of("eager" if way == "fit eagerly" else "function")
    running.assert_same(
        api.run(optimizer, way, PROBLEM), keras_models.session(name, PROBLEM, config=config)
    )
    assert int(optimizer.iterations.numpy()) == PROBLEM.steps


class OwnStep(keras.Model):
    """Overrides train_step as Keras' documentation shows."""

    def train_step(self, data):
        x, y = data
        with tf.GradientTape() as tape:
            loss = self.compute_loss(y=y, y_pred=self(x, training=True))
        gradients = tape.gradient(loss, self.trainable_variables)
        self.update(gradients)
        return {"loss": loss}


class AppliesPairs(OwnStep):
    def update(self, gradients):
        self.optimizer.apply_gradients(zip(gradients, self.trainable_variables))


class Applies(OwnStep):
    def update(self, gradients):
        self.optimizer.apply(gradients, self.trainable_variables)


@pytest.mark.parametrize("cls", [AppliesPairs, Applies])
def test_an_overridden_train_step(cls):
    model = api.fed_model(PROBLEM, cls)
    actual, _ = api.fit(PROBLEM, api.bridged("Adam"), model=model)
    running.assert_same(actual, keras_models.session("Adam", PROBLEM))


@pytest.fixture
def without_graph_optimizations():
    options = tf.config.optimizer.get_experimental_options()
    tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": True})
    yield
    options = dict({"disable_meta_optimizer": False}, **options)
    tf.config.optimizer.set_experimental_options(options)


def test_train_on_batch(without_graph_optimizations):
    # Up to Keras 3.6, each batch is a constant in a new graph. Graph optimizations of constants
    # could change the last bits, so the fixture turns the optimizations off.
    model = api.fed_model(PROBLEM)
    model.compile(api.bridged("Adam"), keras_models.the_output)
    x, y = keras_models.fed_data(PROBLEM)
    for number in range(PROBLEM.steps):
        model.train_on_batch([part[number : number + 1] for part in x], y[number : number + 1])
    expected = keras_models.session("Adam", PROBLEM, config=running.AS_WRITTEN).steps[-1]
    for name, variable in model.get_layer("fed").variables_by_name.items():
        np.testing.assert_array_equal(variable.numpy(), expected[name])


@pytest.mark.parametrize("way", ["function", "fit"])
def test_a_schedule_of_keras(way):
    schedule = keras.optimizers.schedules.PiecewiseConstantDecay([3, 7], [0.5, 0.25, 0.125])
    actual = api.run(api.bridged("GradientDescent", learning_rate=schedule), way, PROBLEM)
    wanted = keras_models.rates(PROBLEM, lambda n: 0.5 if n <= 3 else 0.25 if n <= 7 else 0.125)
    running.assert_steps_close(actual.steps, wanted)


# Constraints, layers, lookups, threads.


@pytest.mark.parametrize("way", ["function", "fit"])
def test_constraints_run_after_each_update(way):
    """Tests an embedding, and another variable that has dense gradients."""
    constraint = keras.constraints.NonNeg()
    optimizer = api.bridged(v1.train.GradientDescentOptimizer(0.5))
    if way == "fit":
        model = api.fed_model(PROBLEM, constraint=constraint)
        steps = api.fit(PROBLEM, optimizer, model=model)[0].steps
    else:
        variables = {
            name: tf.Variable(value, name=name, constraint=tf.nn.relu)
            for name, value in PROBLEM.values.items()
        }
        trace, _ = keras_models.loop(PROBLEM, optimizer, way, variables=variables)
        steps = trace.steps
    now, wanted = dict(PROBLEM.values), []
    for gradients in PROBLEM.gradients:
        (now,) = keras_models.rates(
            PROBLEM._replace(values=now, gradients=[gradients]), lambda _: 0.5
        )
        now = {name: np.maximum(value, 0) for name, value in now.items()}
        wanted.append(now)
    running.assert_steps_close(steps, wanted)


def test_a_shared_embedding():
    """Tests an embedding that a model uses twice. Its gradient is the sum over both uses."""
    random = np.random.RandomState(0)
    start = random.randn(5, 2).astype("f")
    ids = random.randint(0, 5, size=[8, 2, 3])
    shared = keras.layers.Embedding(5, 2)
    inputs = [keras.Input([3], dtype="int64"), keras.Input([3], dtype="int64")]
    both = keras.layers.Add()([shared(inputs[0]), shared(inputs[1])])
    model = keras.Model(inputs, both)
    shared.set_weights([start])
    model.compile(api.bridged("Adam"), "mse")
    y = np.zeros([8, 3, 2], "f")
    model.fit([ids[:, 0], ids[:, 1]], y, batch_size=2, shuffle=False, verbose=0)
    with tf.Graph().as_default(), v1.Session() as sess:
        table = tf.compat.v2.Variable(start)
        fed = [v1.placeholder(tf.int64, [2, 3]) for _ in range(2)]
        read = tf.gather(table, fed[0]) + tf.gather(table, fed[1])
        train_op = keras_models.make("Adam").minimize(tf.reduce_mean(tf.square(read)))
        sess.run(v1.global_variables_initializer())
        for number in range(0, 8, 2):
            feed = {fed[at]: ids[number : number + 2, at] for at in range(2)}
            sess.run(train_op, feed)
        expected = sess.run(table)
    np.testing.assert_allclose(shared.get_weights()[0], expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("own", [True, False], ids=["keras.Variable", "tf.Variable"])
def test_slots_and_variables_can_be_looked_up(own):
    optimizer = api.bridged("Adam", name="mine", use_ema=True)
    assert optimizer.get_slot_names() == []
    make = keras.Variable if own else tf.Variable
    variables = [make(np.zeros([4, 2], "f"), name=name) for name in ("one", "two")]
    optimizer.build(variables)
    names = [variable.name for variable in optimizer.variables]
    shared = ["iteration", "learning_rate", "beta1", "beta2", "epsilon"]
    assert names[:5] == shared and len(set(names)) == len(names)
    kinds = [name.rsplit("_", 1)[-1] for name in names[5:]]
    assert sorted(kinds) == sorted(["average", "m", "v"] * 2 + ["power"] * 2)
    assert all(not variable.trainable for variable in optimizer.variables)
    assert all(type(variable) is type(optimizer.iterations) for variable in optimizer.variables)
    assert all(variable.path.startswith("mine/") for variable in optimizer.variables)
    assert sorted(optimizer.get_slot_names()) == ["m", "v"]
    slot = optimizer.get_slot(variables[0], "m")
    assert tuple(slot.shape) == (4, 2) and "one" in slot.name
    assert any(slot is variable for variable in optimizer.variables)
    with pytest.raises(KeyError):
        optimizer.get_slot(variables[0], "momentum")
    assert len(optimizer.weights) == len(names)
    assert all(isinstance(weight, tf.Variable) for weight in optimizer.weights)


def test_building_without_variables_does_nothing():
    """Keras calls `build` without variables when it loads a model without weights."""
    optimizer = api.bridged("Adam")
    before = len(optimizer.variables)
    optimizer.build([])
    assert len(optimizer.variables) == before
    variable = keras.Variable([1.0])
    optimizer.build([variable])
    optimizer.apply([tf.ones([1])])
    np.testing.assert_allclose(variable.numpy(), [0.9], rtol=1e-6)


@pytest.mark.parametrize("call", ["apply", "apply_gradients"])
def test_an_empty_list_of_gradients_is_no_step(call):
    optimizer = api.bridged("Adam")
    getattr(optimizer, call)([])
    assert int(optimizer.iterations.numpy()) == 0


def test_gradients_that_are_lists_or_arrays():
    variable = keras.Variable([1.0, 2.0])
    optimizer = api.bridged(v1.train.GradientDescentOptimizer(0.5))
    for gradient in ([1.0, 1.0], np.ones(2, "f"), keras.Variable([1.0, 1.0])):
        optimizer.apply_gradients([(gradient, variable)])
    np.testing.assert_array_equal(variable.numpy(), [-0.5, 0.5])


def test_a_layer_frozen_before_compile_is_not_trained():
    model = api.fed_model(PROBLEM)
    layer = model.get_layer("fed")
    layer.matrix.trainable = False
    optimizer = api.bridged("Adam")
    model.compile(optimizer, keras_models.the_output)
    x, y = keras_models.fed_data(PROBLEM)
    model.fit(x, y, batch_size=1, shuffle=False, verbose=0)
    np.testing.assert_array_equal(layer.matrix.numpy(), PROBLEM.values["matrix"])
    expected = keras_models.session("Adam", PROBLEM).steps[-1]["table"]
    np.testing.assert_array_equal(layer.table.numpy(), expected)
    layer.matrix.trainable = True
    # Older versions of Keras cannot format the message in a tf.function, so the model runs eagerly.
    with pytest.raises(ValueError, match="Unknown variable.*(?s:.*)recreate a new optimizer"):
        model.compile(optimizer, keras_models.the_output, run_eagerly=True)
        model.fit(x, y, batch_size=1, verbose=0)


@WAYS
def test_threads_share_an_optimizer(way):
    """Eager steps of several threads do not overlap, so no step and no gradient is lost.

    Steps in a tf.function may overlap, also with Keras' own optimizers. Keras 3 first reads and
    then writes `iterations`, so two overlapping steps may be counted as one step.
    """
    variable = keras.Variable(np.zeros(3, "f"))
    optimizer = api.bridged(AdagradDecayOptimizer(1.0, None, 1e6, 10**6, 0.5))
    optimizer.build([variable])

    def step(gradient):
        optimizer.apply([gradient])

    step = tf.function(step) if way == "function" else step

    def work():
        for _ in range(25):
            step(tf.ones([3]))

    in_threads(work, 4)
    if way == "eager":
        assert int(optimizer.iterations.numpy()) == 100
        np.testing.assert_allclose(variable.numpy(), np.full(3, -0.1), rtol=1e-3)
    else:
        assert 0 < int(optimizer.iterations.numpy()) <= 100
        assert np.all(variable.numpy() < 0)
    assert vars(optimizer._v1.optimizer)["_learning_rate"] == 1.0

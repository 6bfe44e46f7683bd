"""Tests methods and state that Keras documents, with bridged optimizers (made by `to_keras`).

The expected values come from the v1 optimizer in a Session with the same gradients, or from a
calculation by hand.
"""

import copy
import importlib.util
import inspect

import numpy as np
import pytest
import tensorflow as tf

from legacy_opt import AdagradDecayOptimizer, versions
from tests.support import running
from tests.support.keras import keras_models
from tests.support.keras.keras_apis import OPTIMIZER_V2, of_each

v1 = tf.compat.v1
STATEFUL = ["AdagradDA", "AdagradDecay", "Adam", "Momentum", "RMSProp"]
PROBLEM = keras_models.problem()
SHORT = keras_models.problem(steps=2)


def session(name, **arguments):
    return keras_models.session(name, PROBLEM, **arguments)


def minimize(optimizer, gradients, variables, **arguments):
    """Calls `minimize`. The loss and the variables are callables."""
    return optimizer.minimize(
        lambda: keras_models.loss(gradients, variables),
        lambda: list(variables.values()),
        **arguments,
    )


def with_a_tape(optimizer, gradients, variables):
    with tf.GradientTape() as tape:
        loss = keras_models.loss(gradients, variables)
    found = tape.gradient(loss, list(variables.values()))
    optimizer.apply_gradients(zip(found, variables.values()))


def minimize_with_a_list(optimizer, gradients, variables):
    optimizer.minimize(lambda: keras_models.loss(gradients, variables), list(variables.values()))


def minimize_with_a_tape(optimizer, gradients, variables):
    if "tape" not in inspect.signature(versions.optimizer_v2().minimize).parameters:
        with pytest.raises(TypeError, match="tape"):
            optimizer.minimize(None, [], tape=None)
        return minimize(optimizer, gradients, variables)
    with tf.GradientTape() as tape:
        loss = keras_models.loss(gradients, variables)
    return optimizer.minimize(loss, list(variables.values()), tape=tape)


def without_aggregation(optimizer, gradients, variables):
    arguments = {"experimental_aggregate_gradients": False}
    if not set(arguments) <= set(
        inspect.signature(versions.optimizer_v2().apply_gradients).parameters
    ):
        arguments = {}  # TensorFlow 1.15 has no such argument
    optimizer.apply_gradients(keras_models.pairs(gradients, variables), **arguments)


def with_a_generator(optimizer, gradients, variables):
    optimizer.apply_gradients(pair for pair in keras_models.pairs(gradients, variables))


def with_variables(optimizer, gradients, variables):
    found = [gradient for gradient, _ in keras_models.pairs(gradients, variables)]
    optimizer.apply(found, list(variables.values()))


def with_gradients_alone(optimizer, gradients, variables):
    with tf.init_scope():
        optimizer.build(list(variables.values()))  # has no effect if it was called before
    optimizer.apply([gradient for gradient, _ in keras_models.pairs(gradients, variables)])


@pytest.mark.in_turn(way=["function", "eager"], name=["AdagradDA", "Adam"])
@of_each(
    "apply",
    optimizer_v2=[
        with_a_tape,
        with_a_generator,
        minimize,
        minimize_with_a_list,
        minimize_with_a_tape,
        without_aggregation,
    ],
    keras3=[with_a_tape, with_a_generator, with_variables, with_gradients_alone],
)
def test_custom_loops(api, name, apply, way):
    optimizer = api.bridged(name)
    actual, again = keras_models.loop(PROBLEM, optimizer, way, apply=apply)
    assert again == (0 if way == "function" else PROBLEM.steps - 1)
    config = running.config_of(way)
    running.assert_same(actual, session(name, config=config))
    assert int(optimizer.iterations.numpy()) == PROBLEM.steps


def updates(optimizer, gradients, variables):
    ops = optimizer.get_updates(keras_models.loss(gradients, variables), list(variables.values()))
    return tf.group(*ops)


def operation(optimizer, gradients, variables):
    op = minimize(optimizer, gradients, variables)
    assert isinstance(op, tf.Operation)
    return op


@pytest.mark.parametrize("build", [operation, updates, None], ids=["minimize", "updates", "apply"])
@pytest.mark.parametrize("name", STATEFUL)
def test_graph_mode(name, build):
    actual = keras_models.graph(PROBLEM, lambda: OPTIMIZER_V2.bridged(name), build)
    running.assert_same(actual, session(name))


def test_the_example_of_the_documentation_in_graph_mode():
    with tf.Graph().as_default(), v1.Session().as_default() as sess:
        a, b = tf.compat.v2.Variable([1.0, 2.0]), tf.compat.v2.Variable(3.0)
        opt = OPTIMIZER_V2.bridged("GradientDescent")
        opt_op = opt.minimize(lambda: tf.reduce_sum(a * a) + 2.0 * b, [a, b])
        sess.run(v1.global_variables_initializer())
        opt_op.run()
        opt_op.run()
        np.testing.assert_allclose(sess.run(a), [0.64, 1.28], rtol=1e-6)
        np.testing.assert_allclose(sess.run(b), 2.6, rtol=1e-6)
        assert sess.run(opt.iterations) == 2


@pytest.mark.parametrize("name", ["AdagradDA", "Adam"])
def test_fit_with_tensorboard_and_checkpoints(name, tmp_path):
    optimizer = OPTIMIZER_V2.bridged(name)
    callbacks = [
        OPTIMIZER_V2.keras.callbacks.ModelCheckpoint(
            str(tmp_path / "weights.h5"), save_weights_only=True
        )
    ]
    has_tensorboard = importlib.util.find_spec("tensorboard") is not None
    if has_tensorboard:
        callbacks.append(OPTIMIZER_V2.keras.callbacks.TensorBoard(str(tmp_path / "logs")))
    actual, model = OPTIMIZER_V2.fit(PROBLEM, optimizer, callbacks=callbacks)
    running.assert_same(actual, session(name))
    assert int(optimizer.iterations.numpy()) == PROBLEM.steps
    assert bool(list((tmp_path / "logs").rglob("events*"))) == has_tensorboard
    other = OPTIMIZER_V2.fed_model(PROBLEM)
    other.load_weights(str(tmp_path / "weights.h5"))
    for one, two in zip(model.get_weights(), other.get_weights()):
        np.testing.assert_array_equal(one, two)


def test_steps_per_execution(api):
    names = inspect.signature(api.keras.Model.compile).parameters
    if "steps_per_execution" not in names:  # before TensorFlow 2.4
        return
    optimizer = api.bridged("Adam")
    actual, _ = api.fit(PROBLEM, optimizer, steps_per_execution=4)
    expected = session("Adam")
    assert len(actual.steps) == PROBLEM.steps // 4
    running.assert_same(
        actual._replace(steps=actual.steps[-1:]), expected._replace(steps=expected.steps[-1:])
    )


@pytest.mark.parametrize("way", ["function", "eager"])
@pytest.mark.parametrize("start", ["a variable", "assigned"])
@pytest.mark.parametrize("name", ["AdagradDA", "AdagradDecay"])
def test_iterations_can_be_set_and_drive_the_step(name, start, way):
    """The updates of AdagradDecay and AdagradDA depend on the global step, which starts at 5."""

    def from_five(sess, optimizer, variables, number):
        if number == 0:
            sess.run(v1.get_default_graph().get_tensor_by_name("set_step:0"))

    def make(step):
        tf.identity(v1.assign(step, 5), name="set_step")
        return keras_models.make(name, step)

    config = running.config_of(way)
    expected = running.session(PROBLEM, make, True, between=from_five, config=config)
    optimizer = OPTIMIZER_V2.bridged(name)
    if start == "assigned":
        optimizer.iterations.assign(5)
    else:
        optimizer.iterations = tf.Variable(5, dtype=tf.int64, trainable=False)
    actual, _ = keras_models.loop(PROBLEM, optimizer, way)
    running.assert_same(actual, expected)
    assert int(optimizer.iterations.numpy()) == 5 + PROBLEM.steps
    with pytest.raises(RuntimeError, match="iterations"):
        optimizer.iterations = tf.Variable(0, dtype=tf.int64)


def test_slots_and_weights_can_be_looked_up():
    optimizer = OPTIMIZER_V2.bridged("Adam")
    assert list(optimizer.get_slot_names()) == []
    assert [weight.shape.rank for weight in optimizer.weights] in ([], [0])
    variables = keras_models.variables_of(PROBLEM)
    optimizer.apply_gradients(keras_models.pairs(PROBLEM.gradients[0], variables))
    assert sorted(optimizer.get_slot_names()) == ["m", "v"]
    slot = optimizer.get_slot(variables["table"], "m")
    assert slot.shape == variables["table"].shape and not slot.trainable
    weights = optimizer.variables()
    assert [w.name for w in weights] == [w.name for w in optimizer.weights]
    assert len(weights) == 1 + 2 + 2 * 2  # iterations, two beta powers, four slots
    assert any(weight is slot for weight in weights)
    for value, weight in zip(optimizer.get_weights(), weights):
        np.testing.assert_array_equal(value, weight.numpy())


@pytest.mark.parametrize("name", STATEFUL)
def test_a_new_optimizer_continues_with_the_weights_of_another(name):
    half = PROBLEM.steps // 2
    variables = keras_models.variables_of(PROBLEM)
    weights = None
    for part in (PROBLEM.gradients[:half], PROBLEM.gradients[half:]):
        optimizer = OPTIMIZER_V2.bridged(name)
        if weights is not None:
            _ = optimizer.iterations
            optimizer._create_all_weights(list(variables.values()))
            optimizer.set_weights(weights)

        @tf.function(input_signature=[running.signature(PROBLEM)])
        def train(gradients):
            optimizer.apply_gradients(keras_models.pairs(gradients, variables))  # noqa: B023

        for gradients in part:
            train(keras_models.constants(gradients))
        weights = optimizer.get_weights()
    expected = session(name)
    for key, variable in variables.items():
        np.testing.assert_array_equal(variable.numpy(), expected.steps[-1][key])


@pytest.mark.parametrize("way", ["function", "eager"])
@of_each("several", optimizer_v2=[False, True], keras3=[True])
def test_variables_trained_by_separate_calls(api, several, way):
    """Tests two optimizers with one variable each, and one optimizer called once per variable.

    Keras 3 raises an error if one optimizer is called once per variable, because the first call
    builds the optimizer for only one variable.
    """
    config = running.config_of(way)
    names = ["Adam", "Momentum"] if several else ["Adam"]
    with tf.Graph().as_default():
        variables = keras_models.variables_of(PROBLEM)
        placeholders = running._placeholders(PROBLEM)
        made = [keras_models.make(name) for name in names]
        ops = []
        for number, pair in enumerate(keras_models.pairs(placeholders, variables)):
            with tf.control_dependencies(ops):
                ops.append(made[number % len(made)].apply_gradients([pair]))
        with running.started(config=config) as sess:
            expected = []
            for gradients in PROBLEM.gradients:
                sess.run(ops, running._feed(placeholders, gradients))
                expected.append(sess.run(variables))
    optimizers = [api.bridged(name) for name in names]

    def apply(_, gradients, variables):
        for number, pair in enumerate(keras_models.pairs(gradients, variables)):
            optimizers[number % len(optimizers)].apply_gradients([pair])

    actual, _ = keras_models.loop(PROBLEM, None, way, apply=apply)
    running.assert_same(actual, running.Trace(expected, {}))
    steps = PROBLEM.steps if several else 2 * PROBLEM.steps
    assert int(optimizers[0].iterations.numpy()) == steps


@pytest.mark.parametrize("way", ["function", "eager"])
def test_constraints(way):
    """The constraint of a variable with dense gradients runs after each update."""
    start = np.array([0.3, -0.1, 0.2], "f")
    variable = tf.Variable(start, constraint=tf.nn.relu)
    optimizer = OPTIMIZER_V2.bridged("GradientDescent")

    def step():
        optimizer.apply_gradients([(tf.constant([1.0, -3.0, 1.0]), variable)])

    step = tf.function(step) if way == "function" else step
    step()
    np.testing.assert_allclose(variable.numpy(), [0.2, 0.2, 0.1], rtol=1e-6)
    for _ in range(3):
        step()
    np.testing.assert_allclose(variable.numpy(), [0.0, 1.1, 0.0], rtol=1e-5)


@pytest.mark.parametrize("way", ["function", "eager"])
def test_a_constraint_with_a_sparse_gradient_raises_keras_own_error(way):
    table = tf.Variable(tf.ones([4, 2]), constraint=tf.nn.relu)
    optimizer = OPTIMIZER_V2.bridged("Adagrad")

    def step():
        rows = tf.IndexedSlices(tf.ones([1, 2]), tf.constant([1]), tf.constant([4, 2]))
        optimizer.apply_gradients([(rows, table)])

    step = tf.function(step) if way == "function" else step
    with pytest.raises(RuntimeError, match="Cannot use a constraint function on a sparse variable"):
        step()


class Counting(v1.train.GradientDescentOptimizer):
    """Keeps a Python number and Python lists that change in each step."""

    def __init__(self, learning_rate):
        super().__init__(learning_rate)
        self.prepared = 0
        self.seen = []
        self.in_a_tuple = ([], 0)

    def _prepare(self):
        super()._prepare()
        self.prepared += 1
        self.seen.append(self.prepared)
        self.in_a_tuple[0].append(self._learning_rate_tensor)


def test_python_state_is_kept_between_steps_in_the_bridges_copy(api):
    original = Counting(0.1)
    optimizer = api.bridged(original)
    optimizer_copy = optimizer._v1.optimizer
    prepared, seen = optimizer_copy.prepared, list(optimizer_copy.seen)
    keras_models.loop(PROBLEM, optimizer, "eager")
    assert optimizer_copy.prepared == prepared + PROBLEM.steps
    assert len(optimizer_copy.seen) == len(seen) + PROBLEM.steps
    assert (original.prepared, original.seen, original.in_a_tuple) == (0, [], ([], 0))


def _train_a_function(name):
    optimizer = OPTIMIZER_V2.bridged(name)
    keras_models.loop(SHORT, optimizer)
    return optimizer


def _train_in_a_graph(name):
    made = []
    keras_models.graph(SHORT, lambda: made.append(OPTIMIZER_V2.bridged(name)) or made[0])
    return made[0]


@pytest.mark.parametrize("train", [_train_a_function, _train_in_a_graph])
@pytest.mark.parametrize("name", sorted(keras_models.V1_OPTIMIZERS))
def test_no_graph_tensor_is_left_in_the_copy(name, train):
    for key, value in vars(train(name)._v1.optimizer).items():
        for item in tf.nest.flatten(value) if isinstance(value, (dict, list, tuple)) else [value]:
            assert not (isinstance(item, tf.Tensor) and hasattr(item, "graph")), key


def _snapshot(optimizer):
    """Returns the id of each attribute's value, and a copy of the value if it is a dict or list."""
    return {
        key: (id(value), copy.copy(value) if isinstance(value, (dict, list)) else None)
        for key, value in vars(optimizer).items()
    }


@pytest.mark.parametrize("name", sorted(keras_models.V1_OPTIMIZERS))
def test_bridging_does_not_change_the_v1_optimizer(name):
    """Calls `to_keras` before the v1 optimizer creates its train_op; after it, in another graph."""
    expected = session(name)
    with tf.Graph().as_default():
        step = running._global_step("int64")
        original = keras_models.make(name, step)
        before = _snapshot(original)
        in_graph = OPTIMIZER_V2.bridged(original)
        variables = keras_models.variables_of(PROBLEM)
        placeholders = running._placeholders(PROBLEM)
        in_graph.apply_gradients(
            keras_models.pairs(placeholders, keras_models.variables_of(PROBLEM))
        )
        assert _snapshot(original) == before
        train_op = original.apply_gradients(keras_models.pairs(placeholders, variables), step)
        during = _snapshot(original)
        with tf.Graph().as_default():
            OPTIMIZER_V2.bridged(original).apply_gradients(
                keras_models.pairs(
                    running._placeholders(PROBLEM), keras_models.variables_of(PROBLEM)
                )
            )
        assert _snapshot(original) == during
        with running.started() as sess:
            for number, gradients in enumerate(PROBLEM.gradients):
                sess.run(train_op, running._feed(placeholders, gradients))
                for key, value in sess.run(variables).items():
                    np.testing.assert_array_equal(value, expected.steps[number][key])


def test_eager_bridges_of_one_optimizer_are_independent(api):
    original = AdagradDecayOptimizer(0.3, None, 0.25, 3, 0.7)
    before = _snapshot(original)
    expected = session("AdagradDecay", config=running.AS_WRITTEN)
    for _ in range(2):
        actual, _ = keras_models.loop(PROBLEM, api.bridged(original), "eager")
        running.assert_same(actual, expected)
    assert _snapshot(original) == before

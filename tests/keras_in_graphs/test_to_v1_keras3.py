"""to_v1 computes what Keras 3 computes, in TF1 graphs and elsewhere."""

import gc
import weakref

import numpy as np
import pytest
import tensorflow as tf

from legacy_opt import versions
from legacy_opt.compat import to_keras, to_v1
from tests.support import running
from tests.support.keras import keras_models
from tests.support.keras.to_v1_runs import (
    PROBLEM,
    assert_same_steps,
    in_function,
    in_session,
    run,
    small_graph,
)

pytestmark = pytest.mark.keras3

v1 = tf.compat.v1
keras = versions.keras_3()
home = keras.optimizers
CASES = {
    "Adadelta": lambda: home.Adadelta(0.5),
    "Adagrad": lambda: home.Adagrad(0.1),
    "Adam": lambda: home.Adam(0.1),
    "Adam amsgrad": lambda: home.Adam(0.1, amsgrad=True),
    "Adam schedule": lambda: home.Adam(home.schedules.ExponentialDecay(0.1, 3, 0.5)),
    "Adam use_ema": lambda: home.Adam(0.1, use_ema=True),
    "Adamax": lambda: home.Adamax(0.1),
    "AdamW": lambda: home.AdamW(0.1, weight_decay=0.02),
    "Ftrl": lambda: home.Ftrl(0.1, l1_regularization_strength=0.01),
    "Lion": lambda: home.Lion(0.01),
    "LossScaleOptimizer": lambda: home.LossScaleOptimizer(
        home.Adam(0.1), initial_scale=4.0, dynamic_growth_steps=5
    ),
    "Nadam": lambda: home.Nadam(0.1),
    "RMSprop": lambda: home.RMSprop(0.01),
    "RMSprop centered": lambda: home.RMSprop(0.01, momentum=0.5, centered=True),
    "SGD": lambda: home.SGD(0.1),
    "SGD clipnorm": lambda: home.SGD(0.1, clipnorm=0.5),
    "SGD global_clipnorm": lambda: home.SGD(0.1, 0.9, global_clipnorm=0.5),
    "SGD momentum": lambda: home.SGD(0.1, 0.9),
    "SGD nesterov": lambda: home.SGD(0.1, 0.9, nesterov=True),
}


@pytest.mark.parametrize("name", sorted(CASES))
def test_a_session_computes_what_a_function_computes(name):
    expected = in_function(PROBLEM, CASES[name]())
    assert_same_steps(in_session(PROBLEM, lambda: CASES[name]), expected)


@pytest.mark.parametrize("name", ["Adam", "Nadam", "RMSprop centered"])
def test_fed_gradients_make_no_difference(name):
    """Keras 3's step is a function of its own in the graph, whose arguments have known shapes."""
    expected = in_function(PROBLEM, CASES[name]())
    assert_same_steps(in_session(PROBLEM, lambda: CASES[name], fed=True), expected)


@pytest.mark.parametrize("name", ["Adam", "SGD momentum", "LossScaleOptimizer"])
def test_a_function(name):
    trace = running.function(PROBLEM, lambda step: _Paired(to_v1(CASES[name]())))
    assert_same_steps(trace.steps, in_function(PROBLEM, CASES[name]()))


class _Paired:
    """A v1 optimizer, shown without its slots."""

    def __init__(self, optimizer):
        self.apply_gradients = optimizer.apply_gradients

    def get_slot_names(self):
        return []


def test_adafactor():
    """Natively it cannot train a tf.Variable in a function, whose name is none for its slots."""
    matrix = np.arange(6, dtype="f").reshape(2, 3)
    variable = tf.Variable(matrix, name="w")
    expected = keras.Variable(matrix, name="w")
    native = home.Adafactor(0.1)

    @tf.function
    def train():
        native.apply_gradients([(tf.convert_to_tensor(expected) * 2, expected)])

    train_eagerly = to_v1(home.Adafactor(0.1))
    for _ in range(3):
        train()
        train_eagerly.apply_gradients([(variable * 2, variable)])
    np.testing.assert_allclose(variable.numpy(), expected.numpy(), rtol=1e-6)
    with tf.Graph().as_default():
        v = v1.get_variable("w", initializer=matrix, use_resource=True)
        train_op = to_v1(lambda: home.Adafactor(0.1)).minimize(tf.reduce_sum(v**2))
        now = run(train_op, 3)
    np.testing.assert_allclose(now["w"], expected.numpy(), rtol=1e-6)


# The v1 optimizer.


def test_names_of_variables():
    with tf.Graph().as_default():
        with v1.variable_scope("scope"), v1.name_scope("names"):
            before = set(v1.global_variables())
            optimizer = to_v1(lambda: home.SGD(0.5, 0.9), name="SGD")
            variable, train_op = small_graph(optimizer, name="train")
        assert train_op.name == "scope/names/train"
        found = {each.op.name for each in set(v1.global_variables()) - before} - {"scope/w"}
        assert found == {"SGD/iteration", "SGD/learning_rate", "scope/w/SGD/momentum"}
        assert {each.op.name for each in optimizer.variables()} == found
        assert optimizer.get_slot_names() == ["momentum"]
        assert optimizer.get_slot(variable, "momentum").op.name == "scope/w/SGD/momentum"
        assert optimizer.get_slot(variable, "other") is None
    assert to_v1(home.SGD(0.5)).get_name() == "SGD"
    assert to_v1(home.SGD(0.5, name="mine")).get_name() == "mine"


def test_two_in_one_graph():
    with tf.Graph().as_default():
        train_ops = []
        for scope in ("generator", "critic"):
            with v1.variable_scope(scope):
                train_ops.append(small_graph(to_v1("adam"))[1])
        names = [each.op.name for each in v1.global_variables()]
        assert len(set(names)) == len(names)
        assert {"generator/w/Adam/momentum", "critic/w/Adam/momentum"} < set(names)
        now = run(train_ops[0])
        assert now["Adam/iteration"] == 1 and now["Adam/iteration_1"] == 0


def test_other_variables_than_it_was_built_for():
    with tf.Graph().as_default():
        optimizer = to_v1(lambda: home.SGD(0.5, 0.9))
        small_graph(optimizer)
        other = v1.get_variable("other", initializer=[1.0], use_resource=True)
        with pytest.raises(ValueError, match="trained with 'w', and .* built once.*'other'"):
            optimizer.minimize(other, var_list=[other])


def test_gradients_that_are_none_and_later_ones():
    with tf.Graph().as_default():
        optimizer = to_v1(lambda: home.SGD(0.5, 0.9))
        unused = v1.get_variable("unused", initializer=[1.0], use_resource=False)
        variable, train_op = small_graph(optimizer)
        assert optimizer.get_slot(unused, "momentum") is None
        with pytest.raises(ValueError, match="No gradients provided for any variable.*unused"):
            optimizer.apply_gradients([(None, unused)])
        again = optimizer.apply_gradients([(tf.ones([3]), variable), (None, unused)])
        assert np.array_equal(run([train_op])["w"], [0, 0, 0])
        run(again)


def test_loss_scaling():
    with tf.Graph().as_default():
        optimizer = to_v1(lambda: home.LossScaleOptimizer(home.SGD(0.5), initial_scale=4.0))
        variable = v1.get_variable("w", initializer=[1.0, 2.0], use_resource=True)
        pairs = optimizer.compute_gradients(tf.reduce_sum(variable**2))
        train_op = optimizer.apply_gradients(pairs)
        with v1.Session() as session:
            session.run(v1.global_variables_initializer())
            assert np.array_equal(session.run(pairs[0][0]), [8.0, 16.0])  # times the scale
            scale = optimizer.keras_optimizer.dynamic_scale.value
            session.run(scale.assign(2.0))
            assert np.array_equal(session.run(pairs[0][0]), [4.0, 8.0])
            session.run(train_op)
            assert np.array_equal(session.run(variable), [0.0, 0.0])
            session.run(variable.assign([np.inf, 1.0]))
            session.run(train_op)
            assert session.run(scale) == 1.0


def test_variables_of_keras_and_their_constraints():
    variable = keras.Variable([1.0, -1.0])
    variable.constraint = keras.constraints.NonNeg()
    optimizer = to_v1(home.SGD(0.5))
    optimizer.minimize(lambda: tf.reduce_sum(variable.value * 4), var_list=[variable])
    assert np.array_equal(variable.numpy(), [0.0, 0.0])
    other = keras.Variable([1.0])
    with pytest.raises(ValueError, match="built once"):
        optimizer.apply_gradients([(tf.ones([1]), other)])


def test_an_instance_made_in_a_graph():
    with tf.Graph().as_default():
        for instance in (home.SGD(0.3), home.LossScaleOptimizer(home.SGD(0.3))):
            with pytest.raises(ValueError, match="was made in a TF1 graph.*lambda: "):
                to_v1(instance)


def test_a_rate_that_was_set_is_taken():
    instance = home.SGD(0.5)
    instance.learning_rate = 0.25
    with tf.Graph().as_default():
        assert run(small_graph(to_v1(instance))[1])["SGD/learning_rate"] == 0.25


@pytest.mark.parametrize(
    "arguments",
    [{"gradient_accumulation_steps": 2}, {"use_ema": True, "ema_overwrite_frequency": 2}],
)
def test_what_works_in_no_graph(arguments):
    optimizer = to_v1(home.SGD(0.5, **arguments))
    with tf.Graph().as_default(), pytest.raises(ValueError, match="works in no TF1 graph"):
        small_graph(optimizer)
    native, variables = home.SGD(0.5, **arguments), []
    for train in (native, optimizer):
        variables.append(tf.Variable([1.0]))
        for _ in range(4):
            train.apply_gradients([(tf.ones([1]), variables[-1])])
    assert np.array_equal(variables[0].numpy(), variables[1].numpy())


def test_what_it_refuses():
    class Forgetful(home.SGD):
        def __init__(self, strength=2.0, **kwargs):
            super().__init__(**kwargs)

    for wrong, error, message in [
        ("adamm", ValueError, "no optimizer 'adamm' in Keras, but .*AdamW"),
        (home.SGD(lambda: 0.1), ValueError, "learning_rate of SGD.*Pass a factory"),
        (Forgetful(), ValueError, "get_config of Forgetful does not tell its argument strength"),
    ]:
        with pytest.raises(error, match=message):
            to_v1(wrong)
    with tf.Graph().as_default():
        variable = v1.get_variable("ref", initializer=[1.0], use_resource=False)
        with pytest.raises(ValueError, match="'ref:0' is a ref variable.*use_resource=True"):
            to_v1("sgd").minimize(variable)


def test_graphs_are_not_kept_alive():
    optimizer = to_v1("adam")
    graph = tf.Graph()
    with graph.as_default():
        run(small_graph(optimizer)[1])
    watched = weakref.ref(graph)
    del graph
    gc.collect()
    gc.collect()
    assert watched() is None


# There and back.


@pytest.mark.parametrize("name", sorted(keras_models.V1_OPTIMIZERS))
def test_to_v1_of_to_keras_is_the_optimizer_again(name):
    problem = keras_models.problem()
    expected = running.session(problem, lambda step: keras_models.make(name, step), True)

    def make(step):
        original = keras_models.make(name, step)
        back = to_v1(to_keras(original, api="keras3"))
        assert type(back) is type(original) and back.get_name() == original.get_name()
        return back

    running.assert_same(running.session(problem, make, True), expected)


def test_hyperparameters_that_were_set_come_along():
    bridged = to_keras(v1.train.MomentumOptimizer(0.1, 0.9))
    bridged.learning_rate, bridged.momentum = 0.05, 0.8
    want = running.session(PROBLEM, lambda step: v1.train.MomentumOptimizer(0.05, 0.8), True)
    running.assert_same(running.session(PROBLEM, lambda step: to_v1(bridged), True), want)


@pytest.mark.parametrize(
    "arguments",
    [
        {"clipnorm": 0.5},
        {"learning_rate": home.schedules.ExponentialDecay(0.3, 3, 0.5)},
        {"weight_decay": 0.1},
    ],
)
def test_a_bridged_optimizer_that_does_more_is_wrapped(arguments):
    make = lambda: to_keras(v1.train.AdamOptimizer(0.1), **arguments)  # noqa: E731
    assert not isinstance(to_v1(make()), v1.train.AdamOptimizer)
    assert_same_steps(in_session(PROBLEM, lambda: make), in_function(PROBLEM, make()))


@pytest.mark.parametrize("name", ["Adam schedule", "LossScaleOptimizer", "RMSprop centered"])
def test_to_keras_of_to_v1_has_the_same_configuration(name):
    instance = CASES[name]()
    back = to_keras(to_v1(instance))
    assert type(back) is type(instance) and back is not instance
    assert back.get_config() == instance.get_config()
    with pytest.raises(ValueError, match="was made by to_v1"):
        to_keras(to_v1(instance), api="optimizer_v2")


def excluding(optimizer, **which):
    optimizer.exclude_from_weight_decay(**which)
    return optimizer


@pytest.mark.parametrize(
    "make",
    [
        lambda: excluding(home.AdamW(0.1, weight_decay=0.5), var_names=["bias"]),
        lambda: home.LossScaleOptimizer(
            excluding(home.AdamW(0.1, weight_decay=0.5), var_names=["bias"])
        ),
        lambda: excluding(
            to_keras(v1.train.GradientDescentOptimizer(0.1), weight_decay=0.5), var_names=["bias"]
        ),
    ],
    ids=["own", "inner", "bridged"],
)
def test_what_is_excluded_from_weight_decay_by_name_stays_so(make):
    keras_optimizer = make()
    with tf.Graph().as_default():
        both = [
            v1.get_variable(name, initializer=np.ones(1, "f"), use_resource=True)
            for name in ("kernel", "bias")
        ]
        optimizer = to_v1(keras_optimizer)
        now = run(optimizer.apply_gradients([(tf.zeros([1]), each) for each in both]))
    np.testing.assert_allclose([now["kernel"], now["bias"]], [[0.95], [1]], rtol=1e-6)
    bias = tf.Variable([1.0], name="bias")
    to_keras(optimizer).apply_gradients([(tf.zeros([1]), bias)])
    assert np.array_equal(bias.numpy(), [1])


def test_variables_excluded_from_weight_decay_are_of_another_graph():
    variable = tf.Variable([1.0])
    optimizer = excluding(home.AdamW(0.1), var_list=[variable])
    for given in (optimizer, home.LossScaleOptimizer(optimizer)):
        with pytest.raises(ValueError, match=r"exclude_from_weight_decay\(var_list.*factory"):
            to_v1(given)

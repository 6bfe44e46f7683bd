"""to_v1 computes what Keras 2 computes, and what it gives is a v1 optimizer like any other."""

import gc
import weakref

import numpy as np
import pytest
import tensorflow as tf

from legacy_opt import versions
from legacy_opt.compat import to_keras, to_v1
from tests.support import running
from tests.support.keras.to_v1_runs import (
    PROBLEM,
    InItsGraph,
    assert_same_steps,
    in_function,
    in_session,
    keras_2_cases,
    run,
    small_graph,
)

v1 = tf.compat.v1
optimizers = versions.keras_2().optimizers
home = getattr(optimizers, "legacy", optimizers)
CASES = keras_2_cases(optimizers)


# The same numbers.


@pytest.mark.parametrize("name", sorted(CASES))
def test_a_session_computes_what_a_function_computes(name):
    expected = in_function(PROBLEM, CASES[name]())
    assert_same_steps(in_session(PROBLEM, lambda: CASES[name]()), expected)


@pytest.mark.parametrize("name", ["Adam", "Ftrl", "Nadam", "RMSprop", "SGD momentum"])
def test_fed_gradients_give_what_keras_gives_in_that_graph(name):
    """Natively a graph and a function differ here, in the sparse (g * g) * c of Adam and others.

    TensorFlow multiplies small tensors first if it knows their shapes. It trusts the shapes that a
    function's arguments have, but not that of a tensor which a Session is fed.
    """
    fed = in_session(PROBLEM, CASES[name], fed=True)
    assert_same_steps(fed, in_session(PROBLEM, lambda: InItsGraph(CASES[name]()), fed=True))
    if name in ("Adam", "RMSprop", "Nadam"):
        in_a_function = in_function(PROBLEM, CASES[name]())
        gaps = [
            np.max(np.abs(one[key] - other[key]))
            for one, other in zip(fed, in_a_function)
            for key in one
        ]
        assert 0 < max(gaps) < 1e-6


@pytest.mark.parametrize("name", ["Adagrad", "SGD momentum"])
@pytest.mark.parametrize("way", ["eager", "function"])
def test_it_trains_where_tensorflow_executes_eagerly(name, way):
    made = []

    def make(step):
        made.append(to_v1(CASES[name]()))
        return made[0]

    trace = getattr(running, way)(PROBLEM, make)
    expected = in_function(PROBLEM, CASES[name]())
    assert_same_steps(trace.steps, expected)
    assert set(trace.slots) == {
        (variable, slot) for variable in PROBLEM.values for slot in made[0].get_slot_names()
    }


def test_a_class_of_the_users_own_that_relies_on_the_order_of_its_lines():
    class Careless(versions.optimizer_v2()):
        def __init__(self, rate=0.1, name="Careless", **kwargs):
            super().__init__(name, **kwargs)
            self._set_hyper("rate", rate)

        def _create_slots(self, var_list):
            for variable in var_list:
                self.add_slot(variable, "sum")

        def _resource_apply_dense(self, grad, var, apply_state=None):
            total = self.get_slot(var, "sum")
            total.assign_add(grad)
            return var.assign_sub(self._get_hyper("rate") * total)

        def get_config(self):
            return dict(super().get_config(), rate=self._serialize_hyperparameter("rate"))

    with tf.Graph().as_default():
        variable = v1.get_variable("w", initializer=[4.0], use_resource=True)
        optimizer = to_v1(Careless(1.0))
        train_op = optimizer.apply_gradients([(tf.constant([1.0]), variable)])
        with v1.Session() as session:
            session.run(v1.global_variables_initializer())
            for expected in (3.0, 1.0, -2.0):  # 4 - 1 - 2 - 3
                session.run(train_op)
                assert session.run(variable) == [expected]
            assert session.run(optimizer.get_slot(variable, "sum")) == [3.0]


# The v1 optimizer.


def test_minimize_takes_what_v1_takes():
    with tf.Graph().as_default():
        optimizer = to_v1(home.SGD(0.5))
        first = v1.get_variable("first", initializer=[1.0], use_resource=True)
        other = v1.get_variable("other", initializer=[1.0], use_resource=True)
        step = v1.train.get_or_create_global_step()
        train_op = optimizer.minimize(
            first * other,
            step,
            [first],
            v1.train.Optimizer.GATE_GRAPH,
            tf.AggregationMethod.ADD_N,
            True,
            "train",
            tf.constant([3.0]),
        )
        assert isinstance(optimizer, v1.train.Optimizer)
        assert train_op.name == "train" and train_op in v1.get_collection(v1.GraphKeys.TRAIN_OP)
        now = run(train_op, 1)
        assert now["first"] == [-0.5] and now["other"] == [1.0]  # 1 - 0.5 * 3
        assert now["global_step"] == 1 and now["SGD/iter"] == 1


def test_a_ref_global_step_advances_after_the_update():
    with tf.Graph().as_default():
        step = v1.Variable(5, trainable=False, use_resource=False, name="step")
        variable, train_op = small_graph(to_v1(home.SGD(0.5)), global_step=step)
        now = run(train_op, 2)
        assert now["step"] == 7 and np.array_equal(now["w"], [0, 0, 0])


def test_names_of_variables():
    with tf.Graph().as_default():
        with v1.variable_scope("scope"), v1.name_scope("names"):
            optimizer = to_v1(home.SGD(0.5, 0.9), name="Mine")
            variable, train_op = small_graph(optimizer)
        assert optimizer.get_name() == "Mine"
        names = {each.op.name for each in v1.global_variables()} - {"scope/w"}
        assert names == {
            "Mine/iter",
            "Mine/learning_rate",
            "Mine/momentum",
            "Mine/decay",
            "scope/w/Mine/momentum",
        }
        assert {each.op.name for each in optimizer.variables()} == names
        assert optimizer.get_slot_names() == ["momentum"]
        assert optimizer.get_slot(variable, "momentum").op.name == "scope/w/Mine/momentum"
        assert optimizer.get_slot(variable, "other") is None
        assert optimizer.get_slot(optimizer.variables()[0], "momentum") is None
        assert len(v1.trainable_variables()) == 1


def test_two_in_one_graph():
    with tf.Graph().as_default():
        train_ops = []
        for scope in ("generator", "critic"):
            with v1.variable_scope(scope):
                optimizer = to_v1(home.Adam(0.1))
                train_ops.append(small_graph(optimizer)[1])
        names = [each.op.name for each in v1.global_variables()]
        assert len(set(names)) == len(names)
        assert {"generator/w/Adam/m", "critic/w/Adam/m", "Adam/iter", "Adam/iter_1"} <= set(names)
        assert [op.name for op in train_ops] == ["generator/Adam", "critic/Adam"]
        now = run(train_ops[0])
        assert now["Adam/iter"] == 1 and now["Adam/iter_1"] == 0
        assert np.array_equal(now["critic/w"], [1, 2, 3])


def test_one_optimizer_trains_two_lists_of_variables():
    with tf.Graph().as_default():
        optimizer = to_v1(home.SGD(0.5, 0.9))
        train_ops = []
        for name in ("one", "two"):
            with v1.variable_scope(name):
                train_ops.append(small_graph(optimizer)[1])
        assert len([each for each in v1.global_variables() if each.op.name == "SGD/iter"]) == 1
        now = run(train_ops)
        assert now["SGD/iter"] == 2 and np.any(now["two/w/SGD/momentum"])


def test_gradients_that_are_none():
    with tf.Graph().as_default():
        optimizer = to_v1(home.SGD(0.5, 0.9))
        unused = v1.get_variable("unused", initializer=[1.0], use_resource=False)
        variable, train_op = small_graph(optimizer)
        assert optimizer.get_slot(unused, "momentum") is None
        with pytest.raises(ValueError, match="No gradients provided for any variable.*unused"):
            optimizer.apply_gradients([(None, unused)])
        with pytest.raises(ValueError, match="No variables provided"):
            optimizer.apply_gradients([])
        run(train_op)


def test_inside_sync_replicas():
    with tf.Graph().as_default():
        step = v1.train.get_or_create_global_step()
        optimizer = to_v1(home.SGD(0.25, 0.5))
        wrapped = v1.train.SyncReplicasOptimizer(optimizer, 1, 1)
        variable, train_op = small_graph(wrapped, global_step=step)
        hook = wrapped.make_session_run_hook(is_chief=True, num_tokens=0)
        stop = v1.train.StopAtStepHook(last_step=2)
        with v1.train.MonitoredTrainingSession(
            hooks=[hook, stop], log_step_count_steps=None, stop_grace_period_secs=1
        ) as session:
            while not session.should_stop():
                session.run(train_op)
                last = session._tf_sess().run(variable)
        # m: -0.5, then -0.5 * 0.5 - 0.25 * 2 * 0.5, times [1, 2, 3]
        assert np.array_equal(last, np.float32([1, 2, 3]) * 0)


def test_slots_are_where_their_variables_are():
    cluster = {"ps": ["localhost:1", "localhost:2"], "worker": ["localhost:3"]}
    with tf.Graph().as_default():
        with v1.device(v1.train.replica_device_setter(cluster=cluster)):
            variables = [
                v1.get_variable(name, initializer=[1.0], use_resource=True) for name in "abc"
            ]
            optimizer = to_v1(home.Adam(0.1))
            optimizer.minimize(tf.add_n(variables))
        assert len({each.device for each in variables}) == 2
        for variable in variables:
            for name in optimizer.get_slot_names():
                assert optimizer.get_slot(variable, name).device == variable.device
        assert all("/job:ps" in each.device for each in optimizer.variables())


def test_graphs_are_not_kept_alive():
    optimizer = to_v1(lambda: home.Adam(0.1))
    graph = tf.Graph()
    with graph.as_default():
        run(small_graph(optimizer)[1])
    watched = weakref.ref(graph)
    del graph
    gc.enable()
    try:
        gc.collect()
        gc.collect()
    finally:
        gc.disable()
    assert watched() is None


# What it is made from.


def test_settings_are_taken_as_they_are_now_and_not_the_state():
    keras = home.SGD(0.5, momentum=0.5)
    variable = tf.compat.v2.Variable([1.0])
    keras.apply_gradients([(tf.ones([1]), variable)])
    keras.learning_rate = 0.25
    with tf.Graph().as_default():  # where no eager variable can be read
        optimizer = to_v1(keras)
        keras_of_graph = optimizer.keras_optimizer
        now = run(small_graph(optimizer)[1])
        assert now["SGD/learning_rate"] == 0.25 and now["SGD/momentum"] == 0.5
        assert np.array_equal(now["w"], [0.5, 1, 1.5])  # 1 - 0.25 * 2: no momentum yet
    assert optimizer.keras_optimizer is not keras_of_graph and keras_of_graph is not keras


def test_a_factory_is_called_once_for_each_graph():
    calls = []

    def factory():
        calls.append(1)
        return home.SGD(0.5)

    optimizer = to_v1(factory, name="Made")
    assert not calls
    for number in (1, 2):
        with tf.Graph().as_default():
            first = small_graph(optimizer)[1]
            assert optimizer.keras_optimizer is optimizer.keras_optimizer
            assert len(calls) == number
            run([first, optimizer.minimize(tf.reduce_sum(v1.trainable_variables()[0]))])
            assert len(calls) == number


def test_a_class():
    with tf.Graph().as_default():
        optimizer = to_v1(home.Adam)
        assert optimizer.get_name() == "Adam"
        run(small_graph(optimizer)[1])


def test_what_it_refuses():
    rate = tf.compat.v2.Variable(0.1)

    class Forgetful(home.SGD):
        def __init__(self, strength=2.0, **kwargs):
            super().__init__(**kwargs)

    for wrong, error, message in [
        (v1.train.AdamOptimizer(0.1), TypeError, "is of v1 already"),
        (v1.train.AdamOptimizer, TypeError, "is of v1 already"),
        (3, TypeError, "got 3"),
        (tf.keras.Model, TypeError, "takes a Keras optimizer"),
        ("adamm", ValueError, "no optimizer 'adamm' in Keras, but .*Adam"),
        (home.SGD(lambda: rate), ValueError, "learning_rate of SGD.*Pass a factory"),
        (Forgetful(), ValueError, "get_config of Forgetful does not tell its argument strength"),
    ]:
        with pytest.raises(error, match=message):
            to_v1(wrong)
    with tf.Graph().as_default(), pytest.raises(TypeError, match="got 3"):
        small_graph(to_v1(lambda: 3))


def ten_times(pairs):
    return [(grad * 10, variable) for grad, variable in pairs]


def test_functions_that_no_configuration_tells_need_a_factory():
    if not hasattr(home.SGD(0.1), "gradient_aggregator"):  # to TensorFlow 2.3
        with pytest.raises(TypeError, match="gradient_aggregator"):
            home.SGD(0.1, gradient_aggregator=ten_times)
        return
    bridged = to_keras(
        v1.train.GradientDescentOptimizer(0.1), api="optimizer_v2", gradient_aggregator=ten_times
    )
    for optimizer in (
        home.SGD(0.1, gradient_aggregator=ten_times),
        home.SGD(0.1, gradient_transformers=[ten_times]),
        bridged,
    ):
        with pytest.raises(ValueError, match="has gradient_.*Pass a factory"):
            to_v1(optimizer)
    variable = tf.compat.v2.Variable([1.0])
    optimizer = to_v1(lambda: home.SGD(0.1, gradient_aggregator=ten_times))
    optimizer.apply_gradients([(tf.ones([1]), variable)])
    assert np.array_equal(variable.numpy(), [0])


def test_the_other_optimizers_of_keras_2():
    if issubclass(optimizers.Adam, versions.optimizer_v2()):  # to TensorFlow 2.10
        assert isinstance(to_v1(optimizers.Adam(0.1)), v1.train.Optimizer)
        return
    for wrong in optimizers.Adam(0.1), optimizers.Adam:
        with pytest.raises(TypeError, match=r"Pass tf.keras.optimizers.legacy.Adam"):
            to_v1(wrong)


def test_ref_variables_are_refused_by_name():
    with tf.Graph().as_default():
        optimizer = to_v1(home.SGD(0.5))
        variable = v1.get_variable("ref", initializer=[1.0], use_resource=False)
        with pytest.raises(ValueError, match="'ref:0' is a ref variable.*use_resource=True"):
            optimizer.minimize(variable)


def test_strategies_are_refused():
    variable = tf.compat.v2.Variable([1.0])
    optimizer = to_v1(home.SGD(0.5))
    strategy = tf.distribute.OneDeviceStrategy("/cpu:0")
    with strategy.scope(), pytest.raises(ValueError, match="OneDeviceStrategy"):
        optimizer.apply_gradients([(tf.ones([1]), variable)])


def test_keras_loss_scaling():
    experimental = getattr(versions.keras_2().mixed_precision, "experimental", None)
    scaling = getattr(versions.keras_2().mixed_precision, "LossScaleOptimizer", None)
    cls = scaling or experimental.LossScaleOptimizer
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

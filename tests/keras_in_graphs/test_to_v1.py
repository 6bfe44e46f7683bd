"""Tests that to_v1 returns a v1 optimizer that computes the same values as Keras."""

import gc
import time
import weakref

import numpy as np
import pytest
import tensorflow as tf

from legacy_opt import versions
from legacy_opt.compat import to_v1
from tests.support import running
from tests.support.keras.keras_apis import KERAS_3, OPTIMIZER_V2

from .to_v1_runs import (
    CASES,
    PROBLEM,
    InItsGraph,
    assert_same_steps,
    each_case,
    functions_know_shapes,
    in_function,
    in_session,
    passed,
    run,
    small_graph,
)

v1 = tf.compat.v1
KERAS_2 = CASES.get("optimizer_v2", {})
# The names of the step counter, and of Adam's first slot, in Keras 2 and 3.
COUNT = {"optimizer_v2": "iter", "keras3": "iteration"}
MEAN = {"optimizer_v2": "m", "keras3": "momentum"}


def sgd(api, *arguments):
    """Returns the v1 optimizer that `to_v1` makes from Keras' SGD inside the default graph."""
    return to_v1(passed(api, lambda: api.optimizers.SGD(*arguments)), name="SGD")


# Equal results.


@each_case()
def test_a_session_computes_what_a_function_computes(api, name):
    make = CASES[api.name][name]
    expected = in_function(PROBLEM, make())
    fed = api is OPTIMIZER_V2 and not functions_know_shapes()
    assert_same_steps(in_session(PROBLEM, lambda: passed(api, make), fed), expected)


@pytest.mark.keras2
@pytest.mark.parametrize("name", ["Adam", "Ftrl", "Nadam", "RMSprop", "SGD momentum"])
def test_fed_gradients_give_what_keras_2_gives_in_that_graph(name):
    """Keras' results in a graph differ between fed sparse gradients and those of a Dataset.

    Adam and other optimizers compute (g * g) * c. TensorFlow reorders this product if the shapes
    are known. They are unknown for fed placeholders.
    """
    fed = in_session(PROBLEM, KERAS_2[name], fed=True)
    assert_same_steps(fed, in_session(PROBLEM, lambda: InItsGraph(KERAS_2[name]()), fed=True))
    if name in ("Adam", "RMSprop", "Nadam"):
        from_dataset = in_session(PROBLEM, KERAS_2[name])
        gaps = [
            np.max(np.abs(one[key] - other[key]))
            for one, other in zip(fed, from_dataset)
            for key in one
        ]
        assert 0 < max(gaps) < 1e-6


@pytest.mark.keras3
@pytest.mark.parametrize("name", ["Adam", "Nadam", "RMSprop centered"])
def test_fed_gradients_make_no_difference_in_keras_3(name):
    """In Keras 3, a tf.function in the graph computes the update, so the shapes are known."""
    make = CASES["keras3"][name]
    expected = in_function(PROBLEM, make())
    assert_same_steps(in_session(PROBLEM, lambda: make, fed=True), expected)


def assert_trains_as_keras(api, name, way):
    make, made = CASES[api.name][name], []

    def in_v1(step):
        made.append(to_v1(make()))
        return made[0]

    trace = getattr(running, way)(PROBLEM, in_v1)
    assert_same_steps(trace.steps, in_function(PROBLEM, make()))
    slots = made[0].get_slot_names()
    assert set(trace.slots) == {(variable, slot) for variable in PROBLEM.values for slot in slots}


@each_case("Adagrad", "Adam", "LossScaleOptimizer", "SGD momentum")
def test_it_trains_in_a_function(api, name):
    assert_trains_as_keras(api, name, "function")


@pytest.mark.keras2
@pytest.mark.parametrize("name", ["Adagrad", "SGD momentum"])
def test_an_optimizer_of_keras_2_trains_eagerly(name):
    assert_trains_as_keras(OPTIMIZER_V2, name, "eager")


def test_a_user_defined_class_that_relies_on_statement_order():
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
        with running.started() as session:
            for expected in (3.0, 1.0, -2.0):  # 4 - 1 - 2 - 3
                session.run(train_op)
                assert session.run(variable) == [expected]
            assert session.run(optimizer.get_slot(variable, "sum")) == [3.0]


# Methods and variables of the v1 optimizer.


def test_minimize_takes_what_v1_takes(api):
    with tf.Graph().as_default():
        optimizer = sgd(api, 0.5)
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
        assert now["global_step"] == 1 and now["SGD/" + COUNT[api.name]] == 1


def test_a_ref_global_step_advances_after_the_update(api):
    with tf.Graph().as_default():
        step = v1.Variable(5, trainable=False, use_resource=False, name="step")
        variable, train_op = small_graph(sgd(api, 0.5), global_step=step)
        now = run(train_op, 2)
        assert now["step"] == 7 and np.array_equal(now["w"], [0, 0, 0])


def test_names_of_variables(api):
    with tf.Graph().as_default():
        with v1.variable_scope("scope"), v1.name_scope("names"):
            optimizer = to_v1(passed(api, lambda: api.optimizers.SGD(0.5, 0.9)), name="Mine")
            variable, train_op = small_graph(optimizer, name="train")
        assert train_op.name == "scope/names/train"
        assert optimizer.get_name() == "Mine"
        settings = {
            "optimizer_v2": {"iter", "learning_rate", "momentum", "decay"},
            "keras3": {"iteration", "learning_rate"},
        }
        names = {each.op.name for each in v1.global_variables()} - {"scope/w"}
        assert names == {"Mine/" + each for each in settings[api.name]} | {"scope/w/Mine/momentum"}
        assert {each.op.name for each in optimizer.variables()} == names
        assert optimizer.get_slot_names() == ["momentum"]
        assert optimizer.get_slot(variable, "momentum").op.name == "scope/w/Mine/momentum"
        assert optimizer.get_slot(variable, "other") is None
        assert optimizer.get_slot(optimizer.variables()[0], "momentum") is None
        assert len(v1.trainable_variables()) == 1
    assert to_v1(api.optimizers.SGD(0.5)).get_name() == "SGD"
    assert to_v1(api.optimizers.SGD(0.5, name="mine")).get_name() == "mine"


def test_two_in_one_graph(api):
    with tf.Graph().as_default():
        train_ops = []
        for scope in ("generator", "critic"):
            with v1.variable_scope(scope):
                optimizer = to_v1(api.optimizers.Adam(0.1) if api is OPTIMIZER_V2 else "adam")
                train_ops.append(small_graph(optimizer)[1])
        names = [each.op.name for each in v1.global_variables()]
        assert len(set(names)) == len(names)
        slots = {scope + "/w/Adam/" + MEAN[api.name] for scope in ("generator", "critic")}
        counts = ["Adam/" + COUNT[api.name] + end for end in ("", "_1")]
        assert slots | set(counts) <= set(names)
        assert [op.name for op in train_ops] == ["generator/Adam", "critic/Adam"]
        now = run(train_ops[0])
        assert [now[name] for name in counts] == [1, 0]
        assert np.array_equal(now["critic/w"], [1, 2, 3])


def test_an_optimizer_of_keras_2_trains_two_lists_of_variables():
    with tf.Graph().as_default():
        optimizer = sgd(OPTIMIZER_V2, 0.5, 0.9)
        train_ops = []
        for name in ("one", "two"):
            with v1.variable_scope(name):
                train_ops.append(small_graph(optimizer)[1])
        assert len([each for each in v1.global_variables() if each.op.name == "SGD/iter"]) == 1
        now = run(train_ops)
        assert now["SGD/iter"] == 2 and np.any(now["two/w/SGD/momentum"])


def test_gradients_that_are_none(api):
    with tf.Graph().as_default():
        optimizer = sgd(api, 0.5, 0.9)
        unused = v1.get_variable("unused", initializer=[1.0], use_resource=False)
        variable, train_op = small_graph(optimizer)
        assert optimizer.get_slot(unused, "momentum") is None
        with pytest.raises(ValueError, match="No gradients provided for any variable.*unused"):
            optimizer.apply_gradients([(None, unused)])
        with pytest.raises(ValueError, match="No variables provided"):
            optimizer.apply_gradients([])
        again = optimizer.apply_gradients([(tf.ones([3]), variable), (None, unused)])
        assert np.array_equal(run(train_op)["w"], [0, 0, 0])
        run(again)


def test_inside_sync_replicas(api):
    with tf.Graph().as_default():
        step = v1.train.get_or_create_global_step()
        wrapped = v1.train.SyncReplicasOptimizer(sgd(api, 0.25, 0.5), 1, 1)
        variable, train_op = small_graph(wrapped, global_step=step)
        hook = wrapped.make_session_run_hook(is_chief=True, num_tokens=0)
        stop = v1.train.StopAtStepHook(last_step=2)
        with v1.train.MonitoredTrainingSession(
            hooks=[hook, stop], log_step_count_steps=None, stop_grace_period_secs=1
        ) as session:
            while not session.should_stop():
                session.run(train_op)
                last = session._tf_sess().run(variable)
        # The first update is -0.25 * 2 * [1, 2, 3] = -0.5 * [1, 2, 3]. The second update is equal:
        # the momentum contributes 0.5 * -0.5 * [1, 2, 3], the gradient -0.25 * 2 * [0.5, 1, 1.5].
        assert np.array_equal(last, np.float32([1, 2, 3]) * 0)


def test_slots_are_on_the_devices_of_their_variables(api):
    cluster = {"ps": ["localhost:1", "localhost:2"], "worker": ["localhost:3"]}
    with tf.Graph().as_default():
        with v1.device(v1.train.replica_device_setter(cluster=cluster)):
            variables = [
                v1.get_variable(name, initializer=[1.0], use_resource=True) for name in "abc"
            ]
            optimizer = to_v1(passed(api, lambda: api.optimizers.Adam(0.1)))
            optimizer.minimize(tf.add_n(variables))
        assert len({each.device for each in variables}) == 2
        for variable in variables:
            for name in optimizer.get_slot_names():
                assert optimizer.get_slot(variable, name).device == variable.device
        assert all("/job:ps" in each.device for each in optimizer.variables())


def test_graphs_are_not_kept_alive(api):
    optimizer = to_v1("adam" if api is KERAS_3 else lambda: api.optimizers.Adam(0.1))
    graph = tf.Graph()
    with graph.as_default():
        run(small_graph(optimizer)[1])
    watched = weakref.ref(graph)
    del graph
    # `gc.collect` does nothing while another thread collects, so once is not enough.
    for _ in range(50):
        gc.collect()
        if watched() is None:
            return
        time.sleep(0.1)
    referrers = [type(each) for each in gc.get_referrers(watched())]
    raise AssertionError(f"the graph is still alive: {referrers} refer to it")

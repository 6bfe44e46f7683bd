"""Tests that a MultiOptimizer computes the same as separate optimizers."""

import collections
import re

import numpy as np
import pytest
import tensorflow as tf

import legacy_opt
from legacy_opt import GlobalStepWarning, MultiOptimizer
from legacy_opt.compat import estimator
from tests.support import estimators, problems, running
from tests.support.cases import CASES, one_of_each_class
from tests.support.fed_training import FedTraining
from tests.wrappers.wide_and_deep import (  # noqa: F401
    FOUR,
    for_wide_and_deep,
    in_a_session,
    no_global_step_warnings,
    wide_and_deep,
)

v1 = tf.compat.v1


def sgd():
    return v1.train.GradientDescentOptimizer(0.1)


def scoped(problem, scopes):
    """Returns a problem with a copy of the given problem's variables in each scope."""

    def in_all(values):
        return {f"{each}/{name}": value for each in scopes for name, value in values.items()}

    return problem._replace(
        values=in_all(problem.values),
        gradients=[in_all(step) for step in problem.gradients],
        sparse=tuple(in_all(dict.fromkeys(problem.sparse))),
    )


class OneAfterAnother(v1.train.Optimizer):
    """The reference: applies several optimizers, then increments the global step once."""

    def __init__(self, optimizers):
        super().__init__(False, "OneAfterAnother")
        self._optimizers = optimizers

    @tf.autograph.experimental.do_not_convert
    def apply_gradients(self, grads_and_vars, global_step=None, name=None):
        train_ops = []
        for each, optimizer in self._optimizers.items():
            optimizer.global_step_is_advanced = True
            own = [pair for pair in grads_and_vars if pair[1].name.startswith(each + "/")]
            train_ops.append(optimizer.apply_gradients(own))
        with tf.control_dependencies([] if tf.executing_eagerly() else train_ops):
            return v1.assign_add(global_step, tf.constant(1, global_step.dtype.base_dtype)).op

    def variables(self):
        return [each for inner in self._optimizers.values() for each in inner.variables()]

    def get_slot_names(self):
        return sorted(
            {name for each in self._optimizers.values() for name in each.get_slot_names()}
        )

    def get_slot(self, var, name):
        slots = [each.get_slot(var, name) for each in self._optimizers.values()]
        return next((slot for slot in slots if slot is not None), None)


def both_ways(makers):
    """Returns two functions: `separate` makes a OneAfterAnother, `together` a MultiOptimizer."""

    def separate(step):
        return OneAfterAnother({name: make(step) for name, make in makers.items()})

    def together(step):
        return MultiOptimizer([(make(step), name + "/") for name, make in makers.items()])

    return separate, together


# --- Bit-equal to each optimizer alone.


ALL = dict(FOUR, **{re.sub(r"\W", "_", name): CASES[name].make for name in one_of_each_class()})
FIFTHS = [
    pytest.param(fifth, use_resource, marks=() if fifth % 2 == use_resource else pytest.mark.full)
    for fifth in range(5)
    for use_resource in (False, True)
]


@pytest.mark.parametrize("fifth, use_resource", FIFTHS)
def test_every_class_in_a_graph_and_its_checkpoints(fifth, use_resource, tmp_path):
    """A MultiOptimizer and a OneAfterAnother compute the same values of all variables.

    The names of the variables are also equal, so each training can restore the other training's
    checkpoint.
    """
    makers = {name: ALL[name] for name in list(ALL)[fifth::5]}
    problem = problems.everything(only=("matrix", "table"), steps=6)
    problem = problem._replace(global_step="int32" if use_resource else "int64")
    problem = scoped(problem, list(makers))
    trainings = [FedTraining(make, problem, use_resource) for make in both_ways(makers)]
    first = [training.train(0, 3) for training in trainings]
    saved = [each.save(str(tmp_path / str(number))) for number, each in enumerate(trainings)]
    later = [training.train(3, 6) for training in trainings]
    for path, training in zip(saved, trainings[::-1]):
        training.restore(path)
    restored = [training.train(3, 6) for training in trainings]
    separate, multi = trainings
    assert set(separate.variables) == set(multi.variables)
    assert sorted(separate.of_optimizer) == sorted(multi.of_optimizer)
    for actual, expected in [
        first[::-1],
        later[::-1],
        (restored[0], later[0]),
        (restored[1], later[0]),
    ]:
        running.assert_same(running.Trace(actual, {}), running.Trace(expected, {}))
    assert later[1][-1]["global_step"] == 6


OUTSIDE_OF_SESSIONS = {name: way for name, way in running.WAYS.items() if "session" not in name}


@pytest.mark.parametrize("way", OUTSIDE_OF_SESSIONS)
def test_every_way_of_running(way):
    # Functions train with fewer optimizers than eager code, because functions are slow to build.
    # Also, in a wrap_function of some TensorFlow versions, "Adam" and "Lazy" would share one
    # beta1_power.
    names = ("Decay", "Adam") if "function" in way else FOUR
    problem = scoped(problems.everything(only=("matrix", "table"), steps=4), list(names))
    separate, together = both_ways({name: FOUR[name] for name in names})
    run = OUTSIDE_OF_SESSIONS[way]
    running.assert_same(run(problem, together), run(problem, separate), way)


def test_an_optimizer_with_several_routes_is_applied_once():
    problem = problems.everything(only=("matrix", "vector"), steps=3)

    def make(step):
        adam = v1.train.AdamOptimizer(0.1)
        return MultiOptimizer([(adam, "matrix"), (adam, "vec"), (adam, "vector")])

    actual = running.eager(problem, make)
    running.assert_same(actual, running.eager(problem, lambda _: v1.train.AdamOptimizer(0.1)))


def test_nested():
    def make(step):
        four = {name: make(step) for name, make in FOUR.items()}
        inside = MultiOptimizer([(four["Decay"], "Decay"), (four["Adam"], "Adam")])
        return MultiOptimizer([(four["Ftrl"], "Ftrl"), (inside, "Decay|Adam")], four["Lazy"])

    problem = scoped(problems.everything(only=("matrix", "table"), steps=4), list(FOUR))
    actual = running.eager(problem, make)
    running.assert_same(actual, running.eager(problem, both_ways(FOUR)[0]))


# --- One training step.


def operations(build, **options):
    """Computes gradients; returns the variables' names, and the number of operations by type."""
    with tf.Graph().as_default() as graph:
        loss = wide_and_deep()
        before = len(graph.get_operations())
        pairs = build().compute_gradients(loss, **options)
        kinds = [operation.type for operation in graph.get_operations()[before:]]
    return [variable.op.name for _, variable in pairs], collections.Counter(kinds)


def test_compute_gradients_has_one_backward_pass_and_passes_options_on():
    optimizers = v1.train.Optimizer
    plain = {}
    for gate in optimizers.GATE_OP, optimizers.GATE_GRAPH:
        ours = operations(lambda: for_wide_and_deep(None), gate_gradients=gate)
        plain[gate] = operations(sgd, gate_gradients=gate)
        assert ours == plain[gate]
    assert plain[optimizers.GATE_GRAPH] != plain[optimizers.GATE_OP]
    with pytest.raises(ValueError, match="gate_gradients must be"):
        operations(lambda: for_wide_and_deep(None), gate_gradients=17)


class TenTimes(v1.train.GradientDescentOptimizer):
    """Multiplies gradients by 10 in an overridden compute_gradients."""

    def compute_gradients(self, *args, **kwargs):
        pairs = super().compute_gradients(*args, **kwargs)
        return [(10.0 * gradient, variable) for gradient, variable in pairs]


def ten_times():
    """Returns an optimizer whose compute_gradients is replaced in the object."""
    optimizer = sgd()
    compute = optimizer.compute_gradients
    optimizer.compute_gradients = lambda *args, **kwargs: [
        (10.0 * gradient, variable) for gradient, variable in compute(*args, **kwargs)
    ]
    return optimizer


@pytest.mark.parametrize("make", [lambda: TenTimes(0.1), ten_times], ids=["class", "object"])
def test_an_optimizer_that_overrides_compute_gradients(make):
    with tf.Graph().as_default():
        loss = wide_and_deep()
        plain = sgd().compute_gradients(loss)
        multi = MultiOptimizer([(sgd(), "wide"), (make(), "deep/k")], default=sgd())
        pairs = multi.compute_gradients(loss)
        assert [each for _, each in pairs] == [each for _, each in plain]
        with running.started() as session:
            values, expected = session.run(
                [[gradient for gradient, _ in pairs], [gradient for gradient, _ in plain]]
            )
        np.testing.assert_array_equal(values[0].values, expected[0].values)
        np.testing.assert_array_equal(values[1].values, expected[1].values)
        np.testing.assert_allclose(values[2], 10 * expected[2], rtol=1e-6)
        kernel = pairs[2][1]
        assert [each for _, each in multi.compute_gradients(loss, kernel)] == [kernel]
    with pytest.raises(ValueError, match="needs var_list"):
        multi.compute_gradients(lambda: 0.0)


def test_the_train_op_has_the_given_name():
    with tf.Graph().as_default() as graph:
        step = v1.train.get_or_create_global_step()
        train_op = for_wide_and_deep(step).minimize(wide_and_deep(), global_step=step, name="train")
        assert v1.get_collection(v1.GraphKeys.TRAIN_OP) == [train_op]
        assert train_op is graph.get_operation_by_name("train")
        with running.started() as session:
            for number in range(1, 4):
                session.run(train_op)
                assert session.run(step) == number


def test_rules_that_use_the_global_step_warn_without_one():
    w = tf.Variable(1.0)
    multi = MultiOptimizer([(FOUR["Decay"](tf.Variable(0, dtype=tf.int64)), [w])])
    with pytest.warns(GlobalStepWarning, match="AdagradDecayOptimizer increments no"):
        multi.apply_gradients([(tf.constant(1.0), w)])


def test_rules_read_the_global_step_before_it_advances():
    """Both rules read the global step 3, before `apply_gradients` increments the step to 4."""
    steps = []

    def decay_fn(step):
        steps.append(step)
        return tf.cast(step, tf.float32)

    with tf.Graph().as_default():
        w, x = v1.get_variable("w", initializer=0.0), v1.get_variable("x", initializer=0.0)
        own = v1.get_variable("own", initializer=np.int64(3), trainable=False)
        multi = MultiOptimizer(
            [
                (legacy_opt.AddSignOptimizer(1.0, beta=0.0, sign_decay_fn=decay_fn), "w"),
                (legacy_opt.AddSignOptimizer(1.0, beta=0.0, sign_decay_fn=decay_fn), "x"),
            ]
        )
        train_op = multi.apply_gradients([(tf.constant(1.0), w), (tf.constant(1.0), x)], own)
        with running.started() as session:
            session.run(train_op)
            assert session.run([w, x, own]) == [-4.0, -4.0, 4]
            session.run(train_op)
            assert session.run([w, x, own]) == [-9.0, -9.0, 5]


def test_an_optimizer_without_gradients_is_not_applied():
    a, b, step = tf.Variable(1.0, name="a"), tf.Variable(1.0, name="b"), tf.Variable(0)
    adam, momentum = v1.train.AdamOptimizer(0.1), v1.train.MomentumOptimizer(0.5, 0.5)
    multi = MultiOptimizer([(adam, [a]), (momentum, b)])
    multi.apply_gradients([(None, a), (tf.constant(1.0), b)], step)
    multi.apply_gradients([(tf.constant(1.0), b)], step)
    assert (a.numpy(), b.numpy(), step.numpy()) == (1.0, -0.25, 2)
    assert adam.variables() == []
    multi.apply_gradients([(tf.constant(1.0), a), (None, b)], step)
    powers = [each.numpy() for each in adam.variables() if "beta1_power" in each.name]
    assert powers == [np.float32(0.9) * np.float32(0.9)]
    assert (b.numpy(), step.numpy()) == (-0.25, 3)


def test_a_function_as_loss():
    def train(step_of):
        w, table = tf.Variable([1.0, 2.0], name="w"), tf.Variable(tf.ones([3, 2]), name="table")
        step = tf.Variable(0, dtype=tf.int64, name="step")
        multi = MultiOptimizer([(FOUR["Decay"](step), "table"), (FOUR["Adam"](step), [w])])

        def loss():
            return tf.reduce_sum(tf.square(tf.gather(table, [0, 2, 2]) * w - 1.0))

        one = step_of(multi, loss, step, [w, table])
        for _ in range(4):
            one()
        assert step.numpy() == 4
        return [w.numpy(), table.numpy(), multi.get_slot(w, "v").numpy()]

    def eager(multi, loss, step, variables):
        return lambda: multi.minimize(loss, global_step=step, var_list=variables)

    def function(multi, loss, step, variables):
        @tf.function  # with AutoGraph
        def one():
            multi.apply_gradients(multi.compute_gradients(loss, variables), global_step=step)

        return one

    for one, other in zip(train(eager), train(function)):
        np.testing.assert_array_equal(one, other)


# --- Ways to train.


def assert_holds(path, state):
    reader = v1.train.NewCheckpointReader(path)
    assert set(reader.get_variable_to_shape_map()) == set(state)
    for name, value in state.items():
        np.testing.assert_array_equal(reader.get_tensor(name), value, err_msg=name)


def monitored(directory, last):
    step = v1.train.get_or_create_global_step()
    train_op = for_wide_and_deep(step).minimize(wide_and_deep(), global_step=step)
    hooks = [v1.train.StopAtStepHook(last_step=last)]
    with v1.train.MonitoredTrainingSession(
        checkpoint_dir=directory, hooks=hooks, log_step_count_steps=None
    ) as session:
        while not session.should_stop():
            session.run(train_op)


def estimated(directory, last):
    def model_fn(features, labels, mode):
        del features, labels
        loss, step = wide_and_deep(), v1.train.get_global_step()
        train_op = for_wide_and_deep(step).minimize(loss, global_step=step)
        return estimator.EstimatorSpec(mode, loss=loss, train_op=train_op)

    config = estimator.RunConfig(log_step_count_steps=None)
    trained = estimator.Estimator(model_fn, directory, config)
    trained.train(lambda: tf.constant(0.0), max_steps=last)


@pytest.mark.parametrize("train", [monitored, pytest.param(estimated, marks=estimators.needed)])
def test_monitored_sessions_and_estimators_resume(train, tmp_path):
    for last in (2, 5):
        with tf.Graph().as_default():
            train(str(tmp_path), last)
    assert_holds(v1.train.latest_checkpoint(str(tmp_path)), in_a_session(5))

"""Tests of `to_keras(…, global_step=…)` in TF1 graphs.

Each program trains once with a v1 optimizer and once with the bridged optimizer. Both must give the
same bits: the step means what it means in v1.
"""

import contextlib
import functools

import numpy as np
import pytest
import tensorflow as tf

import legacy_opt
from legacy_opt import versions
from legacy_opt.compat import load_v1_checkpoint, save_v1_checkpoint, to_keras
from tests.keras_bridge import decayed_optimizers
from tests.keras_bridge.decayed_optimizers import Momentum, decayed
from tests.support.keras.keras_apis import OPTIMIZER_V2

v1 = tf.compat.v1
STEPS = 6
SGD = v1.train.GradientDescentOptimizer


def looped(step):
    start = [tf.constant(0), 0.1 * tf.cast(step, tf.float32)]
    return tf.while_loop(lambda i, x: i < 3, lambda i, x: (i + 1, x * 0.9), start)[1]


MAKERS = {
    **decayed_optimizers.MAKERS,
    "function": lambda step: Momentum(lambda: decayed(0.1, step), 0.9),
    "partial": lambda step: Momentum(0.1, functools.partial(tf.subtract, 1.0, decayed(0.9, step))),
    "read in a branch": lambda step: Momentum(
        0.1, tf.cond(step < 3, lambda: decayed(0.9, step), lambda: tf.constant(0.2))
    ),
    "loop": lambda step: Momentum(0.1, looped(step)),
    "slots that begin at a decay": lambda step: legacy_opt.AdamWOptimizer(
        0.1, 0.1, decayed(0.9, step)
    ),
    "own step": lambda step: legacy_opt.AdagradDecayOptimizer(0.1, step, accumulator_decay_step=2),
}


def minimized(api, optimizer, pairs, global_step):
    """Returns the training operation of a v1 optimizer (if `api` is None), or of its bridge."""
    if api is None:
        return optimizer.apply_gradients(pairs, global_step=global_step)
    return api.bridged(optimizer, global_step=global_step).apply_gradients(pairs)


def new_step(value=0):
    return v1.get_variable("step", initializer=np.int64(value), use_resource=True, trainable=False)


def weight(name="w"):
    return v1.get_variable(name, initializer=np.zeros([1], np.float32), use_resource=True)


def trained(session, train_op, variables, steps=STEPS):
    """Returns the values of variables after each step."""
    values = []
    for _ in range(steps):
        session.run(train_op)
        values.append(np.concatenate([np.ravel(each) for each in session.run(variables)]))
    return values


def trained_between(session, train_op, increment, variables):
    """Returns the values of variables after each step, before an operation that follows it."""
    values = []
    for _ in range(STEPS):
        values += trained(session, train_op, variables, 1)
        session.run(increment)
    return values


def both(api, program):
    """Runs a program, a function of an api or None, in a new graph for each, and compares."""
    results = []
    for each in None, api:
        with tf.Graph().as_default(), v1.Session() as session:
            results.append(program(each, session))
    np.testing.assert_array_equal(*results)
    return results[0]


def start(session, step):
    session.run(step.initializer)  # first, because initial values of slots may read it
    session.run(v1.global_variables_initializer())


@pytest.mark.parametrize("control_flow", [contextlib.nullcontext, versions.v1_control_flow])
@pytest.mark.parametrize("name", MAKERS)
def test_the_step_is_that_of_v1(api, name, control_flow):
    def program(each, session):
        with control_flow():
            step, w = new_step(4), weight()
            op = minimized(each, MAKERS[name](step), [(tf.ones([1]), w)], step)
        start(session, step)
        values = trained(session, op, [w, step])
        step.load(1, session)
        values += trained(session, op, [w, step])
        session.run(step.assign(0))
        return values + trained(session, op, [w, step])

    values = both(api, program)
    assert values[-1][1] == (STEPS // 2 if name == "accumulated" else STEPS)


@pytest.mark.parametrize("name", MAKERS)
def test_tensorflows_own_global_step(name):
    """On TensorFlow 1.15 it is a ref variable, which Keras 2 increments, too."""

    def program(each, session):
        step, w = v1.train.get_or_create_global_step(), weight()
        op = minimized(each, MAKERS[name](step), [(tf.ones([1]), w)], step)
        start(session, step)
        return trained(session, op, [w, step])

    both(OPTIMIZER_V2, program)


def test_assigned_rates_and_fed_tensors(api):
    def program(each, session):
        step, w, other = new_step(), weight(), weight("other")
        rate = v1.get_variable("rate", initializer=0.1, trainable=False, use_resource=True)
        decay = decayed(0.1, step)
        assigned = minimized(each, SGD(v1.assign(rate, decay)), [(tf.ones([1]), w)], step)
        fed = minimized(each, SGD(decay, name="B"), [(tf.ones([1]), other)], None)
        start(session, step)
        values = trained(session, [assigned, fed], [w, other, step, rate])
        for number in range(3):
            session.run(fed, {decay: 0.5 * number})
        return values + [session.run([w[0], other[0], step, rate])]

    both(api, program)


def test_a_float_variable_is_no_step(api):
    def program(each, session):
        w = weight()
        rate = v1.get_variable("rate_step", initializer=0.1, trainable=False, use_resource=True)
        pairs = [(tf.ones([1]), w)]
        optimizer = SGD(rate)
        op = (
            optimizer.apply_gradients(pairs)
            if each is None
            else (each.bridged(optimizer).apply_gradients(pairs))
        )
        session.run(v1.global_variables_initializer())
        values = trained(session, op, [w])
        rate.load(0.01, session)
        return values + trained(session, op, [w])

    both(api, program)


@pytest.mark.parametrize("wrap", [lambda each: each, lambda each: legacy_opt.MultiOptimizer(
    [(each, ".*")])], ids=["leaf", "wrapper"])  # fmt: skip
@pytest.mark.parametrize("counting", [0, 1])
def test_one_of_two_optimizers_counts(api, counting, wrap):
    """As in a GAN. In one call of `run`, both read the step once, as they share the decay."""

    def program(each, session):
        step, variables = new_step(3), [weight("a"), weight("b")]
        rate = decayed(0.1, step)
        ops = [
            minimized(
                each,
                wrap(Momentum(rate, 0.9, name=variable.op.name.upper())),
                [(tf.ones([1]), variable)],
                step if number == counting else None,
            )
            for number, variable in enumerate(variables)
        ]
        start(session, step)
        values = trained(session, ops, [*variables, step])
        for op in ops:
            values += trained(session, op, [*variables, step], 2)
        return values

    assert both(api, program)[-1][-1] == 3 + STEPS + 2


def test_several_optimizers_count(api):
    def program(each, session):
        step, w = new_step(), weight()
        ops = [
            minimized(each, Momentum(decayed(0.1, step), 0.9, name=name), [(tf.ones([1]), w)], step)
            for name in "AB"
        ]
        start(session, step)
        return trained(session, ops[0], [w, step]) + trained(session, ops[1], [w, step])

    assert both(api, program)[-1][-1] == 2 * STEPS


INCREMENTS = {
    "addition": lambda step: v1.assign_add(step, 1),
    "assignment": lambda step: v1.assign(step, step + 1),
    "branch": lambda step: tf.cond(
        v1.placeholder_with_default(True, []),
        lambda: tf.identity(v1.assign_add(step, 1)),
        lambda: tf.constant(0, tf.int64),
    ),
    "function": lambda step: tf.function(lambda: step.assign_add(1).value())(),
    "python": lambda step: v1.assign(step, v1.py_func(lambda x: x + 1, [step], tf.int64)),
}


@pytest.mark.parametrize("how", INCREMENTS)
def test_the_program_increments_the_step(api, how):
    def program(each, session):
        step, w = new_step(2), weight()
        op = minimized(each, MAKERS["learning rate"](step), [(tf.ones([1]), w)], None)
        increment = INCREMENTS[how](step)  # also one that is built later
        start(session, step)
        return trained_between(session, op, increment, [w, step])

    both(api, program)


@pytest.mark.parametrize("global_step", ["own", None])
def test_an_optimizers_own_step_without_counting(api, global_step):
    """AdagradDecay reads the step of its constructor, or that of the graph, as in v1."""

    def program(each, session):
        step, w = v1.train.get_or_create_global_step(), weight()
        optimizer = legacy_opt.AdagradDecayOptimizer(
            0.1, step if global_step else None, accumulator_decay_step=2
        )
        optimizer.global_step_is_advanced = True
        op = minimized(each, optimizer, [(tf.ones([1]), w)], None)
        increment = v1.assign_add(step, 1)
        start(session, step)
        return trained_between(session, op, increment, [w, step])

    both(api, program)


@pytest.mark.parametrize("new_optimizer_counts", [True, False])
def test_an_imported_graph_is_trained_further(new_optimizer_counts, api, tmp_path):
    """A head is trained in a graph that has the operations of an earlier optimizer."""
    path = str(tmp_path / "model.ckpt")
    with tf.Graph().as_default(), v1.Session() as session, versions.v1_control_flow():
        step = v1.get_variable(
            "global_step", initializer=np.int64(0), use_resource=True, trainable=False
        )
        v1.add_to_collection(v1.GraphKeys.GLOBAL_STEP, step)
        old = Momentum(decayed(0.1, step), 0.9).apply_gradients([(tf.ones([1]), weight())], step)
        session.run(v1.global_variables_initializer())
        session.run(old)
        v1.train.Saver().save(session, path)

    def program(each, session):
        saver = v1.train.import_meta_graph(path + ".meta")
        step = v1.train.get_global_step()
        head = weight("head")
        op = minimized(
            each, SGD(decayed(0.1, step)), [(tf.ones([1]), head)],
            step if new_optimizer_counts else None,
        )  # fmt: skip
        session.run(v1.global_variables_initializer())
        saver.restore(session, path)
        return trained(session, op, [head, step])

    assert both(api, program)[-1][-1] == 1 + (STEPS if new_optimizer_counts else 0)


def test_hooks_stop_at_the_step(api):
    def program(each, session):
        step, w = new_step(), weight()
        v1.add_to_collection(v1.GraphKeys.GLOBAL_STEP, step)
        op = minimized(each, MAKERS["momentum"](step), [(tf.ones([1]), w)], step)
        with v1.train.MonitoredTrainingSession(
            hooks=[v1.train.StopAtStepHook(last_step=4)]
        ) as training:
            values = []
            while not training.should_stop():
                training.run(op)
                values.append(1)
        return len(values)

    assert both(api, program) == 4


REFUSED = {
    name: MAKERS[name]
    for name in ("learning rate", "momentum", "in a list", "several optimizers", "accumulated")
}
REFUSED.update((name, MAKERS[name]) for name in ("function", "partial", "read in a branch", "loop"))
REFUSED["an integer variable"] = lambda step: SGD(0.1 * tf.cast(step, tf.float32))
REFUSED["in a function"] = lambda step: SGD(tf.function(lambda: decayed(0.1, step))())


@pytest.mark.parametrize("control_flow", [contextlib.nullcontext, versions.v1_control_flow])
@pytest.mark.parametrize("name", REFUSED)
def test_an_unknown_step_is_refused(api, name, control_flow):
    with tf.Graph().as_default(), control_flow():
        step, w = new_step(), weight()
        optimizer = api.bridged(REFUSED[name](step))
        with pytest.raises(ValueError, match="integer variable step, .*global_step=.*None.*Keras"):
            optimizer.apply_gradients([(tf.ones([1]), w)])


class ReadsItsStep(SGD):
    """Reads a step in `_prepare`, which no attribute of the class is computed from before."""

    def __init__(self, get):
        super().__init__(0.1)
        self._settings = {"get": get}

    def _prepare(self):
        step = tf.cast(self._settings["get"](), tf.float32)
        self._learning_rate_tensor = 0.25 * tf.pow(0.5, step)


@pytest.mark.parametrize("looked_up", [True, False])
def test_a_step_that_prepare_reads(api, looked_up):
    def program(each, session):
        step, w = new_step(2), weight()
        v1.add_to_collection(v1.GraphKeys.GLOBAL_STEP, step)
        get = v1.train.get_or_create_global_step if looked_up else lambda: step
        if each is not None:
            with pytest.raises(ValueError, match="integer variable step"):
                each.bridged(ReadsItsStep(get)).apply_gradients([(tf.ones([1]), w)])
        op = minimized(each, ReadsItsStep(get), [(tf.ones([1]), w)], step)
        start(session, step)
        return trained(session, op, [w, step])

    both(api, program)


class FinishesByTheStep(SGD):
    """Its `_finish` reads the step, which v1 increments afterwards."""

    def __init__(self, step):
        super().__init__(0.1)
        self._global_step = step

    def _create_slots(self, var_list):
        self._trained = list(var_list)

    def _finish(self, update_ops, name_scope):
        with tf.control_dependencies(update_ops):
            by = tf.cast(self._global_step.read_value(), tf.float32)
            added = [each.assign_add(by * tf.ones(each.shape)) for each in self._trained]
        return tf.group(*update_ops, *added, name=name_scope)


@pytest.mark.parametrize("wrap", [lambda each: each, legacy_opt.MovingAverageOptimizer])
@pytest.mark.parametrize("counts", [True, False])
def test_a_step_that_finish_reads(api, wrap, counts):
    def program(each, session):
        step, variables = new_step(2), [weight(name) for name in "abcdefgh"]
        pairs = [(tf.ones([1]), variable) for variable in variables]
        op = minimized(each, wrap(FinishesByTheStep(step)), pairs, step if counts else None)
        start(session, step)
        return trained_between(session, op, step if counts else step.assign_add(1), variables)

    both(api, program)


class CountsItself(SGD):
    """Has an integer counter of its own, which is no global step."""

    def _create_slots(self, var_list):
        self._create_non_slot_variable(0, "count", var_list[0])

    def _prepare(self):
        count = tf.cast(self._get_non_slot_variable("count", v1.get_default_graph()), tf.float32)
        self._learning_rate_tensor = 0.25 / (1.0 + count)


def test_a_counter_of_the_optimizer_is_no_step(api):
    def program(each, session):
        w = weight()
        optimizer = CountsItself(0.1)
        optimizer = optimizer if each is None else each.bridged(optimizer)
        op = optimizer.apply_gradients([(tf.ones([1]), w)])
        session.run(v1.global_variables_initializer())
        return trained(session, op, [w])

    both(api, program)


def test_iterations_may_be_set_to_the_argument():
    """A canned Estimator sets them to the graph's global step."""
    with tf.Graph().as_default():
        step = v1.train.get_or_create_global_step()
        optimizer = OPTIMIZER_V2.bridged(SGD(0.1), global_step=step)
        optimizer.iterations = step
        assert optimizer.iterations is step


def test_another_optimizers_iterations_are_no_step_of_this_one(api):
    with tf.Graph().as_default():
        first, w = api.bridged(SGD(0.1)), weight()
        first.apply_gradients([(tf.ones([1]), w)])
        second = api.bridged(SGD(decayed(0.1, versions.tf_variable(first.iterations))))
        with pytest.raises(ValueError, match="integer variable"):
            second.apply_gradients([(tf.ones([1]), w)])


def test_a_schedule_of_keras_follows_iterations(api):
    with tf.Graph().as_default(), v1.Session() as session:
        w = weight()
        schedule = api.keras.optimizers.schedules.ExponentialDecay(1.0, 2, 0.5, staircase=True)
        optimizer = api.bridged(SGD(0.1), learning_rate=schedule)
        op = optimizer.apply_gradients([(tf.ones([1]), w)])
        session.run(v1.global_variables_initializer())
        values = [each[0] for each in trained(session, op, [w])]
    np.testing.assert_array_equal(values, [-1.0, -2.0, -2.5, -3.0, -3.25, -3.5])


def test_iterations_may_be_set_to_the_global_step():
    """As TensorFlow's Estimators do."""

    def program(each, session):
        step, w = v1.train.get_or_create_global_step(), weight()
        optimizer, pairs = MAKERS["momentum"](step), [(tf.ones([1]), w)]
        if each is None:
            op = optimizer.apply_gradients(pairs, step)
        else:
            bridged = each.bridged(optimizer)
            bridged.iterations = step
            op = bridged.apply_gradients(pairs)
        start(session, step)
        return trained(session, op, [w, step])

    both(OPTIMIZER_V2, program)


@pytest.mark.parametrize("before", [False, True], ids=["now", "file of the version before"])
def test_a_restart_from_an_object_checkpoint(api, before, tmp_path):
    """Before, `iterations` and the step were two variables of the same value."""

    def program(each, session):
        step, w = new_step(), weight()
        optimizer, pairs = MAKERS["learning rate"](step), [(tf.ones([1]), w)]
        if each is None:
            op = optimizer.apply_gradients(pairs, step)
            session.run(v1.global_variables_initializer())
            return trained(session, op, [w, step])
        optimizer = each.bridged(optimizer, global_step=step)
        op = optimizer.apply_gradients(pairs)
        checkpoint = v1.train.Checkpoint(optimizer=optimizer, w=w, step=step)
        session.run(v1.global_variables_initializer())
        if before:
            values, path = first_half_before(each, tmp_path)
        else:
            values = trained(session, op, [w, step], 3)
            path = checkpoint.save(str(tmp_path / "c"), session=session)
            session.run(v1.global_variables_initializer())
        checkpoint.restore(path).assert_existing_objects_matched().run_restore_ops(session)
        return values + trained(session, op, [w, step], 3)

    both(api, program)


def first_half_before(api, folder):
    with tf.Graph().as_default(), v1.Session() as session:
        step, w = new_step(), weight()
        optimizer = api.bridged(MAKERS["learning rate"](step), global_step=None)
        with tf.control_dependencies([optimizer.apply_gradients([(tf.ones([1]), w)])]):
            op = step.assign_add(1)
        checkpoint = v1.train.Checkpoint(optimizer=optimizer, w=w, step=step)
        session.run(v1.global_variables_initializer())
        values = trained(session, op, [w, step], 3)
        return values, checkpoint.save(str(folder / "c"), session=session)


def test_fit_and_files_of_keras_2(tmp_path):
    """`fit` initializes and increments the step; `.h5` contains it as `iterations`."""
    home = OPTIMIZER_V2.keras
    ones = np.ones([8, 2], np.float32)

    def model_of(step):
        model = home.Sequential([home.layers.Dense(1, input_shape=(2,), use_bias=False)])
        model.layers[0].set_weights([np.zeros([2, 1], np.float32)])
        optimizer = OPTIMIZER_V2.bridged(MAKERS["learning rate"](step), global_step=step)
        model.compile(optimizer, "mse")
        return model

    def fit(model, epochs):
        model.fit(ones, ones[:, :1], batch_size=4, epochs=epochs, verbose=0, shuffle=False)

    path = str(tmp_path / "model.h5")
    with tf.Graph().as_default(), v1.Session().as_default():
        step = new_step()
        model = model_of(step)
        fit(model, 2)
        assert home.backend.get_value(step) == 4
        model.save(path)
        fit(model, 2)
        expected = model.get_weights()
    with tf.Graph().as_default(), v1.Session().as_default():
        loaded = home.models.load_model(path, custom_objects=custom_objects())
        assert home.backend.get_value(loaded.optimizer.iterations) == 4
        state, weights = loaded.optimizer.get_weights(), loaded.get_weights()
    with tf.Graph().as_default(), v1.Session().as_default():
        step = new_step()
        model = model_of(step)
        versions.create_optimizer_weights(model.optimizer, model.trainable_variables)
        home.backend.get_value(step)  # initializes all variables
        model.set_weights(weights)
        model.optimizer.set_weights(state)
        assert home.backend.get_value(step) == 4
        fit(model, 2)
        np.testing.assert_array_equal(model.get_weights(), expected)


def custom_objects():
    return legacy_opt.compat.custom_objects("optimizer_v2")


def test_v1_checkpoints_contain_the_step(tmp_path):
    """`load_v1_checkpoint` and `save_v1_checkpoint` restore and save the step of the graph."""

    def program(each, session):
        step, w = v1.train.get_or_create_global_step(), weight()
        optimizer, pairs = MAKERS["learning rate"](step), [(tf.ones([1]), w)]
        if each is None:
            op = optimizer.apply_gradients(pairs, step)
            session.run(v1.global_variables_initializer())
            values = trained(session, op, [w, step], 3)
            v1.train.Saver().save(session, str(tmp_path / "v1"))
            return values + trained(session, op, [w, step], 3)
        optimizer = each.bridged(optimizer, global_step=step)
        op = optimizer.apply_gradients(pairs)
        session.run(v1.global_variables_initializer())
        values = trained(session, op, [w, step], 3)
        save_v1_checkpoint(str(tmp_path / "keras"), [w], optimizer)
        assert v1.train.load_variable(str(tmp_path / "keras"), "global_step") == 3
        session.run(v1.global_variables_initializer())
        load_v1_checkpoint(str(tmp_path / "v1"), [w], optimizer)
        return values + trained(session, op, [w, step], 3)

    both(OPTIMIZER_V2, program)


def test_a_function_is_called_as_often_as_in_a_session(api):
    calls = []

    def program(each, session):
        calls.clear()
        step, w = new_step(), weight()
        optimizer = Momentum(0.1, lambda: calls.append(step) or decayed(0.9, step))
        minimized(each, optimizer, [(tf.ones([1]), w)], step)
        return len(calls)

    assert both(api, program) >= 1


def test_a_placeholder_is_no_step(api):
    def program(each, session):
        step, w = v1.placeholder(tf.int64, [], name="global_step"), weight()
        optimizer = Momentum(decayed(0.1, step), 0.9)
        optimizer = optimizer if each is None else each.bridged(optimizer)
        op = optimizer.apply_gradients([(tf.ones([1]), w)])
        session.run(v1.global_variables_initializer())
        return [session.run(op, {step: n}) or session.run(w) for n in range(STEPS)]

    both(api, program)


def test_wrong_arguments(api):
    with pytest.raises(ValueError, match="is for TF1 graphs"):
        api.bridged(SGD(0.1), global_step=None)
    with pytest.raises(ValueError, match="is for TF1 graphs"):
        api.bridged(SGD(0.1), global_step=tf.Variable(0))
    with tf.Graph().as_default():
        for wrong in ("iteration", 3, tf.constant(3), tf.Variable(0.0), tf.Variable([0])):
            with pytest.raises(TypeError, match="integer scalar variable"):
                api.bridged(SGD(0.1), global_step=wrong)


@pytest.mark.keras3
def test_wrong_arguments_of_keras_3():
    with tf.Graph().as_default():
        ref = v1.get_variable("ref", initializer=0, use_resource=False, trainable=False)
        with pytest.raises(ValueError, match="is a ref variable"):
            to_keras(SGD(0.1), api="keras3", global_step=ref)

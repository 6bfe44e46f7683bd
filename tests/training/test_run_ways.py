"""Runs optimizers in monitored sessions, Estimators, conditions, loops and TensorFlow's wrappers.

Each test except `test_minimize_with_a_callable_loss` expects the same bits as in a plain Session.
Several optimizer classes train in one graph; each class has its own small model. In most tests,
half of the models have ref variables, and the other half have resource variables.
"""

import contextlib
import functools
import textwrap

import numpy as np
import pytest
import tensorflow as tf

from legacy_opt.compat import estimator
from tests.support import ending_datasets, estimators, running
from tests.support.cases import CASES
from tests.support.processes import programs
from tests.support.training_ways import (
    CLASSES,
    KINDS,
    STEPS,
    SideBySide,
    assert_holds,
    assert_same_state,
    expected,
    global_variables,
    minimize,
    models,
    named,
    plain,
    run,
    scope,
    some,
)

v1 = tf.compat.v1
# Some optimizers warn, because they read the step variable of their model instead of the graph's
# global step, or because no global step is passed to them.
pytestmark = pytest.mark.filterwarnings("ignore::legacy_opt.GlobalStepWarning")
EVERY_CLASS = pytest.mark.parametrize(
    "kind", ["in turn", pytest.param("the other way round", marks=pytest.mark.full)]
)


def state_of(state, kinds):
    """Returns the items of `state` that are variables and slots of the models in `kinds`."""
    scopes = tuple(scope(name) + "/" for name in kinds)
    return {name: value for name, value in state.items() if name.startswith(scopes)}


def monitored(full):
    """Returns the names of the classes for the test of monitored sessions.

    With --full, these are all classes. Otherwise they are the classes that the test of Estimators
    leaves out.
    """
    return CLASSES if full else CLASSES[::2]


@EVERY_CLASS
def test_monitored_training_session(kind, full, tmp_path):
    kinds = some(KINDS[kind], monitored(full))
    with tf.Graph().as_default():
        train_op = minimize(models(kinds))
        for last in (4, STEPS):  # the second session restores the checkpoint
            hooks = [v1.train.StopAtStepHook(last_step=last)]
            with v1.train.MonitoredTrainingSession(
                checkpoint_dir=str(tmp_path), hooks=hooks, log_step_count_steps=None
            ) as sess:
                while not sess.should_stop():
                    sess.run(train_op)
        path = v1.train.latest_checkpoint(str(tmp_path))
    assert_holds(path, state_of(expected(kind), kinds))


@EVERY_CLASS
@estimators.needed
def test_estimator_trains_and_resumes(kind, full, tmp_path):
    kinds = KINDS[kind] if full else some(KINDS[kind], set(CLASSES) - set(monitored(full)))

    def model_fn(features, labels, mode):
        made = models(kinds, features["ids"])
        loss = tf.add_n([each.loss for each in made])
        return estimator.EstimatorSpec(mode, loss=loss, train_op=minimize(made))

    def input_fn(steps):
        data = ending_datasets.repeated(np.array([1, 5, 5, 0, 8]), steps)
        return data.map(lambda ids: ({"ids": ids}, tf.constant(0.0)))

    config = estimator.RunConfig(log_step_count_steps=None)
    for steps in (4, STEPS - 4):
        trained = estimator.Estimator(model_fn, str(tmp_path), config)
        trained.train(functools.partial(input_fn, steps))
    assert_holds(trained.latest_checkpoint(), state_of(expected(kind), kinds))


@contextlib.contextmanager
def v1_control_flow():
    """Switches to the control flow of TensorFlow 1, if it is not enabled.

    With the control flow of TensorFlow 2, TensorFlow's own optimizers cannot train ref variables in
    a condition.
    """
    enabled = v1.control_flow_v2_enabled()
    if enabled:
        v1.disable_control_flow_v2()
    try:
        yield
    finally:
        if enabled:
            v1.enable_control_flow_v2()


@EVERY_CLASS
@pytest.mark.in_turn(construct=["cond", "while_loop"], variables=["ref", "resource"])
def test_inside_v1_control_flow(variables, construct, kind):
    """Runs training operations inside tf.cond and tf.while_loop, as some libraries do."""
    kinds = {
        name: use_resource
        for name, use_resource in KINDS[kind].items()
        if use_resource == (variables == "resource")
    }
    with contextlib.ExitStack() as stack:
        if variables == "ref":
            stack.enter_context(v1_control_flow())
        _inside(construct, kinds, expected(kind))


def _inside(construct, kinds, expected):
    with tf.Graph().as_default():
        made = models(kinds)
        pairs = {each.name: each.optimizer.compute_gradients(each.loss) for each in made}
        for each in made:
            pairs[each.name] = [pair for pair in pairs[each.name] if pair[0] is not None]
            # Slots are created outside of the branch or the loop.
            each.optimizer._create_slots(each.variables)

        def train(*_):
            train_ops = []
            for each in made:
                with named(each.name):
                    train_ops.append(each.optimizer.apply_gradients(pairs[each.name], each.step))
            with tf.control_dependencies(train_ops):
                return tf.constant(1)

        train_op = running.inside(construct, train)
        with v1.Session() as sess:
            found = run(sess, train_op)
    assert_same_state(found, state_of(expected, kinds))


@EVERY_CLASS
def test_inside_the_mixed_precision_graph_rewrite(kind):
    home = v1.mixed_precision if hasattr(v1, "mixed_precision") else v1.train.experimental
    rewrite = functools.partial(home.enable_mixed_precision_graph_rewrite, loss_scale=128.0)
    try:
        # Multiplying by a power of two does not round, so this loss scale changes no bits.
        with tf.Graph().as_default(), v1_control_flow():
            train_op = minimize(models(KINDS[kind]), rewrite)
            with v1.Session() as sess:
                assert_same_state(run(sess, train_op), expected(kind))
    finally:
        home.disable_mixed_precision_graph_rewrite()


@EVERY_CLASS
def test_inside_sync_replicas(kind):
    with tf.Graph().as_default():
        made = models(KINDS[kind])
        # All models have one common SyncReplicasOptimizer, because several SyncReplicasOptimizers
        # would use the same token queue.
        wrapped = v1.train.SyncReplicasOptimizer(
            SideBySide(made), replicas_to_aggregate=1, total_num_replicas=1
        )
        loss = tf.add_n([each.loss for each in made])
        train_op = wrapped.minimize(loss, v1.train.get_or_create_global_step())
        hook = wrapped.make_session_run_hook(is_chief=True, num_tokens=0)
        stop = v1.train.StopAtStepHook(last_step=STEPS)
        variables = global_variables()
        # At the end, a thread of the hook still waits for gradients. stop_grace_period_secs limits
        # how long the session waits for this thread.
        with v1.train.MonitoredTrainingSession(
            hooks=[hook, stop], log_step_count_steps=None, stop_grace_period_secs=1
        ) as sess:
            while not sess.should_stop():
                sess.run(train_op)
                last = sess._tf_sess().run(variables)
        assert last["global_step"] == STEPS
        assert_same_state(last, expected(kind))


WITHOUT_V2 = """
    import os, sys
    os.environ["LEGACY_OPT_TEST_GRAPH_MODE"] = "1"
    import numpy as np
    import tensorflow as tf
    tf.compat.v1.disable_v2_behavior()
    v1 = tf.compat.v1
    assert not tf.executing_eagerly() and not v1.control_flow_v2_enabled()
    from tests.support.training_ways import KINDS, minimize, models, run
    train_op = minimize(models(KINDS["in turn"]))
    with v1.Session() as sess:
        found = run(sess, train_op)
    np.savez(sys.argv[1], **{name.replace("/", "|"): value for name, value in found.items()})
"""


def test_a_program_without_v2_behavior(tmp_path):
    """Trains in a program that calls disable_v2_behavior and uses the default graph."""
    path = str(tmp_path / "state.npz")
    done = programs.run("-c", textwrap.dedent(WITHOUT_V2), path, seconds=120)
    assert done.returncode == 0, done.stderr[-3000:]
    saved = {name.replace("|", "/"): value for name, value in np.load(path).items()}
    assert_same_state(saved, expected("in turn"))


@pytest.mark.parametrize("on", [True, False])
def test_the_switches_of_tensorflow_2(on):
    """Trains a compat.v1 graph with two behaviors of TensorFlow 2 enabled or disabled."""
    switches = ("control_flow_v2", "resource_variables")
    before = {switch: getattr(v1, switch + "_enabled")() for switch in switches}
    try:
        for switch in switches:
            switched(switch, on)
        found = plain(KINDS["by default"])
    finally:
        for switch in switches:
            switched(switch, before[switch])
    assert_same_state(found, expected("in turn"))


def switched(switch, on):
    getattr(v1, ("enable_" if on else "disable_") + switch)()


@pytest.mark.parametrize("name", CLASSES)
def test_minimize_with_a_callable_loss(name):
    """Trains with a function as loss; eager execution must give the results of tf.function."""
    table, weights = np.ones((3, 2), "f"), np.full((2, 1), 2.0, "f")

    def train(wrap):
        variables = [tf.Variable(table, name="table"), tf.Variable(weights, name="weights")]
        step = tf.Variable(0, dtype=tf.int64)
        made = CASES[name].make(step)

        def loss():
            return tf.reduce_sum(
                tf.square(tf.matmul(tf.gather(variables[0], [0, 2, 2]), variables[1]))
            )

        def one():
            made.minimize(loss, global_step=step, var_list=variables)

        one = wrap(one)
        for _ in range(7):
            one()
        slots = [made.get_slot(v, slot) for slot in made.get_slot_names() for v in variables]
        return [variable.numpy() for variable in variables + slots]

    for one, other in zip(train(lambda one: one), train(tf.function)):
        if CASES[name].regrouped:
            np.testing.assert_allclose(one, other, 1e-6, 1e-6)
        else:
            np.testing.assert_array_equal(one, other)

"""Where a TF 1 optimizer gets to: monitored sessions, estimators, conditions, wrappers of others.

Everywhere the same training has to end in the same bits as a plain Session.
"""

import os
import subprocess
import sys
import textwrap

import numpy as np
import pytest
import tensorflow as tf

from legacy_opt import AdagradDecayOptimizer, AdagradDecayOptimizerV2, versions

v1 = tf.compat.v1
STEPS = 11
BOTH = pytest.mark.parametrize("optimizer", [AdagradDecayOptimizer, AdagradDecayOptimizerV2])
REF_AND_RESOURCE = pytest.mark.parametrize("use_resource", [False, True], ids=["ref", "resource"])


def make(optimizer, step=None):
    return optimizer(0.3, step, 0.25, 3, 0.7)


def model(use_resource, ids=None):
    """A dense and a sparse variable and a loss whose gradient depends on both."""
    random = np.random.RandomState(0)
    table, weights = random.randn(9, 4).astype("f"), random.randn(4, 2).astype("f")
    table = v1.get_variable("table", initializer=table, use_resource=use_resource)
    weights = v1.get_variable("weights", initializer=weights, use_resource=use_resource)
    ids = tf.constant([1, 5, 5, 0, 8]) if ids is None else ids
    return tf.reduce_mean(tf.square(tf.matmul(tf.gather(table, ids), weights) - 1.0))


def state(graph_or_session):
    """Returns all variables of a Session's graph by name, sorted."""
    sess = graph_or_session
    found = sess.graph.get_collection(v1.GraphKeys.GLOBAL_VARIABLES)
    names = sorted(variable.op.name for variable in found)
    by_name = {variable.op.name: variable for variable in found}
    return {name: sess.run(by_name[name]) for name in names}


def plain(optimizer, use_resource, steps=STEPS):
    """Trains in a plain Session; what all others are compared with."""
    with tf.Graph().as_default():
        loss = model(use_resource)
        step = v1.train.get_or_create_global_step()
        train_op = make(optimizer).minimize(loss, global_step=step)
        with v1.Session() as sess:
            sess.run(v1.global_variables_initializer())
            for _ in range(steps):
                train_op.run(session=sess)
            return state(sess)


def assert_same_state(actual, expected):
    for name, value in expected.items():
        np.testing.assert_array_equal(actual[name], value, err_msg=name)


@REF_AND_RESOURCE
@BOTH
def test_monitored_training_session(optimizer, use_resource, tmp_path):
    with tf.Graph().as_default():
        loss = model(use_resource)
        step = v1.train.get_or_create_global_step()
        train_op = make(optimizer).minimize(loss, global_step=step)
        for last in (4, STEPS):  # the second session goes on from the first one's checkpoint
            hooks = [v1.train.StopAtStepHook(last_step=last)]
            with v1.train.MonitoredTrainingSession(
                checkpoint_dir=str(tmp_path), hooks=hooks, log_step_count_steps=None
            ) as sess:
                while not sess.should_stop():
                    sess.run(train_op)
        path = v1.train.latest_checkpoint(str(tmp_path))
    reader = v1.train.NewCheckpointReader(path)
    expected = plain(optimizer, use_resource)
    assert set(reader.get_variable_to_shape_map()) == set(expected)
    assert_same_state({name: reader.get_tensor(name) for name in expected}, expected)


@REF_AND_RESOURCE
@BOTH
def test_estimator_trains_and_resumes(optimizer, use_resource, tmp_path):
    if not versions.has_estimator():
        pytest.skip("this TensorFlow has no Estimator")

    def model_fn(features, labels, mode):
        loss = model(use_resource, features["ids"])
        step = v1.train.get_global_step()
        return v1.estimator.EstimatorSpec(
            mode, loss=loss, train_op=make(optimizer).minimize(loss, global_step=step)
        )

    def input_fn():
        data = tf.data.Dataset.from_tensors({"ids": tf.constant([1, 5, 5, 0, 8])})
        return data.map(lambda features: (features, tf.constant(0.0))).repeat()

    config = v1.estimator.RunConfig(log_step_count_steps=None)
    for last in (4, STEPS):
        estimator = v1.estimator.Estimator(model_fn, str(tmp_path), config)
        estimator.train(input_fn, max_steps=last)
    expected = plain(optimizer, use_resource)
    assert_same_state({name: estimator.get_variable_value(name) for name in expected}, expected)


@REF_AND_RESOURCE
@BOTH
@pytest.mark.parametrize("construct", ["cond", "while_loop"])
def test_inside_v1_control_flow(optimizer, use_resource, construct):
    """Training ops inside tf.cond and tf.while_loop, as wrappers of other libraries put them."""
    if v1.control_flow_v2_enabled() and not use_resource:
        # A Session with ref variables inside v2 control flow cannot be built by stock
        # optimizers either, so the v1 kind is asked for.
        v1.disable_control_flow_v2()
        try:
            return _inside(optimizer, use_resource, construct)
        finally:
            v1.enable_control_flow_v2()
    return _inside(optimizer, use_resource, construct)


def _inside(optimizer, use_resource, construct):
    with tf.Graph().as_default():
        loss = model(use_resource)
        step = v1.train.get_or_create_global_step()
        made = make(optimizer, step)
        pairs = made.compute_gradients(loss)
        # Slots are made before the branch is entered.
        made._create_slots([variable for _, variable in pairs])

        def train(*_):
            with tf.control_dependencies([made.apply_gradients(pairs, global_step=step)]):
                return tf.constant(1)

        if construct == "cond":
            train_op = v1.cond(v1.placeholder_with_default(True, []), train, lambda: tf.constant(0))
        else:
            train_op = v1.while_loop(lambda i: i < 1, train, [tf.constant(0)])
        with v1.Session() as sess:
            sess.run(v1.global_variables_initializer())
            for _ in range(STEPS):
                sess.run(train_op)
            assert_same_state(state(sess), plain(optimizer, use_resource))


@REF_AND_RESOURCE
@BOTH
def test_inside_the_mixed_precision_graph_rewrite(optimizer, use_resource):
    if hasattr(v1, "mixed_precision"):
        mixed_precision = v1.mixed_precision
        rewrite = mixed_precision.enable_mixed_precision_graph_rewrite
        undo = mixed_precision.disable_mixed_precision_graph_rewrite
    else:
        rewrite = v1.train.experimental.enable_mixed_precision_graph_rewrite
        undo = v1.train.experimental.disable_mixed_precision_graph_rewrite
    try:
        with tf.Graph().as_default():
            loss = model(use_resource)
            step = v1.train.get_or_create_global_step()
            # A power of two scales and unscales without rounding, so the bits stay.
            wrapped = rewrite(make(optimizer, step), loss_scale=128.0)
            try:
                train_op = wrapped.minimize(loss, global_step=step)
            except Exception as ours:
                if use_resource:
                    raise
                # Ref variables inside v2 control flow: stock optimizers cannot either.
                stock = rewrite(v1.train.AdagradOptimizer(0.1), loss_scale=128.0)
                with pytest.raises(type(ours)):
                    stock.minimize(loss, global_step=step)
                return
            with v1.Session() as sess:
                sess.run(v1.global_variables_initializer())
                for _ in range(STEPS):
                    sess.run(train_op)
                assert_same_state(state(sess), plain(optimizer, use_resource))
    finally:
        undo()


@REF_AND_RESOURCE
@BOTH
def test_inside_sync_replicas(optimizer, use_resource):
    with tf.Graph().as_default():
        loss = model(use_resource)
        step = v1.train.get_or_create_global_step()
        wrapped = v1.train.SyncReplicasOptimizer(
            make(optimizer, step), replicas_to_aggregate=1, total_num_replicas=1
        )
        train_op = wrapped.minimize(loss, global_step=step)
        hook = wrapped.make_session_run_hook(is_chief=True, num_tokens=0)
        stop = v1.train.StopAtStepHook(last_step=STEPS)
        variables = {variable.op.name: variable for variable in v1.global_variables()}
        # The thread that waits for gradients is still waiting at the end; it need not be awaited.
        with v1.train.MonitoredTrainingSession(
            hooks=[hook, stop], log_step_count_steps=None, stop_grace_period_secs=1
        ) as sess:
            while not sess.should_stop():
                sess.run(train_op)
                last = sess._tf_sess().run(variables)
        assert last["global_step"] == STEPS
        expected = plain(optimizer, use_resource)
        assert_same_state({name: last[name] for name in expected}, expected)


WITHOUT_V2 = """
    import sys
    import numpy as np
    import tensorflow as tf
    tf.compat.v1.disable_v2_behavior()
    v1 = tf.compat.v1
    assert not tf.executing_eagerly() and not v1.control_flow_v2_enabled()
    from legacy_opt import AdagradDecayOptimizer, AdagradDecayOptimizerV2
    from tests.test_run_ways import STEPS, make, model, state
    for optimizer in (AdagradDecayOptimizer, AdagradDecayOptimizerV2):
        for use_resource in (False, True):
            v1.reset_default_graph()
            step = v1.train.get_or_create_global_step()
            loss = model(use_resource)
            train_op = make(optimizer).minimize(loss, global_step=step)
            with v1.Session() as sess:
                sess.run(v1.global_variables_initializer())
                for _ in range(STEPS):
                    train_op.run()
                np.savez("%s/%s_%d.npz" % (sys.argv[1], optimizer.__name__, use_resource),
                         **{k.replace("/", "|"): v for k, v in state(sess).items()})
"""


def test_a_program_without_v2_behavior(tmp_path):
    """The default graph of a program that calls disable_v2_behavior, as ported scripts do."""
    code = textwrap.dedent(WITHOUT_V2).replace(
        "from tests.test_run_ways",
        "import os; os.environ['LEGACY_OPT_TEST_GRAPH_MODE'] = '1'\nfrom tests.test_run_ways",
    )
    root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)],
        cwd=root,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert done.returncode == 0, done.stdout[-3000:]
    for optimizer in (AdagradDecayOptimizer, AdagradDecayOptimizerV2):
        for use_resource in (False, True):
            path = tmp_path / ("%s_%d.npz" % (optimizer.__name__, use_resource))
            saved = {name.replace("|", "/"): value for name, value in np.load(str(path)).items()}
            assert_same_state(saved, plain(optimizer, use_resource))


@pytest.mark.parametrize("toggle", ["control_flow_v2", "resource_variables"])
@BOTH
def test_the_switches_of_tensorflow_2(optimizer, toggle):
    """A compat.v1 graph inside a TF 2 program, with each behaviour on and off."""
    was = getattr(v1, toggle + "_enabled")()
    results = []
    try:
        for on in (True, False):
            getattr(v1, ("enable_" if on else "disable_") + toggle)()
            results.append(plain(optimizer, None))
    finally:
        getattr(v1, ("enable_" if was else "disable_") + toggle)()
    assert_same_state(*results)


@BOTH
def test_minimize_with_a_callable_loss(optimizer):
    """Eager code and tf.function call minimize with a function."""
    table, weights = np.ones((3, 2), "f"), np.full((2, 1), 2.0, "f")

    def train(wrap):
        variables = [tf.Variable(table, name="table"), tf.Variable(weights, name="weights")]
        step = tf.Variable(0, dtype=tf.int64)
        made = make(optimizer, step)

        def loss():
            return tf.reduce_sum(
                tf.square(tf.matmul(tf.gather(variables[0], [0, 2, 2]), variables[1]))
            )

        def one():
            made.minimize(loss, global_step=step, var_list=variables)

        one = wrap(one)
        for _ in range(7):
            one()
        return [variable.numpy() for variable in variables + made.variables()]

    for one, other in zip(train(lambda one: one), train(tf.function)):
        np.testing.assert_array_equal(one, other)

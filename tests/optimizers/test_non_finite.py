"""Tests the effects of NaN and infinite gradients, and the errors raised by `check_numerics`."""

import re

import numpy as np
import pytest
import tensorflow as tf

import legacy_opt
from legacy_opt import create_train_op, optimize_loss
from tests.optimizers import non_finite
from tests.support import running
from tests.support.cases import optimizers_in
from tests.support.running import REF_AND_RESOURCE
from tests.support.stepping import Stepping, sgd, variable

v1 = tf.compat.v1
MADE = {**non_finite.optimizers(), **non_finite.wrappers()}
NUMBERED = pytest.mark.parametrize("number, name", list(enumerate(MADE)))
WAYS_OUT = ("create_train_op", "optimize_loss")


def test_the_tables_have_every_class():
    classes = set(optimizers_in(legacy_opt))
    assert classes - {"RuleOptimizer", "OptimizerWrapper"} == set(MADE) - {"clip_gradients_by_norm"}


@NUMBERED
def test_the_tables_in_the_docs(number, name, full):
    page = non_finite.written_in(non_finite.PAGE.read_text(encoding="utf-8"))
    lines = [line for text in page.values() for line in text.split("\n")]
    rows = [line for line in lines if f"`{name}`" in line]
    assert len(rows) == 1, "run: python -m tests.optimizers.non_finite docs"
    (documented,) = rows
    for use_resource in [False, True] if full else [number % 2 == 0]:
        assert non_finite.row(name, MADE[name], use_resource) == documented


class Checked:
    """Builds a training of three variables; the gradients of two variables are fed.

    The loss is always finite.
    """

    def __init__(self, name, helper, use_resource):
        self.graph = tf.Graph()
        with self.graph.as_default(), v1.variable_scope("", use_resource=use_resource):
            w, table, other = (
                v1.get_variable(key, initializer=tf.ones(shape))
                for key, shape in (("w", [4, 3]), ("table", [5, 2]), ("other", [3]))
            )
            self.dense = v1.placeholder(tf.float32, [4, 3])
            self.rows = v1.placeholder(tf.float32, [2, 2])
            step = v1.train.get_or_create_global_step()
            # The fed values affect the gradients, but not the loss.
            loss = (
                multiplied(w, self.dense)
                + multiplied(tf.gather(table, [3, 1]), self.rows)
                + tf.reduce_sum(other)
            )
            optimizer = MADE[name](step)
            if helper == "create_train_op":  # check_numerics=True is the default
                self.train_op = create_train_op(loss, optimizer)
            else:
                self.train_op = optimize_loss(
                    loss, step, None, optimizer, summaries=[], check_numerics=True
                )
            self.session = v1.Session()
            self.session.run(v1.global_variables_initializer())

    def train(self, dense, rows):
        fed = np.full([4, 3], 0.5), np.full([2, 2], 0.5)
        fed[0][1, 0], fed[1][1, 1] = dense, rows
        return self.session.run(self.train_op, dict(zip((self.dense, self.rows), fed)))

    def state(self):
        return self.session.run({each.name: each for each in self.variables()})

    def variables(self):
        with self.graph.as_default():
            return v1.global_variables()


def multiplied(values, gradient):
    """Returns the sum of `values`; its gradient with respect to `values` is `gradient`."""

    @tf.custom_gradient
    def loss(values):
        return tf.reduce_sum(values), lambda above: above * gradient * tf.ones_like(values)

    return loss(values)


@NUMBERED
def test_with_check_numerics_a_step_fails_before_anything_is_written(number, name, full):
    if name == "LossScaleOptimizer":
        return  # its gradients are not checked, see `test_a_loss_scale_may_overflow`
    cells = [(helper, resource) for helper in WAYS_OUT for resource in (False, True)]
    for helper, use_resource in cells if full else [cells[number % 4]]:
        made = Checked(name, helper, use_resource)
        with made.session:
            for _ in range(3):
                made.train(0.5, 0.25)
            before = made.state()
            for wrong in [(np.nan, 0.5), (0.5, np.inf), (-np.inf, np.nan)]:
                message = f"The gradient of .*{'table' if np.isfinite(wrong[0]) else ''}"
                with pytest.raises(tf.errors.InvalidArgumentError, match=message):
                    made.train(*wrong)
                after = made.state()
                for key in before:
                    np.testing.assert_array_equal(before[key], after[key], err_msg=key)
            made.train(0.5, 0.25)
            step = [key for key in before if key.startswith("global_step")][0]
            if name != "GradientAccumulationOptimizer":
                assert made.state()[step] == before[step] + 1
            assert not np.array_equal(made.state()["other:0"], before["other:0"]) or (
                name == "GradientAccumulationOptimizer" and before[step] % 2 == 0
            )


@REF_AND_RESOURCE
@pytest.mark.parametrize("helper", WAYS_OUT)
def test_a_loss_that_is_not_finite_with_finite_gradients(helper, use_resource):
    made = Stepping(use_resource)
    with made.graph.as_default():
        loss = made.loss + tf.constant(np.inf)
        ops = {}
        for check in (True, False) + (("loss",) if helper == "create_train_op" else ()):
            if helper == "create_train_op":
                ops[check] = create_train_op(loss, sgd(), check_numerics=check)
            else:
                arguments = {"summaries": [], "check_numerics": check, "global_step": made.step}
                ops[check] = optimize_loss(loss, learning_rate=None, optimizer=sgd(), **arguments)
        everything = v1.global_variables()
        with running.started() as session:
            with pytest.raises(tf.errors.InvalidArgumentError, match="LossTensor is inf or nan"):
                session.run(ops[True])
            assert not any(np.any(value) for value in session.run(everything))
            session.run(ops[False])
            np.testing.assert_array_equal(session.run(made.w), [-3, -4])
            if "loss" in ops:  # as in the original, this check may run after the updates
                with pytest.raises(tf.errors.InvalidArgumentError, match="LossTensor is inf or"):
                    session.run(ops["loss"])


def test_a_loss_scale_may_overflow():
    """Checks that a NaN loss raises an error, but an overflow of a scaled gradient does not.

    After an overflow, the loss scaling optimizer skips the update and halves the scale.
    """
    experimental = v1.train.experimental
    with tf.Graph().as_default(), v1.Session() as session:
        w, fed = variable("w", [1.0, 1.0]), v1.placeholder(tf.float32, [])
        scale = experimental.DynamicLossScale(initial_loss_scale=2.0**120)
        scaled = experimental.MixedPrecisionLossScaleOptimizer(sgd(), scale)
        wrapped = legacy_opt.MultiOptimizer([(scaled, ".*")])
        loss = tf.reduce_sum(w) * 2.0**10 + fed
        train_op = create_train_op(loss, wrapped, transform_grads_fn=None)
        session.run(v1.global_variables_initializer())
        session.run(train_op, {fed: 0.0})
        np.testing.assert_array_equal(session.run([w, scale()])[0], [1, 1])
        assert session.run(scale()) == 2.0**119
        with pytest.raises(tf.errors.InvalidArgumentError, match="LossTensor is inf or nan"):
            session.run(train_op, {fed: np.nan})


@pytest.mark.parametrize("healed", [False, True])
def test_gradients_are_checked_after_they_are_transformed(healed):
    made = Stepping()

    def transform(pairs):
        ((grad, w),) = pairs
        wrong = grad / 0.0
        return [(tf.ones_like(wrong) if healed else wrong, w)]

    with made.graph.as_default():
        train_op = create_train_op(
            made.loss, sgd(), transform_grads_fn=transform, check_numerics=True
        )
        if healed:
            np.testing.assert_array_equal(made.run(train_op)[1]["w"], [-1, -1])
        else:
            with pytest.raises(tf.errors.InvalidArgumentError, match="The gradient of w"):
                made.run(train_op)


def waited_for(operation):
    """Returns all operations that an operation depends on."""
    found, new = set(), [operation]
    while new:
        each = new.pop()
        before = {tensor.op for tensor in each.inputs} | set(each.control_inputs)
        new += before - found
        found |= before
    return found


def test_operations_that_wait_for_the_checks():
    """Checks that all writes wait for both checks, even writes that do not depend on gradients.

    The check of the gradient must wait for the check of the loss.
    """
    made = Stepping()
    with made.graph.as_default():
        counter, counted = variable("counter", 0.0, trainable=False), []

        class Counting(v1.train.GradientDescentOptimizer):
            def apply_gradients(self, pairs, global_step=None, name=None):
                counted.append(counter.assign_add(1.0).op)
                ((grad, _),) = pairs
                counted.append(grad.op)
                return tf.group(super().apply_gradients(pairs, global_step), counted)

        create_train_op(made.loss, Counting(1.0))
    checks = [each for each in made.graph.get_operations() if each.type == "CheckNumerics"]
    assert [list(each.control_inputs) for each in checks] == [[], checks[:1]]
    for operation in counted:
        assert set(checks) <= waited_for(operation)


@REF_AND_RESOURCE
def test_on_several_parameter_servers_all_writes_wait_for_all_checks(use_resource):
    def make(step):
        decay = legacy_opt.AdagradDecayOptimizer(0.1, step)
        accumulated = legacy_opt.GradientAccumulationOptimizer(decay, steps=2)
        routed = legacy_opt.MultiOptimizer([(accumulated, "table")], v1.train.AdamOptimizer())
        return legacy_opt.MovingAverageOptimizer(routed)

    setter = v1.train.replica_device_setter(ps_tasks=3)
    with tf.Graph().as_default(), v1.device(setter):
        with v1.variable_scope("", use_resource=use_resource):
            step = v1.train.get_or_create_global_step()
            table, w = v1.get_variable("table", [4, 2]), v1.get_variable("w", [2])
        loss = tf.reduce_sum(tf.gather(table, [1, 3, 1]) * w)
        train_op = create_train_op(loss, make(step))
    before = waited_for(train_op.op)
    checks = {each for each in before if each.type == "CheckNumerics"}
    writes = [each for each in before if re.match("Assign|.*Scatter|.*Apply", each.type)]
    assert len(checks) == 3 and {f"/job:ps/task:{n}" for n in range(3)} <= {
        each.device for each in writes
    }
    for each in writes:
        assert checks <= waited_for(each), each.name


# The threads of SyncReplicasOptimizer end with an error when the session closes.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.parametrize("holder", ["itself", "wrapped"])
def test_synchronous_replicas(holder):
    """Checks that the threads of SyncReplicasOptimizer do not apply a NaN gradient.

    The threads run operations that do not depend on the loss, so an error in the train op does not
    stop the threads.
    """
    with tf.Graph().as_default():
        step = v1.train.get_or_create_global_step()
        w, fed = variable("w", [1.0, 1.0]), v1.placeholder(tf.float32, [2])
        sync = v1.train.SyncReplicasOptimizer(sgd(), 1)
        optimizer = sync if holder == "itself" else legacy_opt.ClipByNormOptimizer(sync, 1e9)
        train_op = create_train_op(tf.reduce_sum(w * fed), optimizer, check_numerics=True)
        hook = sync.make_session_run_hook(is_chief=True, num_tokens=0)
        steps_now, values = step.read_value(), w.read_value()
        with v1.train.MonitoredTrainingSession(
            hooks=[hook], stop_grace_period_secs=0, log_step_count_steps=None
        ) as session:
            session.run(train_op, {fed: [0.25, 0.5]})
            with pytest.raises(tf.errors.InvalidArgumentError, match="is inf or nan"):
                session._tf_sess().run(train_op, {fed: [1.0, np.nan]})
            found = session._tf_sess().run([steps_now, values])
    assert found[0] == 1
    np.testing.assert_array_equal(found[1], [0.75, 0.5])


def test_two_replicas_stop_together():
    with tf.Graph().as_default():  # while a graph is built, the second device need not exist
        strategy = tf.distribute.MirroredStrategy(["/cpu:0", "/cpu:1"])
    run = running.on_replicas(strategy)
    with tf.Graph().as_default(), strategy.scope():
        v1.train.get_or_create_global_step()
        w = variable("w", [1.0, 1.0])
        fed = v1.placeholder(tf.float32, [2])

        def trained():
            here = tf.distribute.get_replica_context().replica_id_in_sync_group
            gradient = tf.gather(fed, here)
            return create_train_op(multiplied(w, gradient), sgd(), check_numerics=True)

        train_op = strategy.experimental_local_results(run(trained))
        config = v1.ConfigProto(device_count={"CPU": 2}, allow_soft_placement=True)
        with running.started(config=config) as session:
            for wrong in [np.nan, 1.0], [1.0, np.inf]:
                with pytest.raises(tf.errors.InvalidArgumentError, match="The gradient of"):
                    session.run(train_op, {fed: wrong})
                np.testing.assert_array_equal(session.run(w.read_value()), [1, 1])
            session.run(train_op, {fed: [0.25, 0.5]})
            np.testing.assert_array_equal(session.run(w.read_value()), [0.25, 0.25])

"""Tests `create_train_op` and the functions that transform its gradients.

Also tests `create_train_op` and `optimize_loss` with wrappers and with two replicas.
"""

import numpy as np
import pytest
import tensorflow as tf

import legacy_opt
from legacy_opt import create_train_op, optimize_loss
from tests.support.running import REF_AND_RESOURCE, on_replicas
from tests.support.stepping import Stepping, dot, sgd, variable

v1 = tf.compat.v1


@pytest.fixture
def stepping():
    made = Stepping()
    with made.graph.as_default():
        yield made


@REF_AND_RESOURCE
def test_create_train_op_by_hand(use_resource):
    made = Stepping(use_resource)
    with made.graph.as_default():
        op = create_train_op(made.distance(), sgd(0.5))
        assert op.name == "train_op/control_dependency:0"
        assert v1.get_collection(v1.GraphKeys.TRAIN_OP)[-1] is op
        losses, after = made.run(op, steps=2)
    np.testing.assert_allclose(losses, [12.5, 3.125])
    np.testing.assert_allclose(after["w"], [2.25, 3.0])
    assert after["global_step"] == 2


def test_which_step_create_train_op_advances(stepping):
    other = variable("other", 0, dtype=tf.int32, trainable=False)
    for step, expected in (None, (0, 0)), (other, (0, 1)), (0, (1, 0)):
        after = stepping.run(create_train_op(stepping.loss, sgd(), step))[1]
        assert (after["global_step"], after["other"]) == expected
    with tf.Graph().as_default():
        create_train_op(dot(variable("w", [0.0]), 1.0), sgd())
        assert v1.train.get_global_step() is not None


def test_create_train_op_transforms_gradients(stepping):
    table = variable("table", np.zeros([3, 1]))
    variable("unused", [0.0])
    loss = stepping.loss + dot(tf.gather(table, [1, 1]), [3.0], [4.0])
    clip = legacy_opt.clip_gradient_norms_fn(1)
    op = create_train_op(loss, sgd(), transform_grads_fn=clip, summarize_gradients=True)
    after = stepping.run(op)[1]
    np.testing.assert_allclose(after["w"], [-0.6, -0.8], rtol=1e-6)
    np.testing.assert_allclose(after["table"][:, 0], [0, -1.4, 0], rtol=1e-6)
    written = stepping.written(op)
    assert written == pytest.approx(
        {
            "summarize_grads/w_gradient": 2,
            "summarize_grads/w_gradient_norm": 1,
            "summarize_grads/table_gradient": 2,
            "summarize_grads/table_gradient_norm": 1,
        }
    )
    double = lambda pairs: legacy_opt.multiply_gradients(  # noqa: E731
        pairs, {"w": 2, table: tf.constant(3.0, tf.float64)}
    )
    after = stepping.run(create_train_op(loss, sgd(), transform_grads_fn=double))[1]
    np.testing.assert_allclose(after["w"], [-6, -8])
    np.testing.assert_allclose(after["table"][:, 0], [0, -21, 0])


def test_a_loss_that_is_not_finite(stepping):
    loss = stepping.loss * tf.constant(np.nan)
    with pytest.raises(tf.errors.InvalidArgumentError, match="LossTensor is inf or nan"):
        stepping.run(create_train_op(loss, sgd()))
    assert np.isnan(stepping.run(create_train_op(loss, sgd(), check_numerics=False))[0][0])


def test_a_loss_that_is_no_scalar_and_untrainable_variables_in_the_collection(stepping):
    frozen = variable("frozen", [0.0], trainable=False)
    v1.add_to_collection(v1.GraphKeys.TRAINABLE_VARIABLES, frozen)
    loss = tf.stack([stepping.loss, dot(frozen, 1.0)])
    losses, after = stepping.run(create_train_op(loss, sgd(), variables_to_train=[frozen]))
    assert after["frozen"] == -1 and np.array_equal(losses[0], [2, 0])


# `create_train_op` and `optimize_loss` with wrappers and with replicas.


@pytest.mark.parametrize("helper", [optimize_loss, create_train_op])
def test_our_wrappers_as_optimizers(stepping, helper):
    other = variable("other", [0.0])
    loss = stepping.loss + dot(other, 1.0)
    inside = legacy_opt.MultiOptimizer([(sgd(1.0), "w")], default=sgd(0.1))
    wrapper = legacy_opt.GradientAccumulationOptimizer(inside, 2)
    if helper is optimize_loss:
        train_op = optimize_loss(loss, None, None, wrapper, clip_gradients=1.0)
    else:
        train_op = create_train_op(loss, wrapper, transform_grads_fn=lambda pairs: pairs)
    after = stepping.run(train_op, steps=3)[1]
    # The wrapper updates the variables in every second training step, so once in three steps.
    # `optimize_loss` clips the gradients [3, 4] and [1], whose global norm is sqrt(26), to norm 1.
    norm = np.sqrt(26) if helper is optimize_loss else 1
    np.testing.assert_allclose(after["w"], np.array([-3, -4]) / norm, rtol=1e-6)
    np.testing.assert_allclose(after["other"], [-0.1 / norm], rtol=1e-6)
    assert after["global_step"] == 1


def test_two_replicas():
    with tf.Graph().as_default():  # in a graph, /cpu:1 need not exist
        strategy = tf.distribute.MirroredStrategy(["/cpu:0", "/cpu:1"])
    run = on_replicas(strategy)
    with tf.Graph().as_default(), strategy.scope():
        step = v1.train.get_or_create_global_step()
        w = variable("w", [0.0, 0.0])

        def trained():
            loss = dot(w, 3.0, 4.0)
            first = optimize_loss(loss, step, 0.5, "SGD", clip_gradients=1.0, summaries=[])
            with tf.control_dependencies([first]):
                return create_train_op(tf.identity(loss), sgd(0.5))

        train_op = strategy.experimental_local_results(run(trained))
        config = v1.ConfigProto(device_count={"CPU": 2}, allow_soft_placement=True)
        with v1.Session(config=config) as session:
            session.run(v1.global_variables_initializer())
            session.run(train_op)
            after = session.run([w.read_value(), step.read_value()])
    # Each replica subtracts 0.5 times the clipped gradient [0.6, 0.8], then 0.5 times [3, 4].
    np.testing.assert_allclose(after[0], [-2 * (0.3 + 1.5), -2 * (0.4 + 2.0)], rtol=1e-6)
    assert after[1] == 2

"""Compares `minimize` with `apply_gradients`, for all optimizers and all arguments."""

import numpy as np
import pytest
import tensorflow as tf

from tests.support import running
from tests.support.own_memory import MAKERS

v1 = tf.compat.v1
FACTORS = np.linspace(-2, 2, 12).reshape(4, 3).astype("f")
WEIGHTS = np.array([1, 2, -4, 0.5], "f")  # Products with powers of two are exact.
MINIMIZE = {
    "gate_gradients": v1.train.Optimizer.GATE_GRAPH,
    "aggregation_method": tf.AggregationMethod.EXPERIMENTAL_ACCUMULATE_N,
    "colocate_gradients_with_ops": True,
}
# {optimizer: name of its train_op}. Like their originals, these optimizers ignore `name`.
OTHER_NAMES = {"MovingAverage": "train_with_avg", "MovingAverage beside": "train_with_avg"}


def trained(name, use_resource, build):
    """Runs two training steps; returns all variables, and the name of the train_op."""
    with tf.Graph().as_default(), v1.variable_scope("", use_resource=use_resource):
        one, two = (v1.get_variable(each, initializer=tf.ones([4, 3])) for each in ["one", "two"])
        step = v1.train.get_or_create_global_step()
        train_op = build(MAKERS[name](step), one, two, step)
        variables = {each.op.name: each for each in v1.global_variables()}
        with running.started(config=running.AS_WRITTEN) as session:
            for _ in range(2):
                session.run(train_op)
            return session.run(variables), getattr(train_op, "op", train_op).name


def minimized(optimizer, one, two, step):
    loss = tf.reduce_sum((one + two) * FACTORS, axis=1)
    return optimizer.minimize(
        loss,
        global_step=step,
        var_list=[one],
        name="named",
        grad_loss=tf.constant(WEIGHTS),
        **MINIMIZE,
    )


def applied(optimizer, one, two, step):
    gradient = tf.constant(FACTORS * WEIGHTS[:, np.newaxis])
    return optimizer.apply_gradients([(gradient, one)], step, "named")


def positional(optimizer, one, two, step):
    loss = tf.reduce_sum(one * FACTORS * WEIGHTS[:, np.newaxis])
    return optimizer.minimize(loss, step, [one], *MINIMIZE.values(), "named", None)


@pytest.mark.in_turn(name=MAKERS, use_resource=[False, True])
def test_every_argument_of_minimize_has_its_effect(name, use_resource):
    expected, op_name = trained(name, use_resource, applied)
    assert op_name == OTHER_NAMES.get(name, "named")
    assert np.array_equal(expected["two"], np.ones([4, 3], "f"))
    assert not np.array_equal(expected["one"], expected["two"])
    assert expected["global_step"] == (1 if "ccumulat" in name else 2)
    for build in minimized, positional:
        found, op_name = trained(name, use_resource, build)
        assert op_name == OTHER_NAMES.get(name, "named")
        np.testing.assert_equal(found, expected)

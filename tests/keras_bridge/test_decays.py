"""Tests that hyperparameters that decay with a global step follow Keras' `iterations`.

In eager execution, where v1's decays are functions. TF1 graphs are in test_global_step.py.
"""

import functools

import numpy as np
import pytest
import tensorflow as tf

import legacy_opt
from legacy_opt.compat import compare_with_session, load_v1_checkpoint, to_keras
from tests.keras_bridge import decayed_optimizers
from tests.keras_bridge.decayed_optimizers import Momentum, decayed

v1 = tf.compat.v1
STEPS = 6
GRADIENT = np.ones([1], np.float32)


class Halving(tf.keras.optimizers.schedules.LearningRateSchedule):
    """A schedule with state that its configuration lacks, and no configuration."""

    scale = 1.0

    def __call__(self, step):
        return self.scale * tf.pow(0.5, tf.cast(step, tf.float32))


def halving(step):
    schedule = Halving()
    schedule.scale = 0.5
    return functools.partial(schedule, step) if tf.executing_eagerly() else schedule(step)


MAKERS = {
    **decayed_optimizers.MAKERS,
    "own schedule": lambda step: Momentum(0.1, halving(step)),
}


def expected_of(make):
    """Returns the weight after each step of a training in a Session."""
    with tf.Graph().as_default(), v1.Session() as session:
        step = v1.train.get_or_create_global_step()
        w = v1.get_variable("w", initializer=np.zeros([1], np.float32), use_resource=True)
        train_op = make(step).apply_gradients([(tf.constant(GRADIENT), w)], step)
        session.run(v1.global_variables_initializer())
        return [(session.run(train_op), session.run(w))[1][0] for _ in range(STEPS)]


@pytest.mark.parametrize("name", MAKERS)
def test_eager_execution(api, name):
    step = tf.Variable(0, dtype=tf.int64, trainable=False, name="global_step")
    optimizer = api.bridged(MAKERS[name](step))
    w = api.variable(np.zeros([1], np.float32))
    actual = []
    for _ in range(STEPS):
        optimizer.apply_gradients([(tf.constant(GRADIENT), w)])
        actual.append(np.asarray(tf.convert_to_tensor(w))[0])
    np.testing.assert_array_equal(actual, expected_of(MAKERS[name]))
    if name not in ("in a list", "own schedule", "several optimizers", "accumulated"):
        assert compare_with_session(MAKERS[name](step)).equal


def test_a_decay_reads_a_variable_in_each_step():
    base = tf.Variable(0.9, trainable=False)
    step = tf.Variable(0, dtype=tf.int64, trainable=False)
    optimizer, w = to_keras(Momentum(0.1, decayed(base, step))), tf.Variable([0.0])
    weights, slot, value = [], 0.0, 0.0
    for number in range(STEPS):
        if number == 3:
            base.assign(0.02)
        optimizer.apply_gradients([(tf.constant(GRADIENT), w)])
        slot = (0.9 if number < 3 else 0.02) * 0.5 ** (number / 3) * slot + 1
        value -= 0.1 * slot
        weights.append(value)
    np.testing.assert_allclose(w.numpy()[0], weights[-1], rtol=1e-5)  # computed in float64


class Counting:
    def __init__(self, step):
        self.step = step

    def __call__(self):
        return 0.9

    method = __call__


# {how a function refers to a step: a function of the step that makes it}
READERS = {
    "a decay inside": lambda step: (lambda decay: lambda: 1.0 - decay())(decayed(0.9, step)),
    "keyword": lambda step: functools.partial(lambda global_step: 0.9, global_step=step),
    "object": Counting,
    "method": lambda step: Counting(step).method,
    "attribute": lambda step: (lambda holder: lambda: holder.step and 0.9)(Counting(step)),
    "item": lambda step: (lambda items: lambda: items[0] and 0.9)([step]),
    "default": lambda step: lambda count=step: 0.9,
}


@pytest.mark.parametrize("how", READERS)
def test_a_function_that_may_read_a_step_warns(how):
    step = tf.Variable(0, dtype=tf.int64, trainable=False)
    for arguments in (0.1, READERS[how](step)), (READERS[how](step), 0.9):
        with pytest.warns(legacy_opt.GlobalStepWarning, match="stays constant"):
            to_keras(Momentum(*arguments))


@pytest.mark.keras3
def test_a_checkpoint_is_loaded_before_the_optimizer_is_built(tmp_path):
    def make():
        routes = [(Momentum(0.1, 0.9), "a"), (Momentum(0.2, 0.5), "b")]
        return legacy_opt.MultiOptimizer(routes)

    with tf.Graph().as_default(), v1.Session() as session:
        pairs = [(tf.ones([2]), v1.get_variable(name, [2], use_resource=True)) for name in "ab"]
        train_op = make().apply_gradients(pairs, v1.train.get_or_create_global_step())
        session.run(v1.global_variables_initializer())
        session.run(train_op)
        path = v1.train.Saver().save(session, str(tmp_path / "model.ckpt"))
    variables = [tf.Variable(tf.zeros([2]), name=name) for name in "ab"]
    optimizer = to_keras(make(), api="keras3")
    load_v1_checkpoint(path, variables, optimizer)
    for variable in variables:
        assert optimizer.get_slot(variable, "momentum").numpy().tolist() == [1.0, 1.0]


def test_counters_of_models_are_no_steps(recwarn):
    model = tf.keras.Sequential([tf.keras.layers.Dense(1, input_shape=(2,))])
    model.compile("sgd", "mse")
    model.fit(np.ones([4, 2]), np.ones([4, 1]), verbose=0)
    to_keras(Momentum(0.1, lambda: 0.9 if model else 0.5))
    assert not [each for each in recwarn if each.category is legacy_opt.GlobalStepWarning]

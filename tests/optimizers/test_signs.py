"""Tests AddSign and PowerSign: values computed by hand, sign decays, and their global step."""

import json
import math

import numpy as np
import pytest
import tensorflow as tf

from legacy_opt import (
    AddSignOptimizer,
    GlobalStepWarning,
    PowerSignOptimizer,
    get_cosine_decay_fn,
    get_linear_decay_fn,
    get_restart_decay_fn,
)
from legacy_opt.compat import to_keras
from tests.support import running
from tests.support.running import REF_AND_RESOURCE

v1 = tf.compat.v1
BOTH = pytest.mark.parametrize("optimizer", [AddSignOptimizer, PowerSignOptimizer])


@REF_AND_RESOURCE
@pytest.mark.parametrize("fused", [True, False], ids=["kernel", "rule"])
@pytest.mark.parametrize(
    "make, agreed, opposed",
    [
        (lambda: AddSignOptimizer(0.5, 2.0, 0.5), 3, 1),
        (lambda: PowerSignOptimizer(0.5, 4.0, 0.5), 4, 0.25),
    ],
    ids=["AddSign", "PowerSign"],
)
def test_two_steps_by_hand(use_resource, fused, make, agreed, opposed):
    # beta .5, learning rate .5, w [8, 8, 8]. The update multiplies the gradient g by a if m and g
    # have the same sign, and by o if their signs are opposite. In AddSign, a = 2 + 1 = 3 and
    # o = 2 - 1 = 1. In PowerSign, a = 4 and o = 1 / 4.
    # g [4, 4, 0]: m = [2, 2, 0], so w -= .5 * a * [4, 4, 0]
    # g [2, -1, 1]: m = [2, .5, .5], so w -= .5 * [a * 2, o * -1, a * 1]
    with tf.Graph().as_default():
        w = v1.get_variable("w", initializer=[8.0, 8.0, 8.0], use_resource=use_resource)
        optimizer = make()
        optimizer.use_fused_kernels = fused
        gradient = v1.placeholder(tf.float32, [3])
        train_op = optimizer.apply_gradients([(gradient, w)])
        m = optimizer.get_slot(w, "m")
        assert m.op.name == "w/" + type(optimizer).__name__
        with running.started() as sess:
            sess.run(train_op, {gradient: [4, 4, 0]})
            assert sess.run(m).tolist() == [2.0, 2.0, 0.0]
            expected = np.array([8 - 2 * agreed, 8 - 2 * agreed, 8.0])
            np.testing.assert_allclose(sess.run(w), expected, rtol=1e-6)
            sess.run(train_op, {gradient: [2, -1, 1]})
            assert sess.run(m).tolist() == [2.0, 0.5, 0.5]
            expected -= [agreed, -0.5 * opposed, 0.5 * agreed]
            np.testing.assert_allclose(sess.run(w), expected, rtol=1e-6)


@REF_AND_RESOURCE
@BOTH
def test_a_sparse_gradient_lets_m_decay_in_all_rows(optimizer, use_resource):
    with tf.Graph().as_default():
        w = v1.get_variable("w", initializer=tf.zeros([3, 1]), use_resource=use_resource)
        made = optimizer(1.0, beta=0.5)
        ids = v1.placeholder(tf.int64, [None])
        rows = tf.IndexedSlices(tf.ones([tf.size(ids), 1]), ids)
        train_op = made.apply_gradients([(rows, w)])
        factor = 2 if optimizer is AddSignOptimizer else math.e
        with running.started() as sess:
            sess.run(train_op, {ids: [1, 0, 1]})
            sess.run(train_op, {ids: [2]})
            assert sess.run(made.get_slot(w, "m")).tolist() == [[0.25], [0.5], [0.5]]
            np.testing.assert_allclose(
                sess.run(w), [[-factor], [-2 * factor], [-factor]], rtol=1e-6
            )


@pytest.mark.parametrize("sparse", [False, True])
def test_sparse_float64_updates_use_a_rounded_e(sparse):
    w = tf.Variable(np.zeros([1]))
    gradient = tf.constant([1.0], tf.float64)
    rows = tf.IndexedSlices(gradient, tf.constant([0])) if sparse else gradient
    PowerSignOptimizer(1.0).apply_gradients([(rows, w)])
    expected = np.float64(np.float32(math.e)) if sparse else math.e
    np.testing.assert_allclose(w.numpy(), [-expected], rtol=1e-15)
    assert abs(float(np.float32(math.e)) - math.e) > 1e-8


def test_base_accepts_every_type_of_hyperparameter():
    def after_a_step(base):
        w = tf.Variable([0.0])
        PowerSignOptimizer(1.0, base).apply_gradients([(tf.constant([1.0]), w)])
        return -w.numpy()[0]

    assert after_a_step(math.e) == np.float32(math.e)
    for base in (4, tf.constant(4.0), tf.Variable(4.0), lambda: 4.0, lambda: tf.constant(4.0)):
        np.testing.assert_allclose(after_a_step(base), 4.0, rtol=1e-6)


# The sign decays.

STEPS = 1004
DECAYS = {
    "linear": (lambda t: max(0, 1 - t / 1000), "get_linear_decay_fn", (1000,)),
    "cosine": (
        lambda t: (1 + math.cos(math.pi * t / 1000)) / 2,
        "get_cosine_decay_fn",
        (1000,),
    ),
    "cosine periods": (
        lambda t: (1 + math.cos(2 * math.pi * 1.5 * t / 1000)) / 2,
        "get_cosine_decay_fn",
        (1000, 1.5),
    ),
    "cosine zero": (
        lambda t: (1 + math.cos(2 * math.pi * 1.5 * t / 1000)) / 2 if t < 400 else 0,
        "get_cosine_decay_fn",
        (1000, 1.5, 0.6),
    ),
    "restart": (
        lambda t: (1 + math.cos(math.pi * (t % 1000) / 1000)) / 2,
        "get_restart_decay_fn",
        (1000,),
    ),
    "restart periods": (
        lambda t: (1 + math.cos(math.pi * (2.5 * t % 1000) / 1000)) / 2,
        "get_restart_decay_fn",
        (1000, 2.5),
    ),
    "restart zero": (
        lambda t: (1 + math.cos(math.pi * (3 * t % 1000) / 1000)) / 2 if 3 * t < 1200 else 0,
        "get_restart_decay_fn",
        (1000, 3, 1.2),
    ),
}
EVERY_DECAY = pytest.mark.parametrize("name", DECAYS)
MAKERS = {
    function.__name__: function
    for function in (get_linear_decay_fn, get_cosine_decay_fn, get_restart_decay_fn)
}


def make_decay(name, makers=MAKERS):
    _, maker, arguments = DECAYS[name]
    return (makers[maker] if isinstance(makers, dict) else getattr(makers, maker))(*arguments)


def in_a_session(decay, steps, dtype="int64"):
    """Returns the sign decays at the global steps from 0 to `steps` - 1, computed in a Session."""
    with tf.Graph().as_default():
        step = v1.get_variable("step", [], dtype, v1.zeros_initializer(), trainable=False)
        advance, value = step.assign_add(1), decay(step)
        with v1.Session() as sess:
            sess.run(step.initializer)
            return [(sess.run(value), sess.run(advance))[0] for _ in range(steps)]


@EVERY_DECAY
def test_formulas_of_the_decays(name):
    formula, decay = DECAYS[name][0], make_decay(name)
    steps = list(range(0, STEPS, 7)) + [399, 400, 401, 999, 1000, 1001, 5000]
    actual = [decay(tf.constant(step, tf.int32)).numpy() for step in steps]
    assert all(value.dtype == np.float32 for value in actual)
    np.testing.assert_allclose(
        actual, [formula(min(step, 1000)) for step in steps], rtol=0, atol=2e-6
    )


@EVERY_DECAY
def test_decays_have_the_same_bits_in_every_way_to_run(name):
    decay = make_decay(name)
    wanted = in_a_session(decay, 100)
    traced = tf.function(decay, input_signature=[tf.TensorSpec([], tf.int64)])
    for step in range(100):
        assert decay(tf.constant(step)).numpy() == wanted[step], step
        assert traced(tf.constant(step, tf.int64)).numpy() == wanted[step], step


@pytest.mark.contrib
@pytest.mark.in_turn(name=DECAYS, dtype=["int32", "int64"])
def test_decays_are_those_of_contrib(name, dtype):
    from tensorflow.contrib.opt.python.training import sign_decay

    ours, original = (make_decay(name, makers) for makers in (MAKERS, sign_decay))
    assert in_a_session(ours, STEPS, dtype) == in_a_session(original, STEPS, dtype)


@EVERY_DECAY
def test_decays_refuse_a_step_of_none(name):
    with pytest.raises(ValueError, match="global_step"):
        make_decay(name)(None)


@pytest.mark.parametrize("maker", MAKERS)
@pytest.mark.parametrize("steps, error", [(0, ValueError), (-1, ValueError), (1e3, TypeError)])
def test_decay_steps_are_a_positive_integer(maker, steps, error):
    with pytest.raises(error, match="decay_steps"):
        MAKERS[maker](steps)


# The global step that the sign decays read.


@REF_AND_RESOURCE
@BOTH
def test_the_decay_reads_the_step_passed_to_apply_gradients(optimizer, use_resource):
    calls = []

    def decay(step):
        calls.append(step)
        return get_linear_decay_fn(2)(step)

    with tf.Graph().as_default():
        v1.train.get_or_create_global_step()  # the graph's global step stays 0
        mine = v1.get_variable(
            "mine",
            [],
            tf.int32,
            v1.zeros_initializer(),
            trainable=False,
            use_resource=use_resource,
        )
        pairs = [
            (tf.ones([]), v1.get_variable(name, initializer=0.0, use_resource=use_resource))
            for name in "ab"
        ]
        train_op = optimizer(1.0, sign_decay_fn=decay).apply_gradients(pairs, global_step=mine)
        assert len(calls) == 1
        seen = []
        with running.started() as sess:
            for _ in range(3):
                before = sess.run(pairs[1][1])
                sess.run(train_op)
                seen.append(before - sess.run(pairs[1][1]))
    expected = [2, 1.5, 1] if optimizer is AddSignOptimizer else [math.e, math.e**0.5, 1]
    np.testing.assert_allclose(seen, expected, rtol=1e-6)


def test_without_a_step_the_graphs_is_read_with_a_warning():
    with tf.Graph().as_default():
        w = v1.get_variable("w", initializer=[0.0])
        step = v1.train.get_or_create_global_step()
        optimizer = AddSignOptimizer(1.0, sign_decay_fn=get_linear_decay_fn(2))
        with pytest.warns(GlobalStepWarning):
            train_op = optimizer.apply_gradients([(tf.ones([1]), w)])
        with running.started() as sess:
            sess.run(step.assign(1))
            sess.run(train_op)
            assert sess.run(w) == [-1.5]
    AddSignOptimizer().apply_gradients([(tf.ones([1]), tf.Variable([0.0]))])  # needs no global step


@BOTH
@pytest.mark.parametrize(
    "function, error",
    [(0.5, TypeError), (get_linear_decay_fn, TypeError), (get_cosine_decay_fn, TypeError)],
)
def test_a_sign_decay_fn_is_a_function_of_the_step(optimizer, function, error):
    with pytest.raises(error, match="sign_decay_fn"):
        optimizer(sign_decay_fn=function)


@pytest.mark.parametrize("value", ["1", float("nan"), np.ones([2])])
def test_a_sign_decay_fn_returns_a_number(value):
    optimizer = AddSignOptimizer(sign_decay_fn=lambda step: value)
    w = tf.Variable([0.0])
    with pytest.raises((TypeError, ValueError), match="sign_decay_fn"):
        optimizer.apply_gradients(
            [(tf.ones([1]), w)], global_step=tf.Variable(0, dtype=tf.int64, trainable=False)
        )


@pytest.mark.parametrize(
    "optimizer, arguments, error",
    [
        (AddSignOptimizer, {"beta": 1.0}, ValueError),
        (AddSignOptimizer, {"beta": -0.1}, ValueError),
        (PowerSignOptimizer, {"beta": 1.0}, ValueError),
        (PowerSignOptimizer, {"base": 0.0}, ValueError),
        (PowerSignOptimizer, {"base": -2.0}, ValueError),
    ],
)
def test_wrong_arguments(optimizer, arguments, error):
    with pytest.raises(error, match=list(arguments)[0]):
        optimizer(**arguments)


# The Keras bridge.


@EVERY_DECAY
@BOTH
def test_a_decay_of_this_package_can_be_saved(optimizer, name):
    bridged = to_keras(optimizer(0.1, beta=0.8, sign_decay_fn=make_decay(name)))
    saved = json.loads(json.dumps(bridged.get_config()))
    again = type(bridged).from_config(saved)
    assert again.get_config() == saved
    ours, theirs = (
        keras_optimizer._v1.optimizer._sign_decay_fn for keras_optimizer in (bridged, again)
    )
    assert repr(ours) == repr(theirs) and float(theirs(tf.constant(7))) == float(
        ours(tf.constant(7))
    )


@BOTH
def test_a_users_function_cannot_be_saved(optimizer):
    def halves(step):
        return 0.5 ** tf.cast(step, tf.float32)

    bridged = to_keras(optimizer(0.1, sign_decay_fn=halves))
    with pytest.raises(ValueError, match="sign_decay_fn=.*halves.*subclass"):
        bridged.get_config()


def test_logbase_cannot_be_set():
    bridged = to_keras(PowerSignOptimizer(base=2.0))
    for name in ("base", "logbase"):
        with pytest.raises(AttributeError, match=f"does not read {name} in each step"):
            setattr(bridged, name, 3.0)


class Halving(AddSignOptimizer):
    """Creates its sign decay function in the constructor, so that its config can be saved."""

    def __init__(self, learning_rate=0.1, half_life=10, name="Halving"):
        self._half_life = half_life
        super().__init__(
            learning_rate,
            sign_decay_fn=lambda step: 0.5 ** (tf.cast(step, tf.float32) / half_life),
            name=name,
        )


def test_a_subclass_that_creates_the_function_can_be_saved():
    bridged = to_keras(Halving(0.2, 3))
    again = type(bridged).from_config(json.loads(json.dumps(bridged.get_config())))
    assert again._v1.optimizer._half_life == 3 and again.get_config() == bridged.get_config()

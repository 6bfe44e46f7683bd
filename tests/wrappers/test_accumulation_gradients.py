"""Tests GradientAccumulationOptimizer with several kinds of gradients, and its errors."""

import numpy as np
import pytest
import tensorflow as tf

from legacy_opt import ClipByGlobalNormOptimizer, GradientAccumulationOptimizer
from tests.support import running
from tests.support.xla import with_xla

v1 = tf.compat.v1


@pytest.mark.parametrize("use_resource", [False, True])
def test_a_variable_without_a_gradient_is_not_updated(use_resource):
    with tf.Graph().as_default():
        a, b = (v1.get_variable(n, initializer=1.0, use_resource=use_resource) for n in "ab")
        optimizer = GradientAccumulationOptimizer(v1.train.AdamOptimizer(), 2)
        train_op = optimizer.minimize(a * a, var_list=[a, b])
        trained, untrained = running.after(train_op, [a, b], 2)
        assert trained < 1 and untrained == 1
        assert optimizer.get_slot(b, "m") is None and optimizer.get_slot(b, "gradient_sum") is None


def test_gradients_missing_in_some_batches():
    """A missing gradient is treated like zero, also in the last batch before the update."""
    a, b, c = (tf.Variable(1.0) for _ in "abc")
    optimizer = GradientAccumulationOptimizer(v1.train.GradientDescentOptimizer(1.0), 2)
    one = tf.constant(1.0)
    optimizer.apply_gradients([(one, a), (None, b), (None, c)])
    optimizer.apply_gradients([(None, a), (one, b), (None, c)])
    assert [v.numpy() for v in (a, b, c)] == [0.5, 0.5, 1.0]
    optimizer.apply_gradients([(None, a), (one, b), (None, c)])
    optimizer.apply_gradients([(None, a), (one, b), (None, c)])
    assert [v.numpy() for v in (a, b, c)] == [0.5, -0.5, 1.0]


@pytest.mark.parametrize("sparse_first", [True, False])
def test_a_variable_with_dense_and_sparse_gradients(sparse_first):
    table = tf.Variable(tf.ones([3, 1]))
    optimizer = GradientAccumulationOptimizer(v1.train.GradientDescentOptimizer(1.0), 2)
    grads = [
        tf.IndexedSlices(tf.ones([2, 1]), tf.constant([1, 1])),
        tf.constant([[2.0], [0.0], [4.0]]),
    ]
    for grad in grads if sparse_first else grads[::-1]:
        optimizer.apply_gradients([(grad, table)])
    np.testing.assert_array_equal(table.numpy(), [[0.0], [0.0], [-1.0]])


def test_float16_gradients_are_summed_in_float32():
    """In float16, adding 2**-11 to 1 results in 1, so float16 sums would lose gradients."""
    w = tf.Variable(tf.constant([0.0], tf.float16))
    optimizer = GradientAccumulationOptimizer(v1.train.GradientDescentOptimizer(1.0), 7)
    for gradient in [1.0] + [2.0**-11] * 6:
        optimizer.apply_gradients([(tf.constant([gradient], tf.float16), w)])
    assert w.numpy()[0] == np.float16(-(1 + 6 * 2.0**-11) / 7) != np.float16(-1.0 / 7)


class RememberingOptimizer(v1.train.Optimizer):
    """Stores the gradients, because TensorFlow 1.15 has no optimizer for complex gradients."""

    def apply_gradients(self, grads_and_vars, global_step=None, name=None):
        self.gradients = [grad.numpy().tolist() for grad, _ in grads_and_vars]


def test_complex_gradients_keep_both_parts():
    w = tf.Variable([1 + 1j, 1 + 2j], dtype=tf.complex64)
    inner = RememberingOptimizer(False, "Remembering")
    optimizer = GradientAccumulationOptimizer(inner, 2)
    for gradient in 1 + 2j, 3 - 1j:
        optimizer.apply_gradients([(tf.constant([gradient, 0j], tf.complex64), w)])
    assert inner.gradients == [[2 + 0.5j, 0]]


def test_xla():
    w, table = tf.Variable([1.0]), tf.Variable([[1.0]])
    optimizer = GradientAccumulationOptimizer(v1.train.MomentumOptimizer(1.0, 0.5), 2)

    def dense(gradient):
        optimizer.apply_gradients([(gradient, w)])

    other = GradientAccumulationOptimizer(v1.train.GradientDescentOptimizer(1.0), 2)

    def sparse(gradient):
        other.apply_gradients([(tf.IndexedSlices(gradient[None], tf.constant([0])), table)])

    train = compiled(dense)
    for _ in range(4):
        train(tf.constant([1.0]))
    assert w.numpy() == 1 - 1 - 1.5
    # Up to TensorFlow 2.1, the wrapper cannot detect that a function is built for XLA, so the error
    # comes from XLA.
    errors, message = (
        (ValueError, tf.errors.InvalidArgumentError),
        "XLA cannot compile|not compilable",
    )
    with pytest.raises(errors, match=message):
        compiled(sparse)(tf.constant([1.0]))


def compiled(function):
    return tf.function(function, autograph=False, **with_xla())


# Errors.


@pytest.mark.parametrize(
    "optimizer, steps, name, error, message",
    [
        ("adam", 2, "A", TypeError, "wraps tf.compat.v1.train.Optimizer instances, got 'adam'"),
        (v1.train.AdamOptimizer, 2, "A", TypeError, "Pass an instance, not the class"),
        (v1.train.AdamOptimizer(), 0, "A", ValueError, "steps must be positive, got 0"),
        (v1.train.AdamOptimizer(), -1, "A", ValueError, "steps must be positive, got -1"),
        (v1.train.AdamOptimizer(), 2.0, "A", TypeError, "steps must be an integer, got 2.0"),
        (v1.train.AdamOptimizer(), True, "A", TypeError, "steps must be a number, got True"),
        (v1.train.AdamOptimizer(), "2", "A", TypeError, "steps must be a number, got '2'"),
        (v1.train.AdamOptimizer(), 2, None, TypeError, "name must be a string"),
    ],
)
def test_wrong_arguments(optimizer, steps, name, error, message):
    with pytest.raises(error, match=message):
        GradientAccumulationOptimizer(optimizer, steps, name)


def test_wrong_gradients():
    a, b = tf.Variable([1.0], name="a"), tf.Variable([1.0], name="b")
    one = tf.constant([1.0])
    rows = tf.IndexedSlices(tf.ones([1, 2]), tf.constant([0]))

    def apply(*pairs):
        optimizer = GradientAccumulationOptimizer(v1.train.GradientDescentOptimizer(1.0), 2)
        optimizer.apply_gradients(pairs)

    for pairs, error, message in [
        ([(None, a), (None, b)], ValueError, "no variable has a gradient. .* none of 'a:0', 'b:0'"),
        ([], ValueError, "no variable has a gradient. The list is empty"),
        ([(one, a), (one, a)], ValueError, "variable 'a:0' twice"),
        ([(tf.ones([2]), a)], ValueError, "variable 'a:0' has shape .*2.*expected .*1"),
        ([(rows, a)], ValueError, "sparse gradient of variable 'a:0' has shape"),
        ([(tf.constant([1]), a)], TypeError, "variable 'a:0' has dtype int32"),
        ([(one, "a")], TypeError, "'a' is not a variable"),
    ]:
        with pytest.raises(error, match=message):
            apply(*pairs)


def test_a_wrong_global_step_raises_at_once():
    a, optimizer = tf.Variable([1.0]), GradientAccumulationOptimizer(v1.train.AdamOptimizer(), 2)
    with pytest.raises(TypeError, match="global_step must be a variable.*got 3"):
        optimizer.apply_gradients([(tf.constant([1.0]), a)], global_step=3)


def test_another_list_of_variables_is_refused():
    """Two train_ops would share one batch count, but apply different lists of gradients."""
    message = "one optimizer for each list of variables"
    optimizer = GradientAccumulationOptimizer(v1.train.GradientDescentOptimizer(1.0), 2)
    with tf.Graph().as_default():
        a, b = (v1.get_variable(name, initializer=1.0) for name in "ab")
        optimizer.minimize(a * a, var_list=[a])
        with pytest.raises(
            ValueError, match="without a gradient of the variable 'b:0'.*" + message
        ):
            optimizer.minimize(a * b, var_list=[a, b])
        with pytest.raises(
            ValueError, match="without a gradient of the variable 'b:0'.*" + message
        ):
            optimizer.minimize(b * b, var_list=[b])
    a, b, one = tf.Variable(1.0), tf.Variable(1.0), tf.constant(1.0)
    optimizer.apply_gradients([(one, a)])  # eager execution is independent of the graph above
    with pytest.raises(ValueError, match="variables that this call leaves out.*" + message):
        optimizer.apply_gradients([(one, b)])


def test_two_train_ops_of_one_graph_share_the_sums():
    with tf.Graph().as_default(), v1.Session() as sess:
        a, b = (v1.get_variable(name, initializer=1.0) for name in "ab")
        optimizer = GradientAccumulationOptimizer(v1.train.GradientDescentOptimizer(1.0), 2)
        both = optimizer.apply_gradients([(tf.constant(1.0), a), (tf.constant(1.0), b)])
        only_a = optimizer.apply_gradients([(tf.constant(3.0), a), (None, b)])
        sess.run(v1.global_variables_initializer())
        sess.run(both)
        sess.run(only_a)
        assert sess.run([a, b]) == [-1.0, 0.5]


def test_combination_with_sync_replicas_is_refused():
    """SyncReplicas waits for an update in each call. With accumulation, it would wait forever."""
    adam = v1.train.AdamOptimizer()
    with tf.Graph().as_default():
        sync = v1.train.SyncReplicasOptimizer(adam, replicas_to_aggregate=1)
        adam.itself = adam  # the search for nested optimizers must not loop
        for inner in sync, ClipByGlobalNormOptimizer(sync, 1.0):
            with pytest.raises(ValueError, match="cannot wrap.*replicas_to_aggregate=steps"):
                GradientAccumulationOptimizer(inner, 2)
        step = v1.train.get_or_create_global_step()
        w = v1.get_variable("w", initializer=[[1.0]])
        inner = ClipByGlobalNormOptimizer(GradientAccumulationOptimizer(adam, 2), 1.0)
        for loss in w * w, tf.gather(w, [0]):
            sync = v1.train.SyncReplicasOptimizer(inner, replicas_to_aggregate=1)
            with pytest.raises(ValueError, match="cannot be in.*replicas_to_aggregate=steps"):
                sync.minimize(loss, step)
        inner = GradientAccumulationOptimizer(adam, 1)
        v1.train.SyncReplicasOptimizer(inner, replicas_to_aggregate=1).minimize(w * w, step)


def test_in_a_distribution_strategy():
    strategy = tf.distribute.MirroredStrategy(["cpu:0"])
    run = running.on_replicas(strategy)
    with strategy.scope():
        w = tf.Variable(1.0)

    def train(steps):
        optimizer = GradientAccumulationOptimizer(v1.train.GradientDescentOptimizer(0.5), steps)

        def replica():
            optimizer.apply_gradients([(tf.constant(1.0), w)])

        return lambda: run(replica)

    with pytest.raises(ValueError, match="does not run in a tf.distribute strategy"):
        train(2)()
    tf.function(train(1))()
    assert w.numpy() == 0.5

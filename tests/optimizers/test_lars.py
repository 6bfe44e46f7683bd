"""Tests LARS: values computed by hand, cases in which LARS equals plain momentum, and errors."""

import numpy as np
import pytest
import tensorflow as tf

from legacy_opt import LARSOptimizer
from legacy_opt.compat import to_keras
from tests.optimizers.nested_layers import built_block
from tests.support import problems, running
from tests.support.running import REF_AND_RESOURCE

v1 = tf.compat.v1


def train(optimizer, gradients, value, use_resource=True, name="w", dtype="float32"):
    """Trains one variable in a Session, one step for each gradient.

    The optimizer and each gradient may be a function without arguments, which is called while the
    graph is built.

    Returns:
      For each step, the values of the variable and of its momentum after the step.
    """
    with tf.Graph().as_default():
        w = v1.get_variable(name, initializer=tf.constant(value, dtype), use_resource=use_resource)
        made = optimizer() if callable(optimizer) else optimizer
        gradients = [
            gradient() if callable(gradient) else tf.constant(gradient, dtype)
            for gradient in gradients
        ]
        train_ops = [made.apply_gradients([(gradient, w)]) for gradient in gradients]
        momentum = made.get_slot(w, "momentum")
        assert momentum.op.name == name + "/" + made.get_name()
        with running.started() as sess:
            return [(sess.run(train_op), sess.run([w, momentum]))[1] for train_op in train_ops]


@REF_AND_RESOURCE
@pytest.mark.parametrize("nesterov", [False, True])
@pytest.mark.parametrize("fused", [True, False], ids=["kernel", "rule"])
def test_two_steps_by_hand(use_resource, nesterov, fused):
    # trust = eeta * |w| / (|g| + weight_decay * |w|), or 1 if a norm is 0
    # rate = learning_rate * trust; g' = g + weight_decay * w
    # momentum = .5 * momentum + rate * g'; w -= momentum
    # Learning rate 2, momentum 0.5, weight decay 0.5, eeta 0.75, w [3, 4], |w| 5
    # g [0, 5]: |g| 5; trust .75 * 5 / (5 + 2.5) = .5; rate 1; g' = [0 + 1.5, 5 + 2]
    #           momentum [1.5, 7];  w = [1.5, -3]
    #           nesterov: w -= [1.5, 7] + .5 * [1.5, 7], so w = [.75, -6.5]
    # g [0, 0]: |g| 0, trust 1; rate 2; g' = .5 * w
    #           momentum = .5 * [1.5, 7] + [1.5, -3] = [2.25, .5];  w = [-.75, -3.5]
    #           nesterov: momentum = [.75, 3.5] + [.75, -6.5] = [1.5, -3]
    #                     w -= [.75, -6.5] + [.75, -1.5], so w = [-.75, 1.5]
    optimizer = LARSOptimizer(2.0, 0.5, 0.5, 0.75, use_nesterov=nesterov)
    optimizer.use_fused_kernels = fused
    (first, m1), (second, m2) = train(optimizer, [[0.0, 5.0], [0.0, 0.0]], [3.0, 4.0], use_resource)
    assert m1.tolist() == [1.5, 7.0]
    if nesterov:
        assert first.tolist() == [0.75, -6.5] and m2.tolist() == [1.5, -3.0]
        assert second.tolist() == [-0.75, 1.5]
    else:
        assert first.tolist() == [1.5, -3.0] and m2.tolist() == [2.25, 0.5]
        assert second.tolist() == [-0.75, -3.5]


def test_epsilon_is_part_of_the_divisor():
    # trust .75 * 5 / (5 + 2.5 + 7.5) = .25; rate 2 * .25; g' = g + .5 * w = [1.5, 7]
    ((value, _),) = train(LARSOptimizer(2.0, 0.5, 0.5, 0.75, 7.5), [[0.0, 5.0]], [3.0, 4.0])
    assert value.tolist() == [2.25, 0.5]


def test_a_variable_of_norm_zero_has_a_trust_ratio_of_one():
    ((value, _),) = train(LARSOptimizer(2.0, 0.5, 0.5, 0.75), [[0.0, 5.0]], [0.0, 0.0])
    assert value.tolist() == [0.0, -10.0]


@pytest.mark.parametrize(
    "skip_list, skipped",
    [(None, False), ([], False), (["bia"], False), (["x", "ense/bi"], True), (("s:0",), True)],
)
def test_variables_in_the_skip_list_get_plain_momentum(skip_list, skipped):
    optimizer = LARSOptimizer(2.0, 0.5, 0.5, 0.75, skip_list=skip_list)
    if skip_list == ["bia"]:
        name = "dense/kernel"
    else:
        name = "dense/bias"
    ((value, momentum),) = train(optimizer, [[0.0, 5.0]], [3.0, 4.0], name=name)
    assert value.tolist() == ([3.0, -6.0] if skipped else [1.5, -3.0])
    assert momentum.tolist() == ([0.0, 10.0] if skipped else [1.5, 7.0])


@pytest.mark.parametrize("nesterov", [False, True])
@pytest.mark.parametrize("way", ["session-ref", "session-resource", "eager"])
def test_sparse_gradients_get_plain_momentum(way, nesterov):
    problem = problems.make("duplicates", steps=7)
    running.assert_same(
        running.WAYS[way](problem, lambda _: LARSOptimizer(0.1, 0.8, 0.5, use_nesterov=nesterov)),
        running.WAYS[way](
            problem, lambda _: v1.train.MomentumOptimizer(0.1, 0.8, use_nesterov=nesterov)
        ),
    )


def test_float64_uses_hyperparameters_in_full_precision():
    ((value, _),) = train(
        LARSOptimizer(0.1, 0.9, 0.3, 0.7), [[0.0, 5.0]], [3.0, 4.0], dtype="float64"
    )
    rate = 0.1 * (0.7 * 5 / (5 + 0.3 * 5))
    np.testing.assert_allclose(value, [3 - rate * 0.9, 4 - rate * 6.2], rtol=1e-15)
    # Sparse updates round the hyperparameters to float32.
    ((value, _),) = train(
        LARSOptimizer(0.1),
        [lambda: tf.IndexedSlices(tf.ones([1], tf.float64), tf.constant([0]))],
        [0.0, 4.0],
        dtype="float64",
    )
    assert value.tolist() == [-float(np.float32(0.1)), 4.0]


def test_hyperparameters_may_be_callables_and_tensors():
    def make():
        return LARSOptimizer(lambda: 2.0, tf.constant(0.5), lambda: tf.constant(0.5), 0.75)

    ((value, _),) = train(make, [[0.0, 5.0]], [3.0, 4.0])
    assert value.tolist() == [1.5, -3.0]


def test_each_part_of_a_partitioned_variable_has_a_separate_norm():
    with tf.Graph().as_default():
        parts = v1.get_variable(
            "w",
            initializer=tf.constant([[3.0, 4.0], [0.0, 0.0]]),
            partitioner=v1.fixed_size_partitioner(2),
        )
        pairs = [(tf.constant([[0.0, 5.0]]), part) for part in parts]
        train_op = LARSOptimizer(2.0, 0.5, 0.5, 0.75).apply_gradients(pairs)
        values = running.after(train_op, tf.convert_to_tensor(parts))
    assert values.tolist() == [[1.5, -3.0], [0.0, -10.0]]


@pytest.mark.parametrize(
    "arguments, error",
    [
        ({"momentum": -0.1}, ValueError),
        ({"weight_decay": -0.1}, ValueError),
        ({"skip_list": "bias"}, TypeError),
        ({"skip_list": [1]}, TypeError),
    ],
)
def test_wrong_arguments(arguments, error):
    with pytest.raises(error, match=list(arguments)[0]):
        LARSOptimizer(0.1, **arguments)


def test_a_skip_list_may_be_any_iterable():
    assert LARSOptimizer(0.1, skip_list=(name for name in ["bias"]))._skip_list == ["bias"]


@pytest.mark.parametrize(
    "skip_list, skipped",
    [(["LayerNorm"], [True, False]), (["dense/kernel:0"], [False, True]), ([":0"], [True, True])],
)
def test_layers_of_keras_are_skipped_by_the_names_of_enclosing_layers(skip_list, skipped):
    block = built_block()
    weights = block.trainable_variables
    before = [weight.numpy() for weight in weights]
    optimizer = to_keras(LARSOptimizer(1.0, weight_decay=0.0, eeta=0.0, skip_list=skip_list))
    optimizer.apply_gradients([(tf.ones(weight.shape), weight) for weight in weights])
    moved = [bool(np.any(weight.numpy() != old)) for weight, old in zip(weights, before)]
    assert moved == skipped  # with eeta=0, weights that are not skipped have the learning rate 0


def test_sparse_updates_have_the_hyperparameters_of_hyper_for():
    """With half of both: 1 - 0.25 * 2 = 0.5, then 0.5 - 0.25 * (0.4 * 2 + 2) = -0.2."""

    class Halved(LARSOptimizer):
        def hyper_for(self, variable):
            hyper = super().hyper_for(variable)
            hyper.learning_rate *= 0.5
            hyper.momentum *= 0.5
            return hyper

    def gradient():
        return tf.IndexedSlices(tf.constant([[2.0]]), tf.constant([1]), [2, 1])

    (first, _), (second, _) = train(lambda: Halved(0.5, 0.8), [gradient] * 2, [[1.0], [1.0]])
    np.testing.assert_array_equal(first, np.float32([[1.0], [0.5]]))
    np.testing.assert_allclose(second, [[1.0], [-0.2]], rtol=1e-6)

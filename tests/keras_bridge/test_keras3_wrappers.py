"""Tests the Keras 3 bridge (`to_keras`) with wrappers: optimizers that contain v1 optimizers."""

import copy
import json
import pickle

import numpy as np
import pytest
import tensorflow as tf

from legacy_opt import ClipByValueOptimizer, GradientAccumulationOptimizer, MultiOptimizer, versions
from legacy_opt.compat import load_v1_checkpoint, save_v1_checkpoint, to_v1
from tests.support.keras.keras_apis import KERAS_3
from tests.support.keras.loading import load_model

bridged = KERAS_3.bridged

pytestmark = pytest.mark.keras3

v1 = tf.compat.v1
keras = versions.keras_3()


def sgd(rate=0.5):
    return v1.train.GradientDescentOptimizer(rate)


def variable(value=(1.0,), name="w"):
    return keras.Variable(value, name=name)


def apply(optimizer, *pairs):
    optimizer.apply_gradients([(tf.constant(grad), each) for grad, each in pairs])


# Continuing from saved state.

INSIDE = {
    "multi": lambda: MultiOptimizer(
        [(v1.train.AdamOptimizer(0.1), ".*kernel")], v1.train.AdamOptimizer(0.2)
    ),
    "clip": lambda: ClipByValueOptimizer(v1.train.MomentumOptimizer(0.1, 0.9), -1.0, 1.0),
}


def compiled(name):
    layers = [keras.Input([3]), keras.layers.Dense(2, name="hidden")]
    model = keras.Sequential(layers, name="model")
    model.set_weights([np.ones([3, 2]), np.ones([2])])
    optimizer = bridged(GradientAccumulationOptimizer(INSIDE[name](), 2))
    model.compile(optimizer, "mse")
    return model


def train(model, first, last):
    for number in range(first, last):
        random = np.random.RandomState(number)
        grads = [tf.constant(random.randn(*each.shape), "float32") for each in model.variables]
        model.optimizer.apply(grads, model.trainable_variables)
    return model


def by_keras_file(model, path, name):
    model.save(str(path / "model.keras"))
    return load_model(KERAS_3, path / "model.keras")


def by_weights_file(model, path, name):
    model.save_weights(str(path / "model.weights.h5"))
    other = compiled(name)
    other.optimizer.build(other.trainable_variables)
    other.load_weights(str(path / "model.weights.h5"))
    return other


def by_checkpoint(model, path, name):
    saved = tf.train.Checkpoint(optimizer=model.optimizer, model=model).save(str(path / "saved"))
    other = compiled(name)
    tf.train.Checkpoint(optimizer=other.optimizer, model=other).restore(saved)
    return other


def by_v1_checkpoint(model, path, name):
    save_v1_checkpoint(str(path / "v1"), model, model.optimizer)
    other = compiled(name)
    load_v1_checkpoint(str(path / "v1"), other, other.optimizer)
    return other


def by_copying(model, path, name):
    other = compiled(name)
    other.set_weights(model.get_weights())
    other.compile(pickle.loads(pickle.dumps(model.optimizer)), "mse")
    other.optimizer.build(other.trainable_variables)
    other.optimizer.set_weights([each.numpy() for each in model.optimizer.variables])
    return other


@pytest.mark.filterwarnings("ignore:Skipping variable loading for optimizer")
@pytest.mark.parametrize("name", list(INSIDE))
@pytest.mark.parametrize(
    "way", [by_keras_file, by_weights_file, by_checkpoint, by_v1_checkpoint, by_copying]
)
def test_training_continues_from_saved_state(name, way, tmp_path):
    expected = train(compiled(name), 0, 6)
    other = train(way(train(compiled(name), 0, 3), tmp_path, name), 3, 6)
    for one, two in zip(other.get_weights(), expected.get_weights()):
        np.testing.assert_array_equal(one, two)
    assert len(other.optimizer.variables) == len(expected.optimizer.variables)
    for one, two in zip(other.optimizer.variables, expected.optimizer.variables):
        np.testing.assert_array_equal(one.numpy(), two.numpy())
    assert int(other.optimizer.iterations) == 3


def test_routes_by_variables_cannot_be_copied():
    optimizer = bridged(MultiOptimizer([(sgd(), [variable()])]))
    with pytest.raises(ValueError, match="MultiOptimizer cannot be saved: its route"):
        copy.deepcopy(optimizer)


def test_schedules_inside_are_saved_and_count_updates():
    decay = v1.train.exponential_decay(1.0, tf.Variable(0, dtype=tf.int64), 1, 0.5)
    inside = MultiOptimizer([(sgd(decay), "a")], sgd(0.25))
    optimizer = bridged(GradientAccumulationOptimizer(inside, 2))
    saved = json.loads(json.dumps(keras.optimizers.serialize(optimizer)))
    again = keras.optimizers.deserialize(saved)
    assert again.get_config() == optimizer.get_config()
    for each in optimizer, again:
        a, b = variable(0.0, "a"), variable(0.0, "b")
        for _ in range(4):
            apply(each, (1.0, a), (1.0, b))
        assert (float(a.numpy()), float(b.numpy())) == (-1.5, -0.5)
    # `again` has a Keras schedule, which cannot be converted to a v1 decay.
    assert type(to_v1(again)).__name__ == "KerasInV1"
    (multi,) = to_v1(optimizer).wrapped
    assert multi.wrapped[0]._learning_rate is decay


# Names of layers, Keras' options, and XLA.


def test_routes_match_names_with_their_layers():
    model = keras.Sequential([keras.Input([1]), keras.layers.Dense(1, name="deep")])
    model.set_weights([np.ones([1, 1]), np.ones([1])])
    optimizer = bridged(MultiOptimizer([(sgd(1.0), "(.*/)?deep/kernel")], sgd(0.25)))
    apply(optimizer, *[(np.ones(each.shape, "f"), each) for each in model.trainable_variables])
    assert [float(each.ravel()[0]) for each in model.get_weights()] == [0.0, 0.75]


@pytest.mark.parametrize(
    "arguments", [{"gradient_accumulation_steps": 2}, {"weight_decay": 0.1}, {"use_ema": True}]
)
def test_options_that_act_in_each_batch_are_refused(arguments):
    with pytest.raises(ValueError, match="Keras would apply this option in each batch"):
        bridged(GradientAccumulationOptimizer(sgd(), 2), **arguments)


def test_keras_accumulates_gradients_before_a_wrapper():
    optimizer = bridged(ClipByValueOptimizer(sgd(), -1.0, 1.0), gradient_accumulation_steps=2)
    w = variable([0.0])
    for gradient in 3.0, -2.0, 8.0, 8.0:
        apply(optimizer, ([gradient], w))
    assert w.numpy() == -0.25 - 0.5 and int(optimizer.iterations) == 2


def test_embeddings_compile_with_xla_without_fused_kernels():
    multi = MultiOptimizer([(v1.train.AdagradOptimizer(0.5, 1.0), "table")], sgd())
    bridge = bridged(ClipByValueOptimizer(multi, -2.0, 2.0), fused=False)
    table = variable(np.zeros([3, 2], "f"), "table")
    bridge.build([table])

    @tf.function(jit_compile=True)
    def step(values, ids):
        bridge.apply_gradients([(tf.IndexedSlices(values, ids, [3, 2]), table)])

    step(tf.constant([[1.0, 3.0], [1.0, 0.0]]), tf.constant([2, 2]))
    row = [-2 / 2 / np.sqrt(5)] * 2
    np.testing.assert_allclose(table.numpy(), [[0, 0], [0, 0], row], rtol=1e-6)

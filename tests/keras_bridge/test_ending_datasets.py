"""Tests training on datasets of unknown length, whose last step fails and must change nothing."""

import contextlib
import functools

import numpy as np
import pytest
import tensorflow as tf

import legacy_opt
from legacy_opt import versions
from legacy_opt.compat import to_v1
from legacy_opt.core.gradient_order import writes_after
from tests.support import ending_datasets, problems
from tests.support.exactness import EQUAL
from tests.support.keras.keras_apis import of_each

v1 = tf.compat.v1
WAYS = pytest.mark.parametrize("way", ending_datasets.WAYS)
DENSE_AND_SPARSE = problems.everything(only=("matrix", "table"), steps=3)
EPOCHS, STEPS = 3, 5  # of 4 examples each


def adam(_=None):
    return v1.train.AdamOptimizer(0.1)


# Without Keras.


@WAYS
def test_tensorflows_adam_decays_its_slots_once_more(way):
    """Shows that these tests would find a write that does not wait."""
    changed = ending_datasets.changed(way, DENSE_AND_SPARSE, adam)
    assert len(changed) == 2 and all(name.startswith("table/Adam") for name in changed)


def not_decayed(step):
    """Returns an AdamWOptimizer whose weight decay leaves the table out."""
    optimizer = legacy_opt.AdamWOptimizer(0.1, learning_rate=0.1)
    apply_gradients = optimizer.apply_gradients

    def of_the_matrix(pairs, global_step):
        return apply_gradients(pairs, global_step, decay_var_list=[pairs[0][1]])

    optimizer.apply_gradients = of_the_matrix
    return optimizer


def averaged(step, inner=lambda: v1.train.GradientDescentOptimizer(0.1), **arguments):
    return legacy_opt.MovingAverageOptimizer(inner(), 0.9, **arguments)


def in_turn(step):
    return legacy_opt.GradientAccumulationOptimizer(legacy_opt.LazyAdamOptimizer(0.1), 2)


def routed(step):
    decay = legacy_opt.AdagradDecayOptimizer(0.1, step, accumulator_decay_step=2)
    return legacy_opt.MultiOptimizer([(decay, "table")], default=legacy_opt.AdamWOptimizer(0.1))


OF_THIS_PACKAGE = {
    "AdamW, decay_var_list": not_decayed,
    "MovingAverage": averaged,
    "MovingAverage, parallel": functools.partial(averaged, sequential_update=False),
    "GradientAccumulation": in_turn,
    "MultiOptimizer": routed,
}


@pytest.mark.in_turn(name=list(OF_THIS_PACKAGE), way=list(ending_datasets.WAYS))
def test_a_step_at_the_end_of_a_dataset_changes_nothing(name, way):
    assert not ending_datasets.changed(way, DENSE_AND_SPARSE, OF_THIS_PACKAGE[name])


# With Keras.


@pytest.mark.parametrize("name", ["AdagradDecay", "AdamW"])
def test_fit_on_a_dataset_of_unknown_length_equals_a_session_that_is_fed(api, name, cell):
    assert cell(name, "fit, unknown length", "float32", api.name) == EQUAL


def test_waiting_does_not_change_the_order_of_products():
    """TensorFlow multiplies the gradient's factors with the learning rate first."""
    given = np.random.RandomState(0).randn(64).astype("f")

    def trained(scope):
        weights, rate = tf.Variable(tf.zeros([64])), tf.Variable(0.3)

        def step(values):
            grad = (values * 0.37) * 0.71
            with scope([grad]):
                weights.assign_sub(rate * grad)

        tf.function(step, input_signature=[tf.TensorSpec([64])])(given)
        return weights.numpy()

    expected = trained(lambda _: contextlib.ExitStack())
    np.testing.assert_array_equal(trained(writes_after), expected)


def fitted(keras, optimizer, known_length):
    """Trains a small model for `EPOCHS` epochs of `STEPS` steps; returns the model."""
    ids = keras.Input([2], dtype="int64")
    rows = keras.layers.Embedding(9, 2)(ids)
    dense = keras.layers.Dense(1, kernel_constraint=keras.constraints.UnitNorm())
    model = keras.Model(ids, dense(keras.layers.Flatten()(rows)))
    shapes = [each.shape for each in model.get_weights()]
    model.set_weights([np.linspace(-1, 1, np.prod(each)).reshape(each) for each in shapes])
    model.compile(optimizer, "mse")
    random = np.random.RandomState(0)
    data = random.randint(0, 9, size=(60, 2)), random.randn(60, 1).astype("f")
    if known_length:
        model.fit(*data, batch_size=4, shuffle=False, verbose=0)
    else:
        dataset = ending_datasets.in_epochs(data, 4, STEPS)
        model.fit(dataset, epochs=EPOCHS, shuffle=False, verbose=0)
    return model


OPTIONS = {
    "decay": {"decay": 0.1},
    "clipnorm": {"clipnorm": 0.1},
    "weight_decay": {"weight_decay": 0.1},
    "use_ema": {"use_ema": True, "ema_overwrite_frequency": 2},
    "gradient_accumulation_steps": {"gradient_accumulation_steps": 2},
}


@of_each("option", ["decay", "clipnorm"], [each for each in OPTIONS if each != "decay"])
def test_options_of_keras_on_a_dataset_of_unknown_length(api, option):
    found = []
    for known_length in (True, False):
        optimizer = api.bridged(adam(), **OPTIONS[option])
        model = fitted(api.keras, optimizer, known_length)
        found.append(model.get_weights() + [each.numpy() for each in optimizer.weights])
    for expected, actual in zip(*found):
        np.testing.assert_array_equal(actual, expected)


@pytest.mark.keras3
@pytest.mark.every_lane
def test_keras_3_itself_counts_a_step_that_does_not_exist():
    """docs/keras.md says so; Keras 3.16 does no longer."""
    keras = versions.keras_3()
    optimizer = keras.optimizers.SGD(0.1)
    fitted(keras, optimizer, known_length=False)
    counts_too_much = int(keras.__version__.split(".")[1]) < 16
    assert int(optimizer.iterations.numpy()) == EPOCHS * (STEPS + counts_too_much)


# Optimizers of Keras in TF1 graphs, made by to_v1.


def test_optimizers_in_tf1_graphs(api):
    """Keras 2's Adam decays whole slots of embeddings; Keras 3 counts steps."""
    made = lambda _: to_v1(lambda: api.optimizers.Adam(0.1))  # noqa: E731
    assert not ending_datasets.changed("session-resource", DENSE_AND_SPARSE, made)


def test_bridged_optimizers_in_tf1_graphs(api):
    bridged = lambda _: to_v1(lambda: api.bridged(adam(), clipnorm=0.5))  # noqa: E731
    assert not ending_datasets.changed("session-resource", DENSE_AND_SPARSE, bridged)

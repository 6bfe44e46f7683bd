"""Tests that deepctr's Keras models and Estimators train with the optimizers of this package.

A bridged optimizer is a Keras optimizer that `to_keras` returns.
"""

import numpy as np
import pytest
import tensorflow as tf
from deepctr.estimator import DeepFMEstimator
from deepctr.feature_column import DenseFeat, SparseFeat, get_feature_names
from deepctr.models import WDL, DeepFM

import legacy_opt
from legacy_opt.compat import to_keras

# On TensorFlow 1.15, the gradients of deepctr's embeddings are made dense.
pytestmark = pytest.mark.filterwarnings("ignore:Converting sparse IndexedSlices:UserWarning")
v1 = tf.compat.v1
ROWS, BATCH = 512, 64
SIZES = {"user": 30, "item": 20}
NAMES = sorted(SIZES) + ["price"]


@pytest.fixture(scope="module")
def data():
    """Returns features by name, and labels that depend on them."""
    random = np.random.RandomState(7)
    features = {name: random.randint(0, size, size=ROWS) for name, size in SIZES.items()}
    logits = sum(random.normal(size=SIZES[name])[ids] for name, ids in features.items())
    features["price"] = random.normal(size=ROWS).astype(np.float32)
    return features, (logits + features["price"] > 0).astype(np.float32)


# Keras.


def keras_model(kind):
    """Builds a Keras model of deepctr."""
    tf.keras.backend.clear_session()
    (tf.random.set_seed if hasattr(tf.random, "set_seed") else v1.set_random_seed)(1)
    columns = [SparseFeat(name, size, embedding_dim=4) for name, size in sorted(SIZES.items())]
    columns.append(DenseFeat("price", 1))
    assert get_feature_names(columns) == NAMES
    return kind(columns, columns, dnn_hidden_units=(16, 8), task="binary")


def fit(model, v1_optimizer, data, epochs=4):
    """Trains with a bridged optimizer. Returns the loss of each epoch, and the optimizer."""
    features, labels = data
    optimizer = to_keras(v1_optimizer)
    model.compile(optimizer, "binary_crossentropy")
    inputs = [features[name] for name in NAMES]
    history = model.fit(inputs, labels, BATCH, epochs, shuffle=False, verbose=0)
    return history.history["loss"], optimizer


@pytest.mark.parametrize("kind", [DeepFM, WDL])
def test_a_keras_model_trains_with_a_bridged_optimizer(kind, data):
    model = keras_model(kind)
    adagrad_decay = legacy_opt.AdagradDecayOptimizer(0.1, None, accumulator_decay_step=10)
    losses, optimizer = fit(model, adagrad_decay, data)
    assert losses[-1] < 0.9 * losses[0]
    steps = 4 * ROWS // BATCH
    assert tf.keras.backend.get_value(optimizer.iterations) == steps
    decayed = {
        weight.name: tf.keras.backend.get_value(
            optimizer.get_slot(weight, "accumulator_decay_power")
        ).max()
        for weight in model.trainable_weights
    }
    assert set(decayed.values()) == {steps // 10}, decayed


def test_before_its_first_decay_adagrad_decay_equals_adagrad_bit_for_bit(data):
    model = keras_model(DeepFM)
    start, weights = model.get_weights(), []
    for optimizer in (
        legacy_opt.AdagradDecayOptimizer(0.1, None),
        v1.train.AdagradOptimizer(0.1),
    ):
        model.set_weights(start)
        fit(model, optimizer, data, epochs=2)
        weights.append(model.get_weights())
    for ours, stock in zip(*weights):
        np.testing.assert_array_equal(ours, stock)


# Estimators.


def adagrad_decay():
    """Returns AdagradDecay with the global step of the graph that is being built."""
    step = v1.train.get_or_create_global_step()
    return legacy_opt.AdagradDecayOptimizer(0.1, step, accumulator_decay_step=10)


# {how optimizers are passed: (optimizer of the linear part, optimizer of the deep part)}
PLUGGED = {
    "instances": (legacy_opt.LazyAdamOptimizer(0.02), legacy_opt.AdamAsyncOptimizer(0.01)),
    "functions": (lambda: v1.train.FtrlOptimizer(0.1), adagrad_decay),
}
SLOTS = {
    # In checkpoints, the slots of LazyAdam have the names of Adam's slots.
    "instances": ({"Adam", "Adam_1"}, {"AdamAsync", "AdamAsync_1"}),
    "functions": ({"Ftrl", "Ftrl_1"}, {"AdagradDecay", "AdagradDecay_1"}),
}


# deepctr increments the global step itself, after `minimize`.
@pytest.mark.filterwarnings("ignore::legacy_opt.GlobalStepWarning")
@pytest.mark.parametrize("how", sorted(PLUGGED))
def test_an_estimator_trains_with_our_optimizers(how, data, tmp_path):
    features, labels = data
    column = tf.feature_column
    ids = {
        name: column.categorical_column_with_identity(name, size) for name, size in SIZES.items()
    }
    embedded = [column.embedding_column(each, 4) for each in ids.values()]
    price = column.numeric_column("price")
    linear, dnn = PLUGGED[how]
    estimator = DeepFMEstimator(
        list(ids.values()) + [price],
        embedded + [price],
        dnn_hidden_units=(16, 8),
        linear_optimizer=linear,
        dnn_optimizer=dnn,
        model_dir=str(tmp_path),
        config=tf.estimator.RunConfig(tf_random_seed=1),
    )

    def inputs(epochs):
        rows = tf.data.Dataset.from_tensor_slices((features, labels[:, None]))
        return rows.repeat(epochs).batch(BATCH)

    estimator.train(lambda: inputs(1))
    before = estimator.evaluate(lambda: inputs(1))
    estimator.train(lambda: inputs(3))  # resumes from the checkpoint
    after = estimator.evaluate(lambda: inputs(1))
    assert after["loss"] < 0.9 * before["loss"]
    assert (before["global_step"], after["global_step"]) == (ROWS // BATCH, 4 * ROWS // BATCH)
    saved = tf.train.load_checkpoint(estimator.latest_checkpoint())
    assert slots_of(saved, "linear/linear_model/price/weights") == SLOTS[how][0]
    shapes = saved.get_variable_to_shape_map()
    (kernel,) = [
        name
        for name, shape in shapes.items()
        if shape == [16, 8] and name.rpartition("/")[2].startswith("kernel")
    ]
    assert SLOTS[how][1] <= slots_of(saved, kernel)
    if how == "functions":
        assert saved.get_tensor(kernel + "/AdagradDecay_1").max() == 3


def slots_of(saved, variable):
    """Returns the names of a variable's slots in a checkpoint, without the variable's name."""
    names = saved.get_variable_to_shape_map()
    return {name[len(variable) + 1 :] for name in names if name.startswith(variable + "/")}

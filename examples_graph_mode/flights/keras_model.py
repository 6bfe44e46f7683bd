"""The late-arrival model in tf.keras (Keras 2 or Keras 3), and its training with `fit`."""

import numpy as np
import tensorflow as tf
from tqdm import tqdm

from flights.model import HIDDEN_UNITS
from legacy_opt.versions import keras_facts

keras = tf.keras
KERAS = "Keras " + keras_facts()["version"]


class Wide(keras.layers.Layer):
    """Converts ids [batch, fields] to logits [batch, 1], with a bias and one weight per id."""

    def __init__(self, vocabulary_size, **arguments):
        # Without a dtype, Keras in TensorFlow 1 gives the weights the dtype of the ids, int32.
        super().__init__(dtype="float32", **arguments)
        self.vocabulary_size = vocabulary_size

    def build(self, input_shape):
        self.bias = self.add_weight(name="bias", shape=[], initializer="zeros")
        self.wide = self.add_weight(name="wide", shape=[self.vocabulary_size], initializer="zeros")
        super().build(input_shape)

    def call(self, ids):
        logits = self.bias + tf.reduce_sum(tf.nn.embedding_lookup(self.wide, ids), axis=1)
        # Without this reshape TensorFlow might add the bias last, because it reorders the terms of
        # a sum if all of them have the same known shape.
        return tf.expand_dims(logits, axis=1)


class AddBias(keras.layers.Layer):
    """Adds a bias with a plain addition.

    The layer Dense would use the operation BiasAdd (Keras 3: except for one unit), whose gradient
    sums the batch in another order than the gradient of an addition.
    """

    def build(self, input_shape):
        self.bias = self.add_weight(name="bias", shape=[input_shape[-1]], initializer="zeros")
        super().build(input_shape)

    def call(self, inputs):
        return inputs + self.bias


def build_model(fields, features, vocabulary_size, embedding_dim, activation="relu"):
    """Returns the Keras model, from ids and dense features to logits [batch, 1].

    The model adds numbers in the same order as `flights.model.build_logits`. Float addition is not
    associative, so with another order the results would differ by rounding even if the optimizers
    are equal bit for bit. This order is the only reason for the layers `Wide` and `AddBias`, which
    replace Embedding and the biases of Dense.
    """
    layers = keras.layers
    ids = keras.Input([fields], dtype="int32", name="ids")
    dense = keras.Input([features], name="dense")
    embedded = layers.Embedding(vocabulary_size, embedding_dim, name="embeddings")(ids)
    inputs = layers.Concatenate()([layers.Flatten()(embedded), dense])
    hidden = layers.Dense(HIDDEN_UNITS, use_bias=False, name="hidden")(inputs)
    hidden = layers.Activation(activation)(AddBias(name="hidden_bias")(hidden))
    parts = [
        Wide(vocabulary_size, name="wide")(ids),
        layers.Dense(1, use_bias=False, name="wide_dense")(dense),
        layers.Dense(1, use_bias=False, name="output")(hidden),
    ]
    return keras.Model([ids, dense], layers.Add()(parts))


# The names that the weights of each layer have in flights_session.py.
WEIGHTS = {
    "wide": ["bias", "wide"],
    "wide_dense": ["wide_dense"],
    "embeddings": ["embeddings"],
    "hidden": ["hidden_weights"],
    "hidden_bias": ["hidden_bias"],
    "output": ["output_weights"],
}


class Predictions(keras.metrics.Metric):
    """A metric that records the predicted probability of each example of one epoch, in order.

    Keras calls `update_state` with the outputs that the model computed before the update. Therefore
    each prediction is made before the training on its example.
    """

    def __init__(self, examples):
        super().__init__(name="examples", dtype="float32")
        self.values = self.add_weight(name="values", shape=[examples], initializer="zeros")
        self.seen = self.add_weight(name="seen", shape=[], initializer="zeros", dtype="int64")

    def update_state(self, y_true, y_pred, sample_weight=None):
        probability = tf.sigmoid(tf.squeeze(y_pred, axis=1))
        count = tf.size(probability, out_type=tf.int64)
        rows = (self.seen + tf.range(count))[:, tf.newaxis]
        values = tf.tensor_scatter_nd_update(self.values, rows, probability)
        with tf.control_dependencies([self.values.assign(values)]):
            return self.seen.assign_add(count)

    def result(self):
        return tf.identity(self.seen)

    def reset_state(self):
        """Does nothing, because there is only one epoch and the initial values are zeros."""

    reset_states = reset_state  # the method's name up to TensorFlow 2.4


def value_of(variable):
    """Returns the value of a Keras variable as an array."""
    return np.asarray(keras.backend.get_value(variable))  # Keras 3 may return a variable here


def new_model(flights, settings):
    """Returns a new model, made by `build_model` with sizes from `Flights` and `Settings`."""
    sizes = flights.ids.shape[1], flights.dense.shape[1], flights.vocabulary_size
    return build_model(*sizes, settings.embedding_dim, settings.activation)


def weights_of(model):
    """Returns a dict from the variable names of flights_session.py to a model's weights."""
    weights = {}
    for layer, names in WEIGHTS.items():
        weights.update(zip(names, model.get_layer(layer).weights))
    return weights


def set_weights(model, values):
    """Sets the weights to `values`, a dict from variable names of flights_session.py to arrays."""
    for layer, names in WEIGHTS.items():
        model.get_layer(layer).set_weights([values[name] for name in names])


def fit(model, optimizer, flights, batch_size, label=KERAS):
    """Predicts each batch, then trains on it, in one pass; returns all predictions."""
    predictions = Predictions(flights.size)
    model.compile(
        optimizer=optimizer,
        loss=keras.losses.BinaryCrossentropy(from_logits=True),
        metrics=[predictions],
    )
    model.jit_compile = False  # on GPUs Keras 3 would use XLA, whose rounding differs
    dataset = tf.data.Dataset.from_tensor_slices(((flights.ids, flights.dense), flights.late))
    dataset = dataset.batch(batch_size)  # in time order: no shuffle
    with tqdm(desc=label, total=-(-flights.size // batch_size), unit="batch") as bar:
        progress = keras.callbacks.LambdaCallback(on_batch_end=lambda batch, logs: bar.update())
        # shuffle=False because Keras 3 warns that it cannot shuffle a dataset
        model.fit(dataset, callbacks=[progress], verbose=0, shuffle=False)
    return value_of(predictions.values)


def state_of(model, optimizer):
    """Returns a dict of arrays with the names of `Trainer.named_variables`.

    Args:
      model: a model of `new_model`.
      optimizer: its optimizer, from `to_keras`.
    """
    found = {"global_step": optimizer.iterations}
    for name, weight in weights_of(model).items():
        found[name] = weight
        for slot in optimizer.get_slot_names():
            found[f"{name}/{slot}"] = optimizer.get_slot(weight, slot)
    return {name: value_of(variable) for name, variable in found.items()}

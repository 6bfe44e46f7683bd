"""The late-arrival model in tf.keras, whichever Keras that is, and its training with `fit`."""

import numpy as np
import tensorflow as tf
from tqdm import tqdm

from flights.model import HIDDEN_UNITS
from flights.run_comparison import Run
from legacy_opt.versions import keras_facts

keras = tf.keras
KERAS = "Keras " + keras_facts()["version"]


class Wide(keras.layers.Layer):
    """A bias and one weight per id: ids [batch, fields] to logits [batch, 1]."""

    def __init__(self, vocabulary_size, **arguments):
        # Without a dtype, the Keras of TensorFlow 1 makes the weights int32, as the ids are.
        super().__init__(dtype="float32", **arguments)
        self.vocabulary_size = vocabulary_size

    def build(self, input_shape):
        self.bias = self.add_weight(name="bias", shape=[], initializer="zeros")
        self.wide = self.add_weight(name="wide", shape=[self.vocabulary_size], initializer="zeros")
        super().build(input_shape)

    def call(self, ids):
        logits = self.bias + tf.reduce_sum(tf.nn.embedding_lookup(self.wide, ids), axis=1)
        # Where TensorFlow knows that all parts of a sum have one shape, it may add the bias last;
        # it does not look across this reshaping.
        return tf.expand_dims(logits, axis=1)


class AddBias(keras.layers.Layer):
    """Adds a bias, as Dense does, but with a plain addition.

    Dense takes BiasAdd, whose gradient adds up the batch in another order.
    """

    def build(self, input_shape):
        self.bias = self.add_weight(name="bias", shape=[input_shape[-1]], initializer="zeros")
        super().build(input_shape)

    def call(self, inputs):
        return inputs + self.bias


def build_model(fields, features, vocabulary_size, embedding_dim, activation="relu"):
    """Returns the Keras model, from ids and dense features to logits [batch, 1].

    It adds up in the order of `flights.model.build_logits`, as float addition is not associative
    and other last bits would not be the optimizer's doing. Hence two layers that the model could
    do without: with Embedding and Dense's own biases it learns the same but for rounding.
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


# Each layer's weights under the names of the session example's variables.
WEIGHTS = {
    "wide": ["bias", "wide"],
    "wide_dense": ["wide_dense"],
    "embeddings": ["embeddings"],
    "hidden": ["hidden_weights"],
    "hidden_bias": ["hidden_bias"],
    "output": ["output_weights"],
}


class Predictions(keras.metrics.Metric):
    """Keeps the probability that `fit` predicts for each example of one epoch, in their order.

    A metric sees the outputs of the model from before the step: no prediction has seen its label.
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
        """Does nothing: before the only epoch all is zero."""

    reset_states = reset_state  # its name up to TensorFlow 2.4


def value_of(variable):
    """Returns the value of a variable of Keras as an array."""
    return np.asarray(keras.backend.get_value(variable))  # Keras 3 may return it as it is


def new_model(flights, settings):
    """Returns `build_model` for these flights and `Settings`."""
    sizes = flights.ids.shape[1], flights.dense.shape[1], flights.vocabulary_size
    return build_model(*sizes, settings.embedding_dim, settings.activation)


def weights_of(model):
    """Returns a dict from the session example's variable names to the weights of `build_model`."""
    weights = {}
    for layer, names in WEIGHTS.items():
        weights.update(zip(names, model.get_layer(layer).weights))
    return weights


def set_weights(model, values):
    """Gives the weights these values, a dict by the session example's variable names."""
    for layer, names in WEIGHTS.items():
        model.get_layer(layer).set_weights([values[name] for name in names])


def fit(model, optimizer, flights, batch_size, label=KERAS):
    """Trains with one pass over the flights; returns their predictions, from before each step."""
    predictions = Predictions(flights.size)
    model.compile(
        optimizer=optimizer,
        loss=keras.losses.BinaryCrossentropy(from_logits=True),
        metrics=[predictions],
    )
    model.jit_compile = False  # Keras 3 takes XLA on GPUs; it rounds in other places
    dataset = tf.data.Dataset.from_tensor_slices(((flights.ids, flights.dense), flights.late))
    dataset = dataset.batch(batch_size)  # in time order: no shuffle
    with tqdm(desc=label, total=-(-flights.size // batch_size), unit="batch") as bar:
        progress = keras.callbacks.LambdaCallback(on_batch_end=lambda batch, logs: bar.update())
        # shuffle=False as Keras 3 warns that it cannot shuffle a dataset
        model.fit(dataset, callbacks=[progress], verbose=0, shuffle=False)
    return value_of(predictions.values)


def run_of(predictions, model, optimizer):
    """Returns the `Run` that ends with the model and its bridged optimizer as they are now."""
    weights = weights_of(model)
    slots = {
        (name, slot): optimizer.get_slot(weight, slot)
        for slot in optimizer.get_slot_names()
        for name, weight in weights.items()
    }
    return Run(
        predictions,
        {name: value_of(weight) for name, weight in weights.items()},
        {key: value_of(slot) for key, slot in slots.items()},
    )

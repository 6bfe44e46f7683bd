"""The late-arrival model as a TF1 graph: an embedding table, a small MLP and a wide part.

`flights_session.py` trains the model in a Session, `estimator_flights.py` in an Estimator. The
model uses only functions that new TensorFlow versions still have, such as `get_variable`, `matmul`
and `embedding_lookup`. It uses neither tf.layers nor tf.contrib.
"""

import dataclasses
from typing import Any

import numpy as np
import tensorflow.compat.v1 as tf

from flights.optimizers import CATALOGUE

HIDDEN_UNITS = 32
OPTIMIZERS = ("Adagrad", "AdagradDecay", "SGD")  # the optimizers of most examples
LEARNING_RATES = {name: CATALOGUE[name].learning_rate for name in OPTIMIZERS}
DECAY_STEP = 100
DECAY_RATE = 0.7


@dataclasses.dataclass(frozen=True)
class Settings:
    """The settings of one training; only AdagradDecay uses `decay_step` and `decay_rate`."""

    optimizer: str
    learning_rate: float
    decay_step: int = DECAY_STEP
    decay_rate: float = DECAY_RATE
    embedding_dim: int = 8
    seed: int = 0
    activation: str = "relu"  # the name of a function in tf.nn


@dataclasses.dataclass(frozen=True)
class Tower:
    """A model and its optimizer, in a separate variable scope."""

    prediction: Any
    loss: Any
    train_op: Any
    global_step: Any
    optimizer: Any
    variables: Any


def build_logits(ids, dense, vocabulary_size, settings):
    """Returns the logits [batch] of "arrives late".

    Args:
      ids: int32 tensor [batch, fields], row numbers of the embedding table that all fields share.
      dense: float32 tensor [batch, features].
      vocabulary_size: number of rows of the table.
      settings: `Settings`.
    """
    fields, features = ids.shape[1], dense.shape[1]
    bias = tf.get_variable("bias", [], initializer=tf.zeros_initializer())
    wide = tf.get_variable("wide", [vocabulary_size], initializer=tf.zeros_initializer())
    wide_dense = tf.get_variable("wide_dense", [features, 1], initializer=tf.zeros_initializer())
    # The gradient of a lookup is IndexedSlices, which has only the rows of the batch.
    logits = bias + tf.reduce_sum(tf.nn.embedding_lookup(wide, ids), axis=1)
    logits += tf.squeeze(tf.matmul(dense, wide_dense), axis=1)

    def normal(name, shape, stddev, number):
        # Every variable has its own seed, so that all optimizers start from the same values.
        initializer = tf.random_normal_initializer(stddev=stddev, seed=10 * settings.seed + number)
        return tf.get_variable(name, shape, initializer=initializer)

    width = int(fields) * settings.embedding_dim
    inputs = width + int(features)
    table = normal("embeddings", [vocabulary_size, settings.embedding_dim], 0.05, 1)
    hidden_weights = normal("hidden_weights", [inputs, HIDDEN_UNITS], inputs**-0.5, 2)
    output_weights = normal("output_weights", [HIDDEN_UNITS, 1], HIDDEN_UNITS**-0.5, 3)
    hidden_bias = tf.get_variable("hidden_bias", [HIDDEN_UNITS], initializer=tf.zeros_initializer())
    rows = tf.nn.embedding_lookup(table, ids, partition_strategy="div")  # it may have partitions
    embedded = tf.reshape(rows, [-1, width])
    hidden = tf.matmul(tf.concat([embedded, dense], axis=1), hidden_weights) + hidden_bias
    hidden = getattr(tf.nn, settings.activation)(hidden)
    return logits + tf.squeeze(tf.matmul(hidden, output_weights), axis=1)


def build_loss(logits, late):
    """Returns the mean log-loss of the batch."""
    return tf.reduce_mean(tf.nn.sigmoid_cross_entropy_with_logits(labels=late, logits=logits))


def clipped(predictions):
    """Returns float64 probabilities, clipped to the range from 1e-7 to 1 - 1e-7.

    Clipping makes the log-loss finite. Do not rely on the clipping of scikit-learn, because it
    depends on the version of scikit-learn.
    """
    return np.clip(np.asarray(predictions, np.float64), 1e-7, 1 - 1e-7)


def loss_per_flight(late, predictions):
    """Returns the log-loss of each flight as an array, float64."""
    probability = clipped(predictions)
    return -np.log(np.where(late > 0, probability, 1 - probability))


def build_optimizer(settings, global_step):
    """Returns the optimizer that `settings` names."""
    if settings.optimizer not in CATALOGUE:
        known = ", ".join(CATALOGUE)
        raise ValueError(f"optimizer: {settings.optimizer!r} is unknown; use one of {known}")
    return CATALOGUE[settings.optimizer].make(settings, global_step)


def build_tower(ids, dense, late, vocabulary_size, settings, scope, make_optimizer=build_optimizer):
    """Builds model and optimizer in the variable scope `scope`, with a separate global step.

    If several optimizers shared a global step, a training step would increment it several times,
    and AdagradDecay would decay too often. `make_optimizer` is called with the settings and the
    global step.
    """
    with tf.variable_scope(scope):
        global_step = tf.get_variable(
            "global_step", [], tf.int64, initializer=tf.zeros_initializer(), trainable=False
        )
        logits = build_logits(ids, dense, vocabulary_size, settings)
        loss = build_loss(logits, late)
        variables = tf.trainable_variables(tf.get_variable_scope().name + "/")
        optimizer = make_optimizer(settings, global_step)
        train_op = optimizer.minimize(loss, global_step=global_step, var_list=variables)
        return Tower(tf.nn.sigmoid(logits), loss, train_op, global_step, optimizer, variables)

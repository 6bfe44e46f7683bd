"""Trains a click model with attention to past clicks, in the style of Alibaba's DIN and DIEN."""

from __future__ import absolute_import, division, print_function

import sys

import numpy as np
import tensorflow as tf
from six.moves import range, zip
from tensorflow.contrib.layers import variance_scaling_initializer, xavier_initializer
from tensorflow.contrib.rnn import GRUCell

EMBEDDING_DIM = 8
HIDDEN_SIZE = 2 * EMBEDDING_DIM
ITEM_COUNT, CATEGORY_COUNT = 40, 5
BATCH_SIZE, MAX_LENGTH = 16, 6


def make_data(count, seed):
    """Makes users with past clicks; they click on categories that they have clicked on."""
    rng = np.random.RandomState(seed)
    categories = np.arange(ITEM_COUNT) % CATEGORY_COUNT
    data = []
    for _ in range(count):
        liked = rng.choice(CATEGORY_COUNT, 2, replace=False)
        items = np.flatnonzero(np.isin(categories, liked))
        history = rng.choice(items, rng.randint(1, MAX_LENGTH + 1))
        target = rng.choice(items) if rng.rand() < 0.5 else rng.randint(ITEM_COUNT)
        label = float(categories[target] in categories[history])
        data.append((target, history, label))
    return categories, data


def prepare_data(batch):
    """Pads the histories; returns target items, histories, mask, lengths and labels."""
    lengths = np.array([len(history) for _, history, _ in batch], np.int32)
    histories = np.zeros([len(batch), MAX_LENGTH], np.int32)
    for row, (_, history, _) in zip(histories, batch):
        row[: len(history)] = history
    mask = (np.arange(MAX_LENGTH) < lengths[:, None]).astype(np.float32)
    labels = np.array([[label, 1 - label] for _, _, label in batch], np.float32)
    return np.array([target for target, _, _ in batch], np.int32), histories, mask, lengths, labels


def dense(x, units, name, seed, activation=None):
    return tf.layers.dense(
        x, units, activation, kernel_initializer=xavier_initializer(seed=seed), name=name
    )


def prelu(x, scope):
    with tf.variable_scope(scope):
        alpha = tf.get_variable(
            "alpha", x.get_shape()[-1], initializer=tf.constant_initializer(0.1)
        )
        return tf.maximum(0.0, x) + alpha * tf.minimum(0.0, x)


def dice(x, scope):
    with tf.variable_scope(scope):
        alphas = tf.get_variable("alpha", x.get_shape()[-1], initializer=tf.zeros_initializer())
        normed = tf.layers.batch_normalization(x, center=False, scale=False, training=True)
        gate = tf.sigmoid(normed)
        return alphas * (1.0 - gate) * x + gate * x


def din_attention(query, facts, mask):
    """Returns the sum of the facts, weighted by a network that compares them with the query."""
    queries = tf.reshape(tf.tile(query, [1, MAX_LENGTH]), tf.shape(facts))
    compared = tf.concat([queries, facts, queries - facts, queries * facts], axis=-1)
    hidden = dense(compared, 20, "f1_att", 11, tf.nn.sigmoid)
    hidden = dense(hidden, 10, "f2_att", 12, tf.nn.sigmoid)
    scores = tf.reshape(dense(hidden, 1, "f3_att", 13), [-1, 1, MAX_LENGTH])
    paddings = tf.ones_like(scores) * (-(2**32) + 1)
    scores = tf.nn.softmax(tf.where(tf.equal(tf.expand_dims(mask, 1), 1.0), scores, paddings))
    return tf.squeeze(tf.matmul(scores, facts), axis=1)


class Model(object):
    """DIN; with `use_gru`, a GRU reads the history first, as in DIEN."""

    def __init__(self, categories, use_gru, learning_rate=0.01):
        with tf.name_scope("Inputs"):
            self.target = tf.placeholder(tf.int32, [None], name="target")
            self.history = tf.placeholder(tf.int32, [None, MAX_LENGTH], name="history")
            self.mask = tf.placeholder(tf.float32, [None, MAX_LENGTH], name="mask")
            self.lengths = tf.placeholder(tf.int32, [None], name="lengths")
            self.labels = tf.placeholder(tf.float32, [None, 2], name="labels")
        with tf.name_scope("Embedding_layer"):
            self.category_of = tf.constant(categories.astype(np.int32))
            init = variance_scaling_initializer(factor=1.0, mode="FAN_AVG", seed=1)
            self.tables = [
                tf.get_variable(name, [count, EMBEDDING_DIM], initializer=init)
                for name, count in (("item", ITEM_COUNT), ("category", CATEGORY_COUNT))
            ]
        item, facts = self.embed(self.target), self.embed(self.history)
        total = tf.reduce_sum(facts * tf.expand_dims(self.mask, -1), 1)
        if use_gru:
            with tf.variable_scope("rnn_1", initializer=tf.orthogonal_initializer(seed=2)):
                facts, _ = tf.nn.dynamic_rnn(
                    GRUCell(HIDDEN_SIZE), facts, sequence_length=self.lengths, dtype=tf.float32
                )
        with tf.variable_scope("attention"):
            interest = din_attention(item, facts, self.mask)
        self.build_fcn_net(tf.concat([item, total, item * total, interest], 1), learning_rate)

    def embed(self, items):
        ids = items, tf.gather(self.category_of, items)
        return tf.concat([tf.nn.embedding_lookup(*pair) for pair in zip(self.tables, ids)], -1)

    def build_fcn_net(self, inp, learning_rate):
        bn1 = tf.layers.batch_normalization(inp, training=True, name="bn1")
        dnn1 = dice(dense(bn1, 20, "f1", 21), "dice_1")
        dnn2 = prelu(dense(dnn1, 10, "f2", 22), "prelu_1")
        y_hat = tf.nn.softmax(dense(dnn2, 2, "f3", 23)) + 0.00000001
        self.loss = -tf.reduce_mean(tf.log(y_hat) * self.labels)
        correct = tf.equal(tf.round(y_hat), self.labels)
        self.accuracy = tf.reduce_mean(tf.cast(correct, tf.float32))
        with tf.control_dependencies(tf.get_collection(tf.GraphKeys.UPDATE_OPS)):
            self.optimizer = tf.train.AdamOptimizer(learning_rate).minimize(self.loss)

    def train(self, sess, inputs):
        keys = [self.target, self.history, self.mask, self.lengths, self.labels]
        loss, accuracy, _ = sess.run(
            [self.loss, self.accuracy, self.optimizer], feed_dict=dict(zip(keys, inputs))
        )
        return loss, accuracy


def train(use_gru, epochs=4):
    categories, data = make_data(10 * BATCH_SIZE, seed=3)
    with tf.Graph().as_default(), tf.Session() as sess:
        model = Model(categories, use_gru)
        sess.run(tf.global_variables_initializer())
        sess.run(tf.local_variables_initializer())
        sys.stdout.flush()
        for epoch in range(epochs):
            accuracy_sum = 0.0
            for start in range(0, len(data), BATCH_SIZE):
                batch = prepare_data(data[start : start + BATCH_SIZE])
                loss, accuracy = model.train(sess, batch)
                accuracy_sum += accuracy
                print("loss = %.9g" % loss)
            print("epoch %d ----> train_accuracy: %.4f" % (epoch, accuracy_sum / 10))


if __name__ == "__main__":
    for model_type in sys.argv[1:] or ["DIN", "DIN-GRU"]:
        print("model %s" % model_type)
        train(model_type == "DIN-GRU")

"""Classifies the nodes of a graph by attention to neighbours, in the style of programs of 2017.

It uses names that NumPy, SciPy and Python have removed since then.
"""

from __future__ import absolute_import, division, print_function

import collections
import inspect

import numpy as np
import scipy.sparse as sp
import tensorflow as tf
from scipy.sparse.linalg.eigen.arpack import eigsh

flags = tf.app.flags
FLAGS = flags.FLAGS
flags.DEFINE_float("learning_rate", 0.03, "The learning rate of Adam.")
flags.DEFINE_float("weight_decay", 5e-4, "The weight of the L2 loss.")
flags.DEFINE_float("in_drop", 0.1, "The share of inputs that is dropped.")
flags.DEFINE_integer("epochs", 40, "The number of training steps.")
flags.DEFINE_string("heads", "4,1", "The number of attention heads of each layer.")

NODES, CLASSES, FEATURES = 60, 3, 12


def load_data(seed=3):
    """Makes a graph whose nodes have mostly neighbours of their own class."""
    random = np.random.RandomState(seed)
    labels = np.arange(NODES) % CLASSES
    same = labels[:, None] == labels[None]
    edges = np.triu(random.rand(NODES, NODES) < np.where(same, 0.2, 0.02), 1)
    adjacency = sp.coo_matrix((edges + edges.T).astype(np.float))
    features = random.rand(NODES, FEATURES) + np.eye(FEATURES)[labels]
    train_mask = np.array(np.arange(NODES) < NODES // 2, dtype=np.bool_)
    return adjacency.tocsr(), sp.lil_matrix(features), np.eye(CLASSES)[labels], train_mask


def preprocess_features(features):
    """Divides each row by its sum."""
    sums = np.asfarray(features.sum(1))
    inverse = np.power(sums, -1).flatten()
    inverse[np.isinf(inverse)] = 0.0
    return np.asarray(sp.diags(inverse).dot(features).todense())[np.newaxis]


def largest_eigenvalue(adjacency):
    degrees = np.asarray(adjacency.sum(1)).flatten().clip(1)
    scale = sp.diags(np.power(degrees, -0.5))
    laplacian = sp.eye(NODES) - scale.dot(adjacency).dot(scale)
    return eigsh(laplacian, 1, which="LM", v0=np.ones(NODES), return_eigenvectors=False)[0]


def adj_to_bias(adjacency):
    """Returns 0 for neighbours and a large negative number for other nodes."""
    near = (adjacency + sp.eye(NODES)).todense() > 0
    return np.where(near, 0.0, -1e9).astype(np.float)[np.newaxis]


def start(seed):
    return tf.truncated_normal_initializer(stddev=0.4, seed=seed)


def attn_head(seq, out_sz, bias_mat, activation, in_drop, seed):
    """An attention head; its attention logits are sums of one term for each node of a pair."""
    seq = tf.nn.dropout(seq, 1.0 - in_drop, seed=seed)
    fts = tf.layers.conv1d(seq, out_sz, 1, use_bias=False, kernel_initializer=start(seed))
    f_1 = tf.layers.conv1d(fts, 1, 1, kernel_initializer=start(seed + 1))
    f_2 = tf.layers.conv1d(fts, 1, 1, kernel_initializer=start(seed + 2))
    logits = f_1 + tf.transpose(f_2, [0, 2, 1])
    coefs = tf.nn.softmax(tf.nn.leaky_relu(logits) + bias_mat)
    vals = tf.matmul(coefs, fts)
    bias = tf.get_variable("bias_%d" % seed, [out_sz], initializer=tf.zeros_initializer())
    return activation(tf.nn.bias_add(vals, bias))


def inference(inputs, bias_mat, heads, hidden=(6, CLASSES), activation=tf.nn.elu):
    outputs = inputs
    for layer, (count, units) in enumerate(zip(heads, hidden)):
        function = activation if layer + 1 < len(hidden) else tf.identity
        made = [
            attn_head(outputs, units, bias_mat, function, FLAGS.in_drop, 100 * layer + 10 * head)
            for head in range(count)
        ]
        outputs = tf.concat(made, axis=-1)
    return tf.reshape(outputs, [-1, CLASSES])


def masked(values, mask):
    mask = tf.cast(mask, tf.float32)
    return tf.reduce_mean(values * mask / tf.reduce_mean(mask))


def training(loss):
    variables = tf.trainable_variables()
    l2 = tf.add_n([tf.nn.l2_loss(v) for v in variables if "bias" not in v.name])
    # With a smaller epsilon, Adam would enlarge the last bits of gradients that are almost zero.
    opt = tf.train.AdamOptimizer(learning_rate=FLAGS.learning_rate, epsilon=1e-3)
    return opt.minimize(loss + l2 * FLAGS.weight_decay)


def main(_):
    heads = [int(each) for each in FLAGS.heads.split(",")]
    assert isinstance(heads, collections.Iterable)
    print("model: %s" % ", ".join(inspect.getargspec(inference).args))
    adjacency, features, labels, train_mask = load_data()
    print("largest eigenvalue: %.4f" % largest_eigenvalue(adjacency))
    ftr_in = tf.placeholder(tf.float32, (1, NODES, FEATURES))
    bias_in = tf.placeholder(tf.float32, (1, NODES, NODES))
    lbl_in = tf.placeholder(tf.int32, (NODES, CLASSES))
    msk_in = tf.placeholder(tf.bool, (NODES,))
    logits = inference(ftr_in, bias_in, heads)
    losses = tf.nn.softmax_cross_entropy_with_logits(logits=logits, labels=lbl_in)
    loss = masked(losses, msk_in)
    right = tf.equal(tf.argmax(logits, 1), tf.argmax(lbl_in, 1))
    accuracy = masked(tf.cast(right, tf.float32), msk_in)
    train_op = training(loss)
    feed = {ftr_in: preprocess_features(features), bias_in: adj_to_bias(adjacency)}
    feed.update({lbl_in: labels, msk_in: train_mask})
    best = np.Inf
    with tf.Session() as sess:
        sess.run(tf.group(tf.global_variables_initializer(), tf.local_variables_initializer()))
        for _ in range(FLAGS.epochs):
            _, value, acc = sess.run([train_op, loss, accuracy], feed)
            best = min(best, np.float(value))
            print("loss = %.9g accuracy = %.3f" % (value, acc))
    print("best: %.4f" % best)


if __name__ == "__main__":
    tf.app.run()

"""Trains an embedding table in a TensorFlow 1 graph and Session with an optimizer of legacy_opt.

    python examples_graph_mode/first_session.py

The program learns the hidden scores of 100 items and prints the loss. It takes a few seconds.
"""

import numpy as np
import tensorflow.compat.v1 as tf

import legacy_opt

tf.logging.set_verbosity(tf.logging.ERROR)
tf.disable_v2_behavior()

# Synthetic data: 100 items with hidden scores, which the model has to learn.
random = np.random.RandomState(0)
scores = random.normal(size=100)

# The graph. The gradient of tf.gather is sparse: a batch updates only the rows of its items.
items = tf.placeholder(tf.int32, [None])
labels = tf.placeholder(tf.float32, [None])
table = tf.get_variable("table", [100], initializer=tf.zeros_initializer())
loss = tf.reduce_mean(tf.square(tf.gather(table, items) - labels))

global_step = tf.train.get_or_create_global_step()
optimizer = legacy_opt.LazyAdamOptimizer(learning_rate=0.02)
train_op = optimizer.minimize(loss, global_step=global_step)

with tf.Session() as session:
    session.run(tf.global_variables_initializer())
    for step in range(401):
        batch = random.randint(100, size=32)
        value, _ = session.run([loss, train_op], {items: batch, labels: scores[batch]})
        if step % 100 == 0:
            print(f"step {step}: loss {value:.4f}")

"""Creates TensorFlow's optimizers for tests of wrappers (optimizers that contain optimizers)."""

import tensorflow as tf

v1 = tf.compat.v1

RATE = 0.5


def sgd():
    return v1.train.GradientDescentOptimizer(RATE)


def momentum():
    return v1.train.MomentumOptimizer(RATE, 0.9)

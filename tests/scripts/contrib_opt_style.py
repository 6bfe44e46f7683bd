"""Fits a line in four ways with tf.contrib, in the style of TensorFlow 1.15 scripts."""

import argparse

import numpy as np
import tensorflow as tf
import tensorflow.contrib.opt as opt
from tensorflow.contrib import layers
from tensorflow.contrib.estimator import clip_gradients_by_norm
from tensorflow.contrib.opt import AdamWOptimizer

training = tf.contrib.training


def by_optimize_loss(loss, global_step):
    return layers.optimize_loss(
        loss,
        global_step,
        learning_rate=0.3,
        optimizer=lambda rate: opt.LazyAdamOptimizer(rate),
        clip_gradients=5.0,
        learning_rate_decay_fn=lambda rate, step: tf.train.exponential_decay(rate, step, 50, 0.5),
    )


def by_create_train_op(loss, global_step):
    optimizer = opt.MomentumWOptimizer(1e-5, 0.05, 0.9)
    return training.create_train_op(loss, optimizer, global_step=global_step)


def by_clipped_gradients(loss, global_step):
    optimizer = clip_gradients_by_norm(AdamWOptimizer(1e-5, 0.2), 1.0)
    return optimizer.minimize(loss, tf.contrib.framework.get_global_step())


def by_moving_average(loss, global_step):
    optimizer = tf.contrib.opt.MovingAverageOptimizer(opt.NadamOptimizer(0.2), 0.9)
    return optimizer.minimize(loss, global_step=global_step)


WAYS = [by_optimize_loss, by_create_train_op, by_clipped_gradients, by_moving_average]


def fit(way, steps):
    """Fits the line with one of `WAYS`; returns the first and the last loss."""
    x = np.linspace(-1, 1, 50, dtype=np.float32)
    with tf.Graph().as_default(), tf.Session() as session:
        slope = tf.get_variable("slope", [], initializer=tf.zeros_initializer())
        offset = tf.get_variable("offset", [], initializer=tf.zeros_initializer())
        loss = tf.losses.mean_squared_error(3.0 * x - 2.0, slope * x + offset)
        global_step = tf.contrib.framework.get_or_create_global_step()
        train = way(loss, global_step)
        session.run(tf.global_variables_initializer())
        first = session.run(loss)
        for _ in range(steps):
            session.run(train)
        assert session.run(global_step) == steps
        return first, session.run(loss)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=100)
    steps = parser.parse_args().steps
    for way in WAYS:
        print("%s: loss %.3f at first, %.3f at last" % ((way.__name__,) + fit(way, steps)))

"""Trains a small convolutional network with slim.learning, in the style of models/research/slim."""

from __future__ import absolute_import, division, print_function

import shutil
import tempfile

import numpy as np
import six
import tensorflow as tf
from tensorflow.contrib.framework.python.ops import arg_scope, variables

slim = tf.contrib.slim
flags = tf.app.flags
FLAGS = flags.FLAGS
flags.DEFINE_string("train_dir", "", "Where checkpoints are written; a temporary folder if empty.")
flags.DEFINE_integer("max_number_of_steps", 30, "The maximum number of training steps.")
flags.DEFINE_integer("batch_size", 16, "The number of samples in each batch.")
flags.DEFINE_float("learning_rate", 0.05, "Initial learning rate.")
flags.DEFINE_float("weight_decay", 0.0004, "The weight decay on the model weights.")
flags.DEFINE_float("momentum", 0.9, "The momentum.")
flags.DEFINE_float("label_smoothing", 0.1, "The amount of label smoothing.")
flags.DEFINE_string("trainable_scopes", None, "Scopes to train; by default all.")

NUM_CLASSES, IMAGE_SIZE = 3, 8


def make_images(count, seed):
    """Makes images with a bright row, a bright column or a bright square."""
    rng = np.random.RandomState(seed)
    images = rng.rand(count, IMAGE_SIZE, IMAGE_SIZE, 1).astype(np.float32)
    labels = rng.randint(NUM_CLASSES, size=count)
    for image, label in six.moves.zip(images, labels):
        row, column = rng.randint(IMAGE_SIZE - 3, size=2)
        image[
            row : row + (1, IMAGE_SIZE, 3)[label], column : column + (IMAGE_SIZE, 1, 3)[label]
        ] += 1
    return images, labels.astype(np.int64)


def input_pipeline(batch_size):
    images, labels = make_images(4 * batch_size, seed=5)
    image, label = tf.train.slice_input_producer([images, labels], shuffle=False)
    image = tf.subtract(tf.multiply(image, 2.0 / 2.0), 0.5)
    images, labels = tf.train.batch([image, label], batch_size, num_threads=1, capacity=64)
    return images, slim.one_hot_encoding(labels, NUM_CLASSES)


@slim.add_arg_scope
def conv_block(net, depth, seed=0, scope=None):
    """Two convolutions beside a shortcut."""
    with tf.variable_scope(scope, "conv_block", [net]):
        shortcut = slim.conv2d(net, depth, [1, 1], activation_fn=None, scope="shortcut")
        init = slim.xavier_initializer_conv2d(seed=seed)
        net = slim.conv2d(net, depth, [3, 3], weights_initializer=init, scope="conv1")
        net = slim.conv2d(net, depth, [3, 3], activation_fn=None, scope="conv2")
        return tf.nn.relu(net + shortcut)


def smallnet_arg_scope(weight_decay, is_training):
    batch_norm_params = {
        "is_training": is_training,
        "decay": 0.9,
        "epsilon": 1e-3,
        "scale": True,
        "updates_collections": tf.GraphKeys.UPDATE_OPS,
    }
    with slim.arg_scope(
        [slim.conv2d, slim.fully_connected],
        weights_regularizer=slim.l2_regularizer(weight_decay),
        weights_initializer=tf.contrib.layers.xavier_initializer(seed=17),
        normalizer_fn=slim.batch_norm,
        normalizer_params=batch_norm_params,
    ):
        with arg_scope([slim.conv2d, slim.max_pool2d], padding="SAME") as scope:
            return scope


def smallnet(images, is_training, weight_decay=0.0):
    end_points = {}
    with slim.arg_scope(smallnet_arg_scope(weight_decay, is_training)):
        with tf.variable_scope("SmallNet", values=[images], use_resource=True):
            net = slim.repeat(images, 2, slim.conv2d, 4, [3, 3], scope="conv1")
            net = slim.max_pool2d(net, [2, 2], scope="pool1")
            net = conv_block(net, 8, seed=3, scope="block2")
            end_points["block2"] = net
            net = tf.reduce_mean(net, [1, 2], keep_dims=True, name="global_pool")
            net = slim.dropout(slim.flatten(net), 1.0, is_training=is_training, scope="dropout")
            logits = slim.fully_connected(
                net, NUM_CLASSES, activation_fn=None, normalizer_fn=None, scope="logits"
            )
            end_points["predictions"] = slim.softmax(logits)
    return logits, end_points


def get_variables_to_train():
    if FLAGS.trainable_scopes is None:
        return tf.trainable_variables()
    scopes = [scope.strip() for scope in FLAGS.trainable_scopes.split(",")]
    return [v for s in scopes for v in tf.get_collection(tf.GraphKeys.TRAINABLE_VARIABLES, s)]


def get_init_fn():
    """Starts the bias of the logits at a value for each class."""
    (biases,) = slim.get_variables_by_name("SmallNet/logits/biases")
    exclusions = ["SmallNet/logits"]
    restored = slim.get_variables_to_restore(exclude=exclusions)
    tf.logging.info("%d variables are not excluded", len(restored))
    return slim.assign_from_values_fn({biases.op.name: np.float32([0.1, 0.0, -0.1])})


def train_step_fn(session, train_op, global_step, train_step_kwargs):
    total_loss, should_stop = slim.learning.train_step(
        session, train_op, global_step, train_step_kwargs
    )
    print("loss = %.9g" % total_loss)
    return total_loss, should_stop


def train(train_dir):
    with tf.Graph().as_default():
        global_step = slim.create_global_step()
        images, labels = input_pipeline(FLAGS.batch_size)
        logits, end_points = smallnet(images, True, FLAGS.weight_decay)
        slim.losses.softmax_cross_entropy(
            logits, labels, label_smoothing=FLAGS.label_smoothing, weights=1.0
        )
        tf.losses.mean_squared_error(end_points["predictions"], labels, weights=0.1)
        total_loss = slim.losses.get_total_loss(add_regularization_losses=False)
        total_loss += tf.losses.get_total_loss()
        rate = tf.train.exponential_decay(FLAGS.learning_rate, global_step, 10, 0.7, staircase=True)
        optimizer = tf.train.MomentumOptimizer(rate, FLAGS.momentum)
        for variable in variables.get_model_variables():
            tf.summary.histogram(variable.op.name, variable)
        train_op = slim.learning.create_train_op(
            total_loss,
            optimizer,
            global_step=global_step,
            variables_to_train=get_variables_to_train(),
            clip_gradient_norm=4.0,
        )
        slim.learning.train(
            train_op,
            logdir=train_dir,
            train_step_fn=train_step_fn,
            init_fn=get_init_fn(),
            number_of_steps=FLAGS.max_number_of_steps,
            summary_op=None,
            log_every_n_steps=0,
            save_interval_secs=600,
        )


def evaluate(train_dir):
    with tf.Graph().as_default():
        slim.get_or_create_global_step()
        images, labels = make_images(64, seed=6)
        logits, _ = smallnet(tf.constant(images) - 0.5, is_training=False)
        predictions = tf.argmax(logits, 1)
        names_to_values, names_to_updates = slim.metrics.aggregate_metric_map(
            {"Accuracy": slim.metrics.streaming_accuracy(predictions, tf.constant(labels))}
        )
        (accuracy,) = slim.evaluation.evaluate_once(
            master="",
            checkpoint_path=tf.train.latest_checkpoint(train_dir),
            logdir=train_dir,
            num_evals=1,
            eval_op=list(names_to_updates.values()),
            final_op=list(names_to_values.values()),
        )
    print("eval/Accuracy[%.4f]" % accuracy)


def main(_):
    train_dir = FLAGS.train_dir or tempfile.mkdtemp()
    train(train_dir)
    evaluate(train_dir)
    if not FLAGS.train_dir:
        shutil.rmtree(train_dir)


if __name__ == "__main__":
    tf.logging.set_verbosity(tf.logging.WARN)
    tf.app.run()

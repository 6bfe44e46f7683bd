"""The tests. Importing them turns eager execution on, which TensorFlow 1.15 leaves off: graphs are
built in explicit `tf.Graph`s, and one process can try every way of running."""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import tensorflow as tf

tf.compat.v1.logging.set_verbosity(tf.compat.v1.logging.ERROR)
if not tf.executing_eagerly() and "LEGACY_OPT_TEST_GRAPH_MODE" not in os.environ:
    tf.compat.v1.enable_eager_execution()

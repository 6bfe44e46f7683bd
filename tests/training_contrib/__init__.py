"""Tests that compare this package with tf.contrib, on TensorFlow 1.15."""

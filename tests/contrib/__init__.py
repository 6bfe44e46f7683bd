"""Comparisons with tf.contrib, on TensorFlow 1.15."""

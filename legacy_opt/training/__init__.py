"""Training helpers of tf.contrib.layers and tf.contrib.training, and hooks."""

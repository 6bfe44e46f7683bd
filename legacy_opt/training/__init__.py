"""What tf.contrib.layers and tf.contrib.training offered around an optimizer."""

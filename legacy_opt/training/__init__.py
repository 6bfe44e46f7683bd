"""Training helpers from tf.contrib.layers and tf.contrib.training, and hooks for sessions."""

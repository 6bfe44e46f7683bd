"""Against tf.contrib itself, on TensorFlow 1.15."""

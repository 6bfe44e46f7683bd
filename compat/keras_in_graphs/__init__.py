"""to_v1: a Keras optimizer inside a TensorFlow 1 graph."""

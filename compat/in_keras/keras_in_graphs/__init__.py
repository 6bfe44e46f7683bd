"""to_v1: runs a Keras optimizer inside a TensorFlow 1 graph."""

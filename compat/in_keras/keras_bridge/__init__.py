"""to_keras: runs a v1 optimizer (a `tf.compat.v1.train.Optimizer`) inside a Keras optimizer."""

"""to_keras: a v1 optimizer inside a Keras optimizer."""

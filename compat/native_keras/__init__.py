"""to_plain_keras and from_plain_keras: Keras' own optimizers in place of v1 ones."""

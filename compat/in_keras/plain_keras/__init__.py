"""to_plain_keras and from_plain_keras: replace v1 optimizers by Keras' own optimizers, and back."""

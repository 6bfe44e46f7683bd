"""to_v1: Keras optimizers in TF1 graphs."""

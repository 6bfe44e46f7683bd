"""Keras optimizers in TF1 graphs."""

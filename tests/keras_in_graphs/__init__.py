"""Tests of `to_v1`, which makes v1 optimizers of Keras optimizers, for TF1 graphs."""

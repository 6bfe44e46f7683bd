"""Tests of `to_v1`, which turns Keras optimizers into v1 optimizers for TF1 graphs."""

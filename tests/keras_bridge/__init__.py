"""Tests of `to_keras`, the bridges from v1 optimizers to Keras 2 and Keras 3."""

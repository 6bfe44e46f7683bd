"""Tests of conversions of v1 optimizers to Keras' own optimizers, and back."""

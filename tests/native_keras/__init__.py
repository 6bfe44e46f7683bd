"""Keras' own optimizers in place of v1's, and back."""

"""Helpers that train with Keras 2 and Keras 3."""

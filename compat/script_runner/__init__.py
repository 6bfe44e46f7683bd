"""Runs TensorFlow 1 scripts unchanged."""

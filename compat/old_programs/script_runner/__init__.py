"""Runs unchanged TensorFlow 1 scripts on newer TensorFlow."""

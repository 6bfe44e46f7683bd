"""Reads users' Python without running it; needs no TensorFlow."""

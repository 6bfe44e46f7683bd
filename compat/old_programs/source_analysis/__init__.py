"""Analyses users' Python code without running it and without TensorFlow."""

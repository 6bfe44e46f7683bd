"""Programs for TensorFlow 1: finds out what they need, and runs them."""

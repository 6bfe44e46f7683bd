"""Moves state between checkpoints and Keras, and converts checkpoints."""

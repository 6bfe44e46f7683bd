"""Loads v1 checkpoints into Keras, writes Keras state as v1 checkpoints, converts checkpoints."""

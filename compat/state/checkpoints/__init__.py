"""Loads TF1 checkpoints into Keras, saves TF1 checkpoints from Keras, and converts checkpoints."""

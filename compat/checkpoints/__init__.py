"""Loads v1 checkpoints (of TF1 graphs) into Keras, writes them from Keras, converts checkpoints."""

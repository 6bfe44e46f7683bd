"""Loads checkpoints of TF1 graphs into Keras, saves such checkpoints, and converts checkpoints."""

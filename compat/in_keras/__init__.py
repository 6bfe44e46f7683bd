"""V1 optimizers in Keras, and Keras optimizers in TF1 graphs."""

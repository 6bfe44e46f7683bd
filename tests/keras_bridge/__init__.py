"""v1 optimizers in Keras 2 and 3."""

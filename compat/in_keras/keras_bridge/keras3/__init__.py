"""The bridge to the optimizers of Keras 3."""

"""The bridge to OptimizerV2, the optimizer class of Keras 2."""

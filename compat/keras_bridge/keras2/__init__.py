"""The bridge to OptimizerV2, of Keras 2."""

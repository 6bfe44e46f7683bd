"""Runs an OptimizerV2 of Keras 2 inside a Keras 3 optimizer."""

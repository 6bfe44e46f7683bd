"""Runs the updates of optimizers by kernels."""

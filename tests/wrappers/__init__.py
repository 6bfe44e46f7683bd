"""Optimizers that hold optimizers."""

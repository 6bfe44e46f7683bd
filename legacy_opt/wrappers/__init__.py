"""Optimizers that wrap other optimizers."""

"""Compares recorded rules in PyTorch and JAX with the optimizers of these libraries."""

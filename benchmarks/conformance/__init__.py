"""Compares the optimizers of other libraries with recorded rules: `make conformance`."""

"""Optimizers, dtypes, shapes, ids and hyperparameters that nobody has chosen, against the oracles.

tests/test_fuzz.py runs a few cases; `python -m tests.fuzz --cases 100000` runs many.
"""

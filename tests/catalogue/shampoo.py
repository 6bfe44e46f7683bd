"""Shampoo."""

CASES = {}

"""LARS and RegAdagrad."""

CASES = {}

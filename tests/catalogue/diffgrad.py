"""DiffGrad."""

CASES = {}

"""Adafactor."""

CASES = {}

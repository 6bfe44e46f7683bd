"""Helpers for tests that write and read checkpoints."""

"""Starts programs and clusters for tests."""

"""Writes programs as C."""

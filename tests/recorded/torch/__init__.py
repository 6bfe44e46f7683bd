"""Tests recorded rules in PyTorch."""

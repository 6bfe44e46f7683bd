"""Tests of reading, loading, writing and converting checkpoints."""

"""Tests of checkpoints: reading, loading, writing and converting them."""

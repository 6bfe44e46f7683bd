"""Tests of checkpoints: reading, recognising, loading, writing and converting them."""

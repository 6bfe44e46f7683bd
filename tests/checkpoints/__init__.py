"""Checkpoint files, recognising their contents, loading, writing and converting them."""

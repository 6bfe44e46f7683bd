"""Checkpoints: their files, what is in them, where they go."""

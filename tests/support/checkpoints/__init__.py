"""Checkpoints that tests write and read."""

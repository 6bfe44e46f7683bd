"""Tests of wrappers: optimizers that contain other optimizers."""

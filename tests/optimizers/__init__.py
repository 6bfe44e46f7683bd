"""Tests of single optimizers, and tests that run for every optimizer class."""

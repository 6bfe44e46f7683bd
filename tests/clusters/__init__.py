"""Tests of training in several processes. Some tests kill processes."""

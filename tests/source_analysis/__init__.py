"""Tests of the analysis of Python sources."""

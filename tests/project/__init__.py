"""Tests of the project itself: its lanes, packages, benchmarks and tools."""

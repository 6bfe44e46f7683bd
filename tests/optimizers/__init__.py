"""Tests of each optimizer, and the suite over every class."""

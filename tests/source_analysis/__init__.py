"""Tests of the package that analyses Python sources."""

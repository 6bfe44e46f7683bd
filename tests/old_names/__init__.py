"""Tests of the table of old names and of `compat.patch_tensorflow`."""

"""Tests of the command legacy-opt."""

"""Tests that our optimizer of Keras 3 passes all vectors, on JAX and PyTorch."""

from tests.recorded.vectors import INVALID, by, fails


@INVALID
def test_our_target():
    assert not fails(by("legacy-opt:keras"), "EQUAL")

"""Tests that our optimizer of PyTorch passes all vectors."""

import pytest

from tests.recorded.vectors import INVALID, by, fails


@INVALID
@pytest.mark.parametrize("level", ["exact", "native", "fast"])
def test_our_target(level):
    expected = ["EQUAL", "ROUNDING"] if level == "fast" else ["EQUAL"]
    assert not fails(by(f"legacy-opt:torch-{level}"), *expected)

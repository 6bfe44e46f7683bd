"""Tests that `make bench-leave` measures steps in JAX."""

import pytest

from benchmarks.leave import cases, run
from legacy_opt.recorded.arrays.library import LEVELS


@pytest.mark.parametrize("name", [cases.LARGE, cases.ROWS])
def test_comparisons_are_measured_in_both_situations(name):
    comparisons = [each for each in cases.COMPARISONS["jax"] if each.case == name]
    if "native" not in LEVELS:
        comparisons = [each for each in comparisons if not each.contestant.startswith("native")]
    results = run.measure("jax", cases.CASES[name].scaled_down(5000), comparisons, rounds=1)
    ways = ["after an operation", "rested"]
    for comparison in comparisons:
        found = [each.way for each in results if each.optimizer == comparison.contestant]
        assert found == ways

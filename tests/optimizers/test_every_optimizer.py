"""One suite for all public optimizers: {way to run} x {gradient} x {dtype} x {kernel, rule}.

A run is held against a NumPy oracle, and runs that differ in the way only are held against each
other bit for bit.
"""

import pytest

from legacy_opt import RuleOptimizer
from tests.support import problems, running
from tests.support.cases import CASES, public_optimizers, public_optimizers_with_cases
from tests.support.oracle_runs import assert_close, run_oracles

KINDS = ("dense", "sparse", "duplicates")
DTYPES = ("float16", "float32", "float64")
FIRST = "session-ref"
COUNTED_CASES = pytest.mark.parametrize("number, name", list(enumerate(CASES)))


def test_every_public_optimizer_has_a_case():
    assert public_optimizers_with_cases() == set(public_optimizers())


def problems_of(dtype, full):
    """Returns all kinds of gradients: daily in one small problem, in the full run apart."""
    if full:
        return [problems.make(kind, dtype) for kind in KINDS]
    return [problems.everything(dtype, ("matrix", "vector", "table", "bias"), steps=11)]


def assert_follows(name, problem, trace):
    assert_close(trace, *run_oracles(name, problem), CASES[name].ulps, problem.dtype)


def ways_of(number, dtype, full):
    """Returns the ways besides a Session of ref variables: daily the quick ones, one in turn."""
    ways = [way for way in running.WAYS if way != FIRST]
    if full:
        return ways
    if dtype == "float32":
        return ["session-resource", "eager", ("function", "wrap_function")[number % 2]]
    return [ways[(number + DTYPES.index(dtype)) % len(ways)]]


@pytest.mark.parametrize("dtype", DTYPES)
@COUNTED_CASES
def test_all_ways_follow_the_oracle_and_compute_the_same_bits(number, name, dtype, full):
    case = CASES[name]
    for problem in problems_of(dtype, full):
        first = running.WAYS[FIRST](problem, case.make)
        assert_follows(name, problem, first)
        for way in ways_of(number, dtype, full):
            trace, expected = running.WAYS[way](problem, case.make), first
            if case.regrouped and problem.sparse:
                if (way, dtype) == ("function", "float16"):
                    assert_follows(name, problem, trace)
                    continue
                if way == "eager":
                    expected = running.session_without_rewriting(problem, case.make)
            running.assert_same(trace, expected, way)


def has_a_kernel(case):
    fused = getattr(case.optimizer, "fused", RuleOptimizer.fused)
    return fused is not RuleOptimizer.fused


@COUNTED_CASES
def test_the_rule_follows_the_oracle_without_a_kernel(number, name, full):
    """Every way and dtype in the full run; daily one, in turn."""
    if not has_a_kernel(CASES[name]):
        return  # all of the above is the rule
    cells = [(dtype, way) for dtype in DTYPES for way in running.WAYS]
    for dtype, way in cells if full else [cells[number * 7 % len(cells)]]:
        for problem in problems_of(dtype, full):
            trace = running.WAYS[way](problem, CASES[name].make_composed)
            assert_follows(name, problem, trace)

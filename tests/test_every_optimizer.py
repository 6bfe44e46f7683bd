"""One suite for all public optimizers: {way to run} x {gradient} x {dtype} x {kernel, rule}.

A run is held against a NumPy oracle, and runs that differ in the way only are held against each
other bit for bit.
"""

import numpy as np
import pytest

from legacy_opt import RuleOptimizer
from tests import problems, running
from tests.cases import CASES, public_optimizers, public_optimizers_with_cases

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


def run_oracles(name, problem):
    """Runs the oracles of a case; what has no elements has nothing to be updated."""
    oracles = {key: CASES[name].oracle(value, key) for key, value in problem.values.items()}
    values = []
    for step, gradients in enumerate(problem.gradients):
        for key, oracle in oracles.items():
            if oracle.value.size:
                oracle.apply(gradients[key], step)
        values.append({key: oracle.value.copy() for key, oracle in oracles.items()})
    slots = {
        (key, slot): value
        for key, oracle in oracles.items()
        for slot, value in oracle.slots.items()
    }
    return values, slots


def assert_close(trace, values, slots, ulps, dtype):
    """Each step may add `ulps` units in the last place of what it computes with."""
    eps = float(np.finfo(dtype).eps)
    for number, (actual, wanted) in enumerate(zip(trace.steps, values)):
        for key in wanted:
            bound = ulps * eps * (number + 1) * max(1.0, np.abs(wanted[key]).max(initial=0))
            gap = np.abs(actual[key].astype(np.float64) - wanted[key]).max(initial=0)
            assert gap <= bound, "%s after step %d: %g > %g" % (key, number, gap, bound)
    assert set(trace.slots) == set(slots)
    for key, wanted in slots.items():
        assert trace.slots[key].dtype == wanted.dtype and trace.slots[key].shape == wanted.shape
        if np.issubdtype(wanted.dtype, np.integer):
            np.testing.assert_array_equal(trace.slots[key], wanted, err_msg=str(key))
        else:
            scale = max(1.0, np.abs(wanted).max(initial=0))
            gap = np.abs(trace.slots[key].astype(np.float64) - wanted).max(initial=0)
            assert gap <= ulps * eps * len(values) * scale, (key, gap)


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

"""One suite for all public optimizers: {way to run} x {gradient} x {dtype} x {kernel, rule}.

Every cell is held against a NumPy oracle, and the cells that differ in the way to run only are held
against each other bit for bit.
"""

import functools

import numpy as np
import pytest

from tests import problems, running
from tests.cases import CASES, public_optimizers

KINDS = ("dense", "sparse", "duplicates")
DTYPES = ("float16", "float32", "float64")


def test_every_public_optimizer_has_a_case():
    classes = {case.optimizer for case in CASES.values()}
    # Classes that extend_with_decoupled_weight_decay makes may have cases, too.
    assert {cls for cls in classes if "base_optimizer" not in vars(cls)} == set(public_optimizers())


@functools.lru_cache(maxsize=None)
def expected(name, kind, dtype, steps=24, global_step="int64"):
    """Runs the oracles; returns (values after each step, slots at the end)."""
    return run_oracles(name, problems.make(kind, dtype, steps, global_step=global_step))


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


@functools.lru_cache(maxsize=None)
def trace(way, name, kind, dtype, composed=False, global_step="int64"):
    """Runs one cell."""
    case = CASES[name]
    problem = problems.make(kind, dtype, global_step=global_step)
    make = case.make_composed if composed else case.make
    if way == "session without rewriting":
        return running.session_without_rewriting(problem, make)
    return running.WAYS[way](problem, make)


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


@pytest.mark.cells(
    name=list(CASES), way=list(running.WAYS), kind=KINDS, dtype=DTYPES, composed=[False, True]
)
def test_against_the_oracle(name, way, kind, dtype, composed):
    values, slots = expected(name, kind, dtype)
    assert_close(trace(way, name, kind, dtype, composed), values, slots, CASES[name].ulps, dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("way", [way for way in running.WAYS if way != "session-ref"])
@pytest.mark.parametrize("name", CASES)
def test_all_ways_compute_the_same_bits(name, way, kind, dtype):
    reference, actual = "session-ref", trace(way, name, kind, dtype)
    regrouped = CASES[name].regrouped and kind != "dense"
    if regrouped and (way, dtype) == ("function", "float16"):
        assert_close(actual, *expected(name, kind, dtype), CASES[name].ulps, dtype)
        return
    if regrouped and way == "eager":
        reference = "session without rewriting"
    running.assert_same(actual, trace(reference, name, kind, dtype), way)

"""Tests all public optimizers in every execution mode (`way`), with dense and sparse gradients.

The results of a Session with ref variables must be close to those of a NumPy reference (oracle).
The results of the other execution modes must have the same bits as those of this Session, except
where TensorFlow's graph rewriting changes bits. Optimizers with a fused kernel (one TensorFlow op
that computes the whole update) are also tested without the kernel. In these tests, the optimizer's
method `rule` computes the update.
"""

import functools

import pytest

from legacy_opt import RuleOptimizer
from tests.support import problems, running
from tests.support.cases import CASES, public_optimizers, public_optimizers_with_cases
from tests.support.oracle_runs import assert_close, refuses, run_oracles

KINDS = ("dense", "sparse", "duplicates")
DTYPES = ("float16", "float32", "float64")
FIRST = "session-ref"
OTHERS = [way for way in running.WAYS if way != FIRST]


def test_every_public_optimizer_has_a_case():
    assert public_optimizers_with_cases() == set(public_optimizers()), (
        "add a Case in tests/support/optimizer_cases, and its module to tests/support/cases.py"
    )


def problems_of(dtype, full):
    """Returns one problem with all kinds of gradients or, if `full`, a problem for each kind."""
    if full:
        return [problems.make(kind, dtype) for kind in KINDS]
    return [problems.everything(dtype, ("matrix", "vector", "table", "bias"), steps=11)]


def assert_follows(name, problem, trace):
    assert_close(trace, *run_oracles(name, problem), CASES[name].ulps, problem.dtype)


@functools.lru_cache(maxsize=None)
def in_sessions(name, dtype, full):
    """Trains in a Session with ref variables, and compares the results with the oracle.

    Returns:
      A list of pairs (problem, trace). A trace has the variables after each step, and the slots.
    """
    found = [
        (each, running.session_ref(each, CASES[name].make))
        for each in problems_of(dtype, full)
        if not refuses(name, each, FIRST, CASES[name].make)
    ]
    for problem, trace in found:
        assert_follows(name, problem, trace)
    return found


@pytest.mark.one_lane
@pytest.mark.in_turn(name=CASES, dtype=DTYPES, way=OTHERS)
def test_all_ways_follow_the_oracle_and_compute_the_same_bits(name, dtype, way, full):
    case = CASES[name]
    assert in_sessions(name, dtype, full) or refuses(
        name, problems_of(dtype, full)[0], way, case.make
    )
    for problem, expected in in_sessions(name, dtype, full):
        trace = running.WAYS[way](problem, case.make)
        # For a `regrouped` case, graph rewriting changes the last bits of sparse updates. So eager
        # results are compared with a Session without graph rewriting. A tf.function with float16
        # variables is compared only with the oracle, because TensorFlow rewrites the graphs of
        # functions and of Sessions differently.
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


# The optimizers with a fused kernel. The test above already runs the rules of all other optimizers.
WITH_A_KERNEL = [name for name in CASES if has_a_kernel(CASES[name])]


@pytest.mark.in_turn(name=WITH_A_KERNEL, dtype=DTYPES, way=list(running.WAYS))
def test_the_rule_follows_the_oracle_without_a_kernel(name, dtype, way, full):
    for problem in problems_of(dtype, full):
        trace = running.WAYS[way](problem, CASES[name].make_composed)
        assert_follows(name, problem, trace)

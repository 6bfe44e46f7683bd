"""Tests all public optimizers in every execution mode (`way`), with dense and sparse gradients.

A Session with ref variables is compared with a NumPy reference (oracle), and the other execution
modes with this Session, bit for bit where TensorFlow's graph rewriting allows it. An optimizer that
uses a fused kernel (one TensorFlow op for the whole update) is also run without the kernel: then
its method `rule` computes the update.
"""

import functools

import pytest

from legacy_opt import RuleOptimizer
from tests.support import problems, running
from tests.support.cases import CASES, public_optimizers, public_optimizers_with_cases
from tests.support.oracle_runs import assert_close, run_oracles

KINDS = ("dense", "sparse", "duplicates")
DTYPES = ("float16", "float32", "float64")
FIRST = "session-ref"
OTHERS = [way for way in running.WAYS if way != FIRST]


def test_every_public_optimizer_has_a_case():
    assert public_optimizers_with_cases() == set(public_optimizers())


def problems_of(dtype, full):
    """Returns a list: one problem with all kinds of gradients; with --full, one for each kind."""
    if full:
        return [problems.make(kind, dtype) for kind in KINDS]
    return [problems.everything(dtype, ("matrix", "vector", "table", "bias"), steps=11)]


def assert_follows(name, problem, trace):
    assert_close(trace, *run_oracles(name, problem), CASES[name].ulps, problem.dtype)


@functools.lru_cache(maxsize=None)
def in_sessions(name, dtype, full):
    """Returns (problem, trace) pairs from a Session with ref variables, checked by the oracle."""
    found = [
        (each, running.session_ref(each, CASES[name].make)) for each in problems_of(dtype, full)
    ]
    for problem, trace in found:
        assert_follows(name, problem, trace)
    return found


@pytest.mark.pairwise(name=CASES, dtype=DTYPES, way=OTHERS)
def test_all_ways_follow_the_oracle_and_compute_the_same_bits(name, dtype, way, full):
    case = CASES[name]
    for problem, expected in in_sessions(name, dtype, full):
        trace = running.WAYS[way](problem, case.make)
        # For a `regrouped` case, graph rewriting changes the last bits of sparse updates. So eager
        # code is compared with a Session without rewriting. A float16 function is compared only
        # with the oracle, because TensorFlow rewrites functions and Sessions differently.
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


# The test above already runs the rules of optimizers that have no fused kernel.
WITH_A_KERNEL = [name for name in CASES if has_a_kernel(CASES[name])]


@pytest.mark.in_turn(name=WITH_A_KERNEL, dtype=DTYPES, way=list(running.WAYS))
def test_the_rule_follows_the_oracle_without_a_kernel(name, dtype, way, full):
    for problem in problems_of(dtype, full):
        trace = running.WAYS[way](problem, CASES[name].make_composed)
        assert_follows(name, problem, trace)

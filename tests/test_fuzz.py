"""A few cases of tests/fuzz; `python -m tests.fuzz --cases 100000` runs many more."""

import collections

import numpy as np
import pytest

pytest.importorskip("hypothesis")

from tests import running
from tests.fuzz import checking
from tests.fuzz.__main__ import main, run_block
from tests.fuzz.cases import Fuzzed, Gradient


def test_cases_that_nobody_has_chosen():
    outcomes = collections.Counter()
    for number in range(3):  # the same every day
        assert not run_block(number, 15, outcomes, set())
    assert outcomes["compared"] > 10


@pytest.mark.full
def test_many_of_them():
    assert not main(["--cases", "2000", "--seed", "1"])


def fuzzed(name, shape=(3, 2), ids=None, **arguments):
    gradients = (Gradient(1, 1.0, ids), Gradient(2, 1.0, ids))
    kind = arguments.pop("kind", "usual")
    return Fuzzed(name, "eager", "float32", shape, gradients, "int64", arguments, kind)


# What it has found. The last two are of the oracles and of how they are compared.
FOUND = {
    "an id, and rows without elements": fuzzed("AdamGS", (1, 0), (0,)),
    "more axes than GatherNd has": fuzzed("AdagradDecay", (2,) + (1,) * 7, (0, 1, 1)),
    "a number beyond float32": fuzzed("LazyAdam", learning_rate=1e300, kind="extreme"),
    "no rows of a vector": fuzzed("Shampoo max_matrix_size", (5,), ()),
    "a kernel that cancels": fuzzed("LazyAdam", beta2=0.0, kind="extreme"),
}


@pytest.mark.parametrize("name", list(FOUND))
def test_what_was_found_stays_mended(name):
    checking.check(FOUND[name])


def test_it_finds_wrong_numbers(monkeypatch):
    case = fuzzed("LazyAdam", ids=(0, 2, 2))
    assert checking.check(case) == "compared"
    eager = running.WAYS["eager"]

    def a_little_off(problem, make):
        trace = eager(problem, make)
        trace.steps[-1]["w"] += np.float32(1e-4)
        return trace

    monkeypatch.setitem(running.WAYS, "eager", a_little_off)
    with pytest.raises(checking.Finding, match="where the oracle has"):
        checking.check(case)


def test_it_finds_arguments_that_are_not_refused():
    with pytest.raises(checking.Finding, match="the constructor took"):
        checking.check(fuzzed("LazyAdam", learning_rate=0.1, kind="wrong"))


def test_it_finds_a_failed_step_that_changes_something(monkeypatch):
    case = fuzzed("LazyAdam", ids=(0, -1))
    assert checking.check(case) == "failed cleanly"
    # TensorFlow's kernel writes the rows that come before the wrong one.
    case = case._replace(name="LARS")
    assert checking.check(case) == "failed cleanly"
    monkeypatch.setattr(checking, "in_place", lambda optimizer: False)
    with pytest.raises(AssertionError, match="changed by a failed step"):
        checking.check(case)

"""Which cells a run has: every one, pairs, or a lane's share of them.

A run of one lane has all daily cells. Where all lanes run, each is told its turn (`--turn 2/5`: the
second of five), and the cells of a test that takes longer than `BUDGET` are shared: each runs on as
many lanes as the budget pays for, and on one at least; on each if it is marked so. Cells of one
optimizer and dtype stay together, since they are compared with the same Sessions, and so do the
tests that wait for one fixture.
"""

import collections
import functools
import itertools
import json
import math
import re
import zlib
from pathlib import Path

import pytest
from allpairspy import AllPairs

ParameterSet = type(pytest.param())
BUDGET = 0.1  # seconds that all cells of a test may take on one lane
# What takes longer: seconds of all cells on one lane, by test, and those of fixtures that tests
# share (python -m tests.tools.seconds).
SECONDS = Path(__file__).with_name("seconds.json")

TOO_SLOW = "too slow for every day: make test-full"
ANOTHER_LANES_TURN = "another lane has its turn: make test-full"
# The parameters that decide with what a cell is compared.
_COMPARED_BY = ("name", "optimizer", "cls", "case", "dtype")
# Cells that not every lane has run on each that has them.
_NOT_EVERYWHERE = re.compile(r"\[.*(contrib|Ftrl beta)")


def pytest_generate_tests(metafunc):
    for daily in (pairwise, in_turn):
        for marker in metafunc.definition.iter_markers(daily.__name__):
            axes = {name: list(values) for name, values in marker.kwargs.items()}
            choose = every_cell if metafunc.config.getoption("full") else daily
            metafunc.parametrize(list(axes), [_with_marks(cell) for cell in choose(axes)])


def pytest_make_parametrize_id(val):
    """Names a tuple of words by them, and lines of code, for which pytests differ, by a number."""
    if isinstance(val, str) and "\n" in val:
        return f"{_number(val):08x}"
    words = isinstance(val, tuple) and all(isinstance(word, str) for word in val)
    return "-".join(val) if words and val else None


def pytest_collection_modifyitems(config, items):
    """Leaves out what is too slow for a daily run and what other lanes have, and counts it."""
    left = {TOO_SLOW: [], ANOTHER_LANES_TURN: []}
    if not config.getoption("full"):
        left[TOO_SLOW] = [item for item in items if item.get_closest_marker("full")]
        items[:] = [item for item in items if not item.get_closest_marker("full")]
        if config.getoption("turn"):
            here = set(share(items, *config.getoption("turn")))
            left[ANOTHER_LANES_TURN] = [item for item in items if item not in here]
            items[:] = [item for item in items if item in here]
    if hasattr(config, "workerinput"):  # with xdist
        items[:] = longest_first(items)
    config.hook.pytest_deselected(items=[item for each in left.values() for item in each])
    config.left_out = {
        reason: dict(collections.Counter(map(test_of, each))) for reason, each in left.items()
    }


def every_cell(axes):
    """Returns every combination of the axes' values."""
    return list(itertools.product(*axes.values()))


def pairwise(axes):
    """Returns few combinations in which each pair of values of any two axes occurs."""
    if len(axes) < 3:
        return every_cell(axes)
    return [tuple(cell) for cell in AllPairs(list(axes.values()))]


def in_turn(axes):
    """Returns each value of the first axis with one combination of the others, which take turns."""
    (_, values), *others = axes.items()
    combinations = every_cell(dict(others))
    return [
        (value, *combinations[number % len(combinations)]) for number, value in enumerate(values)
    ]


def _with_marks(cell):
    """Returns a combination of values, with the marks of those that have some."""
    params = [value if isinstance(value, ParameterSet) else pytest.param(value) for value in cell]
    marks = [mark for param in params for mark in param.marks]
    return pytest.param(*(value for param in params for value in param.values), marks=marks)


def turn(text):
    """Returns the numbers of `--turn`, which must be like 2/5."""
    number, total = (int(word) for word in text.split("/"))
    if not 1 <= number <= total:
        raise ValueError
    return number, total


def share(items, number, total):
    """Yields the tests that a lane has.

    Args:
      items: all tests.
      number: which lane this is, from 1.
      total: how many lanes there are.
    """
    for item in items:
        waits = _longest_fixture([item])
        paid_for = max(seconds().get(test_of(item), 0), waits)
        place, lanes = _lanes_with(item, number, total)
        times = int(BUDGET * lanes / paid_for) if paid_for else lanes
        if item.get_closest_marker("once"):
            times = 1
        # By names alone: a lane does not know which cells others have.
        position = _number(file_of(item.nodeid))
        if not waits:
            position += _number(_compared_by(item))
        if (position + place) % lanes < max(1, times):
            yield item


def longest_first(items):
    """Returns tests by file, the longest file first, so that no worker ends long after another."""
    files = collections.defaultdict(list)
    for item in items:
        files[file_of(item.nodeid)].append(item)

    def seconds_of(file):
        tests = {test_of(item) for item in files[file]}
        # Exactly, since two workers go through a set in two orders.
        return math.fsum(seconds().get(test, 0) for test in tests) + _longest_fixture(files[file])

    return [item for file in sorted(files, key=seconds_of, reverse=True) for item in files[file]]


@functools.lru_cache(maxsize=None)
def seconds():
    """Returns what is in `SECONDS`."""
    return json.loads(SECONDS.read_text(encoding="utf-8"))


def _longest_fixture(items):
    """Returns what the longest fixture of their file takes that tests share."""
    names = {file_of(item.nodeid) + "::" + name for item in items for name in item.fixturenames}
    return max([seconds().get(name, 0) for name in names], default=0)


def file_of(name):
    """Returns the file of a test."""
    return name.partition("::")[0]


def test_of(item):
    """Returns the name of a test without its parameters."""
    return item.nodeid.partition("[")[0]


def _lanes_with(item, number, total):
    """Returns which lane this is among those that have a cell, and how many these are."""
    if item.get_closest_marker("keras3"):
        return 1 + (number == total), 2  # the newest lane, and the oldest Keras 3
    is_never_shared = any(map(item.get_closest_marker, ("contrib", "every_lane")))
    if is_never_shared or _NOT_EVERYWHERE.search(item.nodeid):
        return 1, 1
    return number, total


def _compared_by(item):
    """Returns what a cell goes together by: parameters, or all that its name has of them."""
    parameters = getattr(item, "callspec", None) and item.callspec.params or {}
    values = [parameters[name] for name in _COMPARED_BY if name in parameters]
    names = [
        value if isinstance(value, str) else getattr(value, "__name__", "") for value in values
    ]
    return "-".join(names) if all(names) and names else item.nodeid.partition("[")[2]


def _number(text):
    """Returns a number, the same in each process; names of cells may hold lone surrogates."""
    return zlib.crc32(text.encode("utf-8", "surrogatepass"))

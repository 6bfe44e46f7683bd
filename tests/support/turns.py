"""Selects the cells of a test run.

A cell is a test with one combination of parameters; a lane is one TensorFlow version. With the
option `--full`, all cells run; if all lanes run, each long cell on one of them, the next day on
another. Otherwise only the daily cells run: the cells without the mark `full`. For tests with the
mark `pairwise` or `in_turn`, the daily cells have only some combinations of the parameters.

If a single lane runs, it runs all daily cells. If all lanes run, each lane gets its number
(`--turn 2/5` is the second of five lanes). If the cells of a test take longer than `BUDGET`, they
are then divided among the lanes: each cell runs on as many lanes as the budget allows, but at least
on one lane. If the cells take longer than `DAY` on one lane, only some of them run on any lane:
their share falls with the square root of the duration. Tests with the mark `every_lane` are never
divided. Of tests with the mark `one_lane`, each cell runs on one lane.

With the option `--day`, the number of a day, cells that take longer than `LONG` come round: each
runs every second day or, if it takes longer than four times `LONG`, every fourth day. On the days
between, other lanes run the cells of the mark `every_lane`.

If possible, cells of one file with the same optimizer and dtype run on the same lanes, because they
are compared with the same Session runs, which are cached. If possible, tests of one file that use
the same slow fixture run on the same lanes, too.
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
BUDGET = 0.04  # seconds that all cells of a test may take on one lane
DAY = 0.12  # seconds; of tests that take longer on one lane, only some cells run on any lane
LONG = 0.3  # seconds; cells that take longer, alone or with a shared fixture, do not run each day
# A JSON file with the durations in seconds of shared fixtures, and of tests whose cells together
# take longer than `BUDGET` on one lane. `python -m tests.tools.seconds` writes this file.
SECONDS = Path(__file__).with_name("seconds.json")

TOO_SLOW = "too slow for every day: make test-full"
TOO_MANY = "many cells of a long test: make test-full"
ANOTHER_DAYS_TURN = "comes round every second or fourth day; `make test-full` runs all cells"
ANOTHER_LANES_TURN = "runs on another lane; `make test-full LANE=…` runs all cells on one"
# The names of parameters that determine the Session run with which a cell is compared.
_COMPARED_BY = ("name", "optimizer", "cls", "case", "dtype")
# Matches the parameters of cells that exist only on some lanes. Each of these lanes runs the cells.
_NOT_EVERYWHERE = re.compile("contrib|Ftrl beta")


def pytest_generate_tests(metafunc):
    for daily in (pairwise, in_turn):
        for marker in metafunc.definition.iter_markers(daily.__name__):
            axes = {name: list(values) for name, values in marker.kwargs.items()}
            choose = every_cell if metafunc.config.getoption("full") else daily
            metafunc.parametrize(list(axes), [_with_marks(cell) for cell in choose(axes)])


def pytest_make_parametrize_id(val):
    """Returns ids for tuples of strings (joined) and for long strings and lines (a checksum).

    Without this function, the ids of strings with newlines would depend on pytest's version.
    """
    if isinstance(val, str) and ("\n" in val or len(val) > 200):
        return f"{_number(val):08x}"
    words = isinstance(val, tuple) and all(isinstance(word, str) for word in val)
    return "-".join(val) if words and val else None


def pytest_collection_modifyitems(config, items):
    """Deselects slow cells and cells of other lanes; config.left_out gets their counts."""
    left = {TOO_SLOW: [], TOO_MANY: [], ANOTHER_LANES_TURN: [], ANOTHER_DAYS_TURN: []}
    if not config.getoption("full"):
        left[TOO_SLOW] = [item for item in items if item.get_closest_marker("full")]
        items[:] = [item for item in items if not item.get_closest_marker("full")]
        if config.getoption("turn"):
            chosen = set(daily(items))
            here = chosen & set(share(items, *config.getoption("turn")))
            today = here & set(of_day(items, config.getoption("day"), *config.getoption("turn")))
            elsewhere, later = chosen - here, here - today
            left[TOO_MANY] = [item for item in items if item not in chosen]
            left[ANOTHER_LANES_TURN] = [item for item in items if item in elsewhere]
            left[ANOTHER_DAYS_TURN] = [item for item in items if item in later]
            items[:] = [item for item in items if item in today]
    elif config.getoption("turn"):
        here = set(full_share(items, config.getoption("day"), *config.getoption("turn")))
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
    """Returns a few combinations, in which each pair of values of two axes occurs."""
    if len(axes) < 3:
        return every_cell(axes)
    return [tuple(cell) for cell in AllPairs(list(axes.values()))]


def in_turn(axes):
    """Combines each value of the first axis with one combination of the other axes, in turn.

    If there are several other axes, consecutive combinations differ in as many of them as possible.
    """
    (_, values), *others = axes.items()
    combinations = every_cell(dict(others))
    count = len(combinations)
    step = 1 if len(others) == 1 else _step_through(count)
    return [(value, *combinations[number * step % count]) for number, value in enumerate(values)]


def _step_through(count):
    """Returns a step of about 5/8 of `count` that reaches each of `count` places in a circle."""
    return next(step for step in itertools.count(count * 5 // 8) if math.gcd(step, count) == 1)


def pairwise_first(axes):
    """Returns every combination as one parameter for the mark `in_turn`; first those of `pairwise`.

    Combinations with a value that begins with "keras3" get the mark `keras3`.
    """
    axes = {name: list(values) for name, values in axes.items()}
    combinations = dict.fromkeys(pairwise(axes) + every_cell(axes))
    return [
        pytest.param(each, marks=[pytest.mark.keras3] * any(v.startswith("keras3") for v in each))
        for each in combinations
    ]


def _with_marks(cell):
    """Returns a combination of values as a pytest.param with the marks of all its values."""
    params = [value if isinstance(value, ParameterSet) else pytest.param(value) for value in cell]
    marks = [mark for param in params for mark in param.marks]
    return pytest.param(*(value for param in params for value in param.values), marks=marks)


def turn(text):
    """Parses the option `--turn`: "2/5" becomes (2, 5)."""
    number, total = (int(word) for word in text.split("/"))
    if not 1 <= number <= total:
        raise ValueError
    return number, total


def daily(items):
    """Yields the cells that some lane runs: of a long test, at least one cell."""
    tests = collections.defaultdict(list)
    for item in items:
        tests[test_of(item)].append(item)
    for test, cells in tests.items():
        # Each lane chooses the same cells, although other lanes may have other cells.
        places = {item: _number(item.nodeid) / 2**32 for item in cells}
        few = math.sqrt(DAY / max(DAY, seconds().get(test, 0)))
        last = max(few, min(places.values()))
        for item, place in places.items():
            if place <= last or any(map(item.get_closest_marker, ("every_lane", "one_lane"))):
                yield item


def share(items, number, total):
    """Yields the cells that one lane runs, if they are chosen.

    Args:
      items: all cells.
      number: the number of this lane, from 1.
      total: the number of lanes.
    """
    for item in items:
        fixture_seconds = _longest_fixture([item])
        cost = max(seconds().get(test_of(item), 0), fixture_seconds)
        lane, lanes = _lanes_with(item, number, total)
        times = int(BUDGET * lanes / cost) if cost else lanes
        if any(map(item.get_closest_marker, ("once", "one_lane", "full"))):
            times = 1
        # The position depends only on names, because other lanes may have other cells.
        position = _number(file_of(item.nodeid))
        if not fixture_seconds:
            position += _number(_compared_by(item))
        if (position + lane) % lanes < max(1, times):
            yield item


def full_share(items, day, number, total):
    """Yields the cells that one lane runs on a day if the lanes divide all cells; see `of_day`.

    The newest lane runs all cells of Keras 3: `make test-full` has no other lane with Keras 3.
    """
    of_keras3 = {item for item in items if item.get_closest_marker("keras3")}
    others = [item for item in items if item not in of_keras3]
    shared = set(share(others, 1 + (number + (day or 0)) % total, total))
    yield from (item for item in items if item in of_keras3 or item in shared)


def of_day(items, day, number, total):
    """Yields the cells that one lane runs on a day, if they are chosen and this lane's.

    Args:
      items: all cells.
      day: the number of the day, or None for the cells of all days.
      number: the number of this lane, from 1. Neighbours run a cell on different days.
      total: the number of lanes.
    """
    cells = collections.Counter(map(test_of, items))
    for item in items:
        fixture_seconds = _longest_fixture([item])
        test = test_of(item)
        cost = max(seconds().get(test, 0) / cells[test], fixture_seconds)
        days = 1 if day is None or cost <= LONG else 2 if cost <= 4 * LONG else 4
        position = _number(file_of(item.nodeid) if fixture_seconds else item.nodeid)
        if (position + (day or 0) + number - total) % days == 0:
            yield item


def longest_first(items):
    """Sorts tests by file, slowest file first, so that xdist workers end at about the same time."""
    files = collections.defaultdict(list)
    for item in items:
        files[file_of(item.nodeid)].append(item)

    def seconds_of(file):
        tests = {test_of(item) for item in files[file]}
        # All xdist workers must return the same order, but may iterate over a set in different
        # orders. Therefore use fsum, whose result does not depend on the order of the summands.
        return math.fsum(seconds().get(test, 0) for test in tests) + _longest_fixture(files[file])

    return [item for file in sorted(files, key=seconds_of, reverse=True) for item in files[file]]


@functools.lru_cache(maxsize=None)
def seconds():
    """Returns the content of `SECONDS`."""
    return json.loads(SECONDS.read_text(encoding="utf-8"))


def _longest_fixture(items):
    """Returns the duration of the slowest shared fixture that these tests use."""
    names = {file_of(item.nodeid) + "::" + name for item in items for name in item.fixturenames}
    return max([seconds().get(name, 0) for name in names], default=0)


def file_of(name):
    """Returns the file of a test."""
    return name.partition("::")[0]


def test_of(item):
    """Returns the name of a test without its parameters."""
    return item.nodeid.partition("[")[0]


def _lanes_with(item, number, total):
    """Returns this lane's number among the lanes that share a cell, and the number of these lanes.

    Returns (1, 1) for a cell that is not divided but runs on every lane that can run it.
    """
    if item.get_closest_marker("every_lane"):
        return 1, 1
    if item.get_closest_marker("keras3"):
        # Two runs share the tests of Keras 3: the newest lane, and the nox session `oldest_keras`,
        # which has an older version of Keras 3 and runs with `--turn 1/2`.
        return 1 + (number == total), 2
    if item.get_closest_marker("contrib") or _NOT_EVERYWHERE.search(_parameters(item)):
        return 1, 1
    return number, total


def _compared_by(item):
    """Returns a key of the Session run with which a cell is compared, from its parameters."""
    parameters = getattr(item, "callspec", None) and item.callspec.params or {}
    values = [parameters[name] for name in _COMPARED_BY if name in parameters]
    names = [
        value if isinstance(value, str) else getattr(value, "__name__", "") for value in values
    ]
    return "-".join(names) if all(names) and names else _parameters(item)


def _parameters(item):
    """Returns the ids of a cell's parameters."""
    return item.nodeid.partition("[")[2]


def _number(text):
    """Returns a checksum that is the same in each process; lone surrogates are allowed."""
    return zlib.crc32(text.encode("utf-8", "surrogatepass"))

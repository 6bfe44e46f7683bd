"""Which cells a run has: every one, pairs, or a lane's share of them.

A run of one lane has all daily cells. Where all lanes run, each is told its turn (`--turn 2/5`: the
second of five), and the cells of a test that takes longer than `BUDGET` are shared: each runs on as
many lanes as the budget pays for, and on one at least. Cells of one optimizer and dtype stay
together, since they are compared with the same Sessions, and so do tests of one file, since they
share fixtures.
"""

import collections
import itertools
import json
import re
import zlib
from pathlib import Path

from allpairspy import AllPairs

BUDGET = 1.0  # seconds that all cells of a test may take on one lane
# What takes longer: seconds of all cells on one lane, by test (python -m tests.tools.seconds).
SECONDS = Path(__file__).with_name("seconds.json")

TOO_SLOW = "too slow for every day: make test-full"
ANOTHER_LANES_TURN = "another lane has its turn: make test-full"
# The parameters that decide with what a cell is compared.
_COMPARED_BY = ("name", "optimizer", "cls", "case", "dtype")
# Cells that no other lane has: those of Keras 3, which its oldest version shares, and tf.contrib.
_KERAS_3, _CONTRIB = re.compile(r"\[.*keras3"), re.compile(r"\[.*contrib")


def pytest_generate_tests(metafunc):
    for marker in metafunc.definition.iter_markers("cells"):
        axes = dict(marker.kwargs)
        full = metafunc.config.getoption("full")
        metafunc.parametrize(list(axes), every_cell(axes) if full else pairwise(axes))


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
    return [tuple(cell) for cell in AllPairs([list(values) for values in axes.values()])]


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
    seconds = json.loads(SECONDS.read_text(encoding="utf-8"))
    tests = collections.defaultdict(list)
    for item in items:  # apart by who has them
        tests[test_of(item), _only_here(item)].append(item)
    for (test, _), cells in tests.items():
        file = test.partition("::")[0]
        place, lanes = _lanes_with(cells[0], number, total)
        paid = int(BUDGET * lanes / seconds[test]) if test in seconds else lanes
        for key, item in _keyed(cells, lanes):
            times = 1 if item.get_closest_marker("once") else max(1, paid)
            # By the key alone, as not every lane has the same cells.
            if (_number(file + key) + place) % lanes < times:
                yield item


def test_of(item):
    """Returns the name of a test without its parameters."""
    return item.nodeid.partition("[")[0]


def _only_here(item):
    """Returns which of the things that not every lane has a cell needs, or None."""
    if item.get_closest_marker("contrib") or _CONTRIB.search(item.nodeid):
        return "contrib"
    if item.get_closest_marker("keras3"):
        return "keras3"
    return "keras3, newest" if _KERAS_3.search(item.nodeid) else None


def _lanes_with(item, number, total):
    """Returns which lane this is among those that have a cell, and how many these are."""
    where = _only_here(item)
    if where == "keras3":
        return 1 + (number == total), 2  # the newest lane, and the oldest Keras 3
    return (number, total) if where is None else (1, 1)


def _keyed(cells, lanes):
    """Yields the cells with the keys of their groups, which stay together."""
    groups = set(map(_compared_by, cells))
    for item in cells:
        yield _compared_by(item) if len(groups) >= lanes else _parameters_of(item), item


def _compared_by(item):
    parameters = getattr(item, "callspec", None) and item.callspec.params or {}
    values = [parameters[name] for name in _COMPARED_BY if name in parameters]
    names = [
        value if isinstance(value, str) else getattr(value, "__name__", "") for value in values
    ]
    return "-".join(names) if all(names) and names else _parameters_of(item)


def _parameters_of(item):
    return item.nodeid.partition("[")[2]


def _number(text):
    """Returns a number, the same in each process; names of cells may hold lone surrogates."""
    return zlib.crc32(text.encode("utf-8", "surrogatepass"))

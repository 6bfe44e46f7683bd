"""What every run of the tests needs: its options, which cells it has, and its account."""

import functools
import gc
import inspect
import re
import sys
import types

import pytest

from legacy_opt import versions
from tests.support import account, turns

# Tests that are marked so run only where there is what they need, and modules, which can be
# imported only there.
NO_CELL = types.SimpleNamespace(params={})
THERE = {"keras3": versions.keras_facts()["generation"] == 3, "contrib": versions.has_contrib()}


def pytest_ignore_collect(collection_path):
    if collection_path.suffix != ".py":
        return None
    source = collection_path.read_text(encoding="utf-8")
    marks = re.findall(r"^pytestmark = (?:\[\n.*?^\]|.*?$)", source, re.M | re.S)
    missing = [
        name for name in THERE if not THERE[name] and "pytest.mark." + name in "".join(marks)
    ]
    return True if missing else None


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """Drops the tests and cells for what is not there; cells of Keras 3 are marked by their API."""
    for item in items:
        values = getattr(item, "callspec", NO_CELL).params.values()
        if any(isinstance(value, str) and value == "keras3" for value in values):
            item.add_marker("keras3")
    missing = [name for name in THERE if not THERE[name]]
    items[:] = [item for item in items if not any(map(item.get_closest_marker, missing))]


def pytest_addoption(parser):
    group = parser.getgroup("legacy-opt")
    group.addoption("--full", action="store_true", help="run every combination and the slow tests")
    group.addoption(
        "--turn", type=turns.turn, metavar="2/5", help="run a lane's share of the cells"
    )
    group.addoption("--report", help="write the account of this run to this JSON file")


def pytest_configure(config):
    config.pluginmanager.register(turns)
    config.pluginmanager.register(account)
    config.option.loadscopereorder = False  # xdist's; `turns` knows which files take long
    if not hasattr(config, "workerinput"):  # with xdist: the process that hears all reports
        config.pluginmanager.register(account.Account(config), "account")


def pytest_collection_finish(session):
    gc.freeze()  # what has been imported stays, and every full collection would go through it


@pytest.fixture(scope="session")
def full(request):
    """Whether this is the full run, for tests that choose their own size by it."""
    return request.config.getoption("full")


@pytest.fixture
def cell(full):
    """Runs a cell of `tests.support.exactness`; in the full run with the steps of `make matrix`."""
    from tests.support import exactness

    return exactness.cell if full else functools.partial(exactness.cell, steps=9)


@pytest.fixture(autouse=True)
def keep_what_fit_leaves(request):
    """Keeps the garbage of Keras tests on TensorFlow 1.15 from being collected.

    The iterators that `fit` made there are deleted by creating operations in their graph; if the
    collector comes upon both, that crashes or hangs.
    """
    if not (versions.has_contrib() and "keras" in inspect.getsource(request.module)):
        yield
        return
    gc.disable()
    yield
    gc.freeze()
    gc.enable()


@pytest.fixture(autouse=True)
def no_global_step_is_left():
    """Takes a global step that a test has made in eager code from the tests after it."""
    yield
    tensorflow = sys.modules.get("tensorflow")
    if tensorflow is not None:
        v1 = tensorflow.compat.v1
        v1.get_default_graph().clear_collection(v1.GraphKeys.GLOBAL_STEP)

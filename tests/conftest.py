"""Options and hooks of every test run, and the fixtures that all tests share."""

import functools
import gc
import inspect
import re
import sys
import types

import pytest

from legacy_opt import versions
from tests.support import account, turns

NO_CELL = types.SimpleNamespace(params={})
# Markers of tests that need an optional library, and whether it is installed. If not, modules with
# the marker are not even collected, because they could not be imported.
INSTALLED = {"keras3": versions.keras_facts()["generation"] == 3, "contrib": versions.has_contrib()}


def pytest_ignore_collect(collection_path):
    if collection_path.suffix != ".py":
        return None
    source = collection_path.read_text(encoding="utf-8")
    marks = re.findall(r"^pytestmark = (?:\[\n.*?^\]|.*?$)", source, re.M | re.S)
    missing = [
        name
        for name in INSTALLED
        if not INSTALLED[name] and "pytest.mark." + name in "".join(marks)
    ]
    return True if missing else None


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """Marks tests with the parameter "keras3"; drops tests whose library is not installed."""
    for item in items:
        values = getattr(item, "callspec", NO_CELL).params.values()
        if any(isinstance(value, str) and value == "keras3" for value in values):
            item.add_marker("keras3")
    missing = [name for name in INSTALLED if not INSTALLED[name]]
    items[:] = [item for item in items if not any(map(item.get_closest_marker, missing))]


def pytest_addoption(parser):
    group = parser.getgroup("legacy-opt")
    group.addoption("--full", action="store_true", help="run every combination and the slow tests")
    group.addoption("--turn", type=turns.turn, metavar="2/5", help="run the share of lane 2 of 5")
    group.addoption("--report", help="write outcomes, skips and durations to this JSON file")


def pytest_configure(config):
    config.pluginmanager.register(turns)
    config.pluginmanager.register(account)
    config.option.loadscopereorder = False  # instead of xdist, `turns` sorts files by duration
    if not hasattr(config, "workerinput"):  # with xdist: only the process that gets all reports
        config.pluginmanager.register(account.Account(config), "account")


def pytest_collection_finish(session):
    gc.freeze()  # every full collection would visit the imported modules, which are never freed


@pytest.fixture(scope="session")
def full(request):
    """Whether the option --full is set, for tests that choose their own size."""
    return request.config.getoption("full")


@pytest.fixture
def cell(full):
    """Runs a cell of `tests.support.exactness`; with --full, as many steps as `make matrix`."""
    from tests.support import exactness

    return exactness.cell if full else functools.partial(exactness.cell, steps=9)


@pytest.fixture(autouse=True)
def no_garbage_collection_of_keras(request):
    """Disables garbage collection in Keras tests on TensorFlow 1.15.

    Iterators made by `fit` create operations in their graph when they are deleted. If iterator and
    graph are collected together, the process crashes or hangs.
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
    """Removes a global step that a test created in eager execution; later tests must not see it."""
    yield
    tensorflow = sys.modules.get("tensorflow")
    if tensorflow is not None:
        v1 = tensorflow.compat.v1
        v1.get_default_graph().clear_collection(v1.GraphKeys.GLOBAL_STEP)

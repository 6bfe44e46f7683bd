"""The options, hooks and fixtures of all tests; those that need TensorFlow are in a plugin."""

import gc
import importlib.util
import os

import pytest

from tests.support import account, turns

# With this variable, Python writes each part of a print by its own system call, so lines of several
# processes that write into one pipe mix.
os.environ.pop("PYTHONUNBUFFERED", None)


def pytest_addoption(parser):
    group = parser.getgroup("legacy-opt")
    group.addoption("--full", action="store_true", help="run every combination and the slow tests")
    group.addoption("--turn", type=turns.turn, metavar="2/5", help="run the share of lane 2 of 5")
    group.addoption("--day", type=int, help="with --turn: of long cells, run those of this day")
    group.addoption("--report", help="write outcomes, skips and durations to this JSON file")


def pytest_configure(config):
    config.pluginmanager.register(turns)
    config.pluginmanager.register(account)
    if importlib.util.find_spec("tensorflow"):  # the environments of `make leave` have none
        from tests.support import with_tensorflow

        config.pluginmanager.register(with_tensorflow)
    config.option.loadscopereorder = False  # xdist must not reorder the files that `turns` sorts
    if not hasattr(config, "workerinput"):  # only xdist's main process gets all reports
        config.pluginmanager.register(account.Account(config), "account")


def pytest_collection_finish(session):
    # Graphs consist of many objects that reference each other. These settings save a fifth of the
    # processor's time: imported modules, which are never freed, are left out of collections, and
    # there are fewer collections.
    gc.freeze()
    gc.set_threshold(100_000, 50, 100)


@pytest.fixture(scope="session")
def full(request):
    """Returns whether --full is set."""
    return request.config.getoption("full")

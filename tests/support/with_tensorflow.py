"""The hooks and fixtures of tests that need TensorFlow; tests/conftest.py registers this plugin."""

import functools
import gc
import inspect
import re
import sys
import types

import pytest

from legacy_opt import versions
from tests.support import installed

# Replaces the attribute `callspec`, which tests without parameters lack.
NO_CELL = types.SimpleNamespace(params={})
# {marker of tests that need an optional library: whether the library is installed}. If a library is
# missing, test modules with its marker are not collected, because their import would fail.
INSTALLED = {
    "keras2": installed.has_keras_2(),
    "keras3": versions.keras_facts()["generation"] == 3,
    "contrib": versions.has_contrib(),
}


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
    """Marks tests of one Keras by their parameters; drops tests whose library is not installed."""
    for item in items:
        values = getattr(item, "callspec", NO_CELL).params.values()
        for api, marker in (("keras3", "keras3"), ("optimizer_v2", "keras2")):
            if any(isinstance(value, str) and value == api for value in values):
                item.add_marker(marker)
    missing = [name for name in INSTALLED if not INSTALLED[name]]
    items[:] = [item for item in items if not any(map(item.get_closest_marker, missing))]


def _skips_without_keras_2(outcome):
    """Turns the error that Keras 2 is not installed into a skip, where it is not installed."""
    error = outcome.excinfo[1] if outcome.excinfo else None
    names_it = isinstance(error, ImportError) and re.search("tf[-_]keras", str(error))
    if names_it and not INSTALLED["keras2"]:
        outcome.force_exception(pytest.skip.Exception("Keras 2 is not installed"))


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_setup():
    _skips_without_keras_2((yield))


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_call():
    _skips_without_keras_2((yield))


@pytest.fixture
def cell(full):
    """Returns the function `tests.support.exactness.cell`. Without --full, it trains only 9 steps.

    The function compares a v1 optimizer with the Keras optimizer that `to_keras` makes from it.
    """
    from tests.support import exactness

    return exactness.cell if full else functools.partial(exactness.cell, steps=9)


@pytest.fixture
def screen(capsys):
    """Returns an object that runs the command `legacy-opt` in this process."""
    from tests.support.processes.command_line import Screen

    return Screen(capsys)


@pytest.fixture(autouse=True)
def no_garbage_collection_of_keras(request):
    """Disables garbage collection in Keras tests on TensorFlow 1.15.

    `fit` makes iterators. The destructor of an iterator creates operations in the iterator's graph.
    If the garbage collector deletes the iterator and the graph together, the process crashes or
    hangs.
    """
    if not (versions.has_contrib() and "keras" in inspect.getsource(request.module)):
        yield
        return
    gc.disable()
    yield
    gc.freeze()
    gc.enable()


@pytest.fixture(autouse=True)
def no_state_is_left():
    """Undoes what a test changes for later tests: an eager global step, the kind of new variables.

    A BoostedTreesClassifier, for example, turns resource variables on for the whole process.
    """
    tensorflow = sys.modules.get("tensorflow")
    resource = tensorflow is not None and tensorflow.compat.v1.resource_variables_enabled()
    yield
    if tensorflow is None:
        return
    v1 = tensorflow.compat.v1
    v1.get_default_graph().clear_collection(v1.GraphKeys.GLOBAL_STEP)
    if v1.resource_variables_enabled() != resource:
        (v1.enable_resource_variables if resource else v1.disable_resource_variables)()

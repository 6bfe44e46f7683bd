"""Builds the operations library, as for the tests of native kernels.

The tests in torch/, jax/ and keras/ run in environments without TensorFlow: see `make leave`.
"""

import importlib.util

import pytest

from legacy_opt.native.runtime import cache, standalone

collect_ignore = []
if importlib.util.find_spec("tensorflow"):
    from tests.native.conftest import kernels_folder  # noqa: F401 - a fixture

    collect_ignore += ["torch", "jax", "keras"]


@pytest.fixture
def no_compiler(tmp_path, monkeypatch):
    """There are no kernels, and none can be compiled."""
    monkeypatch.setenv(cache.FOLDER_VARIABLE, str(tmp_path / "kernels"))
    monkeypatch.setattr(cache, "_loaded", {})
    monkeypatch.setattr(cache, "prebuilt", lambda name: None)
    for variable in "CC", "CXX":
        monkeypatch.setenv(variable, "none")
    standalone.library.cache_clear()
    cache.compiler.cache_clear()
    yield
    standalone.library.cache_clear()
    cache.compiler.cache_clear()

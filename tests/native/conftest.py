"""Builds the operations library, whose operations run native kernels, once for all tests."""

import fcntl
import os

import pytest

from legacy_opt.native import settings
from legacy_opt.native.runtime import cache, tensorflow_operations
from legacy_opt.native.updates import kernel_choice


@pytest.fixture(scope="session", autouse=True)
def kernels_folder(tmp_path_factory):
    """Yields the folder of compiled kernels.

    This is the folder of the environment variable, so that all lanes compile a kernel once. Without
    the variable, it is a new folder that all workers of pytest-xdist share.
    """
    patch = pytest.MonkeyPatch()
    if not os.environ.get(cache.FOLDER_VARIABLE):
        base = tmp_path_factory.getbasetemp()
        folder = (base.parent if base.name.startswith("popen-") else base) / "kernels"
        patch.setenv(cache.FOLDER_VARIABLE, str(folder))
    folder = cache.folder()
    with open(folder / "lock", "w") as lock:  # one worker builds; the other workers wait
        fcntl.flock(lock, fcntl.LOCK_EX)
        tensorflow_operations.build()
    yield folder
    patch.undo()


@pytest.fixture
def fresh(monkeypatch):
    """Undoes `enable`, unsets the variable for the setting, and forgets warnings and kernels."""
    monkeypatch.setattr(settings, "_current", settings.Settings())
    monkeypatch.delenv(settings.VARIABLE, raising=False)
    monkeypatch.setattr(kernel_choice, "_warned", set())
    monkeypatch.setattr(kernel_choice, "_checked_kernels", {})
    return monkeypatch

"""Builds the operations library, whose operations run native kernels, once for all tests."""

import pytest

from legacy_opt.native import settings
from legacy_opt.native.runtime import cache, tensorflow_operations
from legacy_opt.native.updates import kernel_choice


@pytest.fixture(scope="session", autouse=True)
def kernels_folder(tmp_path_factory):
    """Yields the folder of compiled kernels. All workers of pytest-xdist share the folder."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if base.name.startswith("popen-") else base) / "kernels"
    folder.mkdir(mode=0o700, exist_ok=True)
    patch = pytest.MonkeyPatch()
    patch.setenv(cache.FOLDER_VARIABLE, str(folder))
    tensorflow_operations.build()
    yield folder
    patch.undo()


@pytest.fixture
def fresh(monkeypatch):
    """Undoes `enable`, unsets the variable of the mode, and forgets past warnings and kernels."""
    monkeypatch.setattr(settings, "_setting", None)
    monkeypatch.setattr(settings, "_target", None)
    monkeypatch.setattr(settings, "_by_name", False)
    monkeypatch.delenv(settings.VARIABLE, raising=False)
    monkeypatch.setattr(kernel_choice, "_warned", set())
    monkeypatch.setattr(kernel_choice, "_admitted", {})
    return monkeypatch

"""Builds the driver, the library of operations that run native kernels, once for all tests."""

import pytest

from legacy_opt.core import native_updates
from legacy_opt.native import cache, driver, modes


@pytest.fixture(scope="session", autouse=True)
def kernels_folder(tmp_path_factory):
    """Yields the folder of compiled kernels. All workers of pytest-xdist share the folder."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if base.name.startswith("popen-") else base) / "kernels"
    folder.mkdir(mode=0o700, exist_ok=True)
    patch = pytest.MonkeyPatch()
    patch.setenv(cache.FOLDER_VARIABLE, str(folder))
    driver.build()
    yield folder
    patch.undo()


@pytest.fixture
def fresh(monkeypatch):
    """Undoes `enable`, unsets the variable of the mode, and forgets past warnings and kernels."""
    monkeypatch.setattr(modes, "_mode", None)
    monkeypatch.setattr(modes, "_target", None)
    monkeypatch.setattr(modes, "_by_name", False)
    monkeypatch.delenv(modes.VARIABLE, raising=False)
    monkeypatch.setattr(native_updates, "_warned", set())
    monkeypatch.setattr(native_updates, "_admitted", {})
    return monkeypatch

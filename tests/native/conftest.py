"""Builds the driver once for all tests of native kernels."""

import pytest

from legacy_opt.native import cache, driver


@pytest.fixture(scope="session", autouse=True)
def kernels_folder(tmp_path_factory):
    """Returns the folder of compiled kernels, which all workers of pytest-xdist share."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if base.name.startswith("popen-") else base) / "kernels"
    folder.mkdir(mode=0o700, exist_ok=True)
    patch = pytest.MonkeyPatch()
    patch.setenv(cache.FOLDER_VARIABLE, str(folder))
    driver.build()
    yield folder
    patch.undo()

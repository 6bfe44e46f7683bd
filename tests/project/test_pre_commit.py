"""Checks that the hooks of pre-commit run the same version of ruff as `make lint`."""

import re

import pytest

from tests.support.paths import ROOT

pytestmark = pytest.mark.once


def test_the_hooks_have_the_version_of_make_lint():
    (installed,) = re.findall(r"ruff==[\d.*]+", (ROOT / "Makefile").read_text(encoding="utf-8"))
    hooks = (ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8")
    assert set(re.findall(r"ruff==[\d.*]+", hooks)) == {installed}

"""Checks that pre-commit runs the tools of `make lint` in their versions, and checks the layers."""

import re

import pytest

from tests.support.paths import ROOT

pytestmark = pytest.mark.once


def pinned(name):
    """Returns the tools that a file pins, as strings such as "ruff==0.17.*"."""
    return set(re.findall(r"[a-z]+==[\d.]+\*", (ROOT / name).read_text(encoding="utf-8")))


def test_the_hooks_have_the_versions_of_make_lint():
    found = pinned(".pre-commit-config.yaml")
    assert found == pinned("Makefile")
    assert {each.partition("==")[0] for each in found} == {"ruff", "basedpyright", "shtab"}


def test_a_hook_checks_the_layers():
    hooks = (ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8")
    programs = re.findall(r"entry: python (\S+)", hooks)
    assert programs == ["tests/tools/layers.py", "tests/tools/completions.py"]
    assert all((ROOT / program).is_file() for program in programs)

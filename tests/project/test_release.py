"""Tests what a release needs besides code: the pages and workflows of the repository."""

import json
import re

import pytest

import lanes
from tests.support.paths import ROOT

pytestmark = pytest.mark.once


def test_the_contact_of_metadata_is_in_the_page_of_security(monkeypatch, tmp_path):
    page = (ROOT / "SECURITY.md").read_text(encoding="utf-8")

    def expected():
        return lanes.with_table(page, "security_contact", lanes.security_contact())

    assert page == expected(), "run: make readme"
    (tmp_path / "metadata.json").write_text(json.dumps({"security_contact": "me@example.org"}))
    monkeypatch.setattr(lanes, "ROOT", tmp_path)
    assert "\nme@example.org\n" in expected()


@pytest.mark.parametrize("name", ["ci.yml", "release.yml"])
def test_workflows_call_commands_of_the_makefile(name):
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.M)
    workflow = (ROOT / ".github" / "workflows" / name).read_text(encoding="utf-8")
    called = re.findall(r"\bmake ([a-z-]+)", "\n".join(re.findall(r"run: (.*)", workflow)))
    assert called and set(called) <= set(targets)
    if name == "ci.yml":
        assert set(called) == {"lint", "test", "docs"} and "lanes.py json" in workflow

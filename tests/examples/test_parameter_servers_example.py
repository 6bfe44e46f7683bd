"""Tests results and processes of the examples parameter_servers.py and estimator_cluster.py."""

from tests.examples.flights_modules import random_flights  # must be imported first

# isort: split
import io
import json
import os
import pathlib
import re
import signal
import subprocess
import threading

import numpy as np
import pytest
import tensorflow as tf

import estimator_cluster
import estimator_flights
import parameter_servers
from flights import data
from flights import processes as flights_processes
from tests.support import estimators
from tests.support.paths import EXAMPLES
from tests.support.processes import programs

SECONDS = 300
LONG_AND_SMALL = ["--servers", "1", "--workers", "1", "--steps", "100000", "--batch-size", "3"]


def run(program, *options):
    return programs.run(EXAMPLES / program, *options, seconds=SECONDS)


def log_losses(options, first, reached):
    """Runs parameter_servers.py with --steps 200.

    Args:
      options: further options of the program.
      first: the global step at which the program must begin.
      reached: the global step that the program must reach.

    Returns:
      The printed log-losses of the cluster and of one process, or None if the program
      prints no log-losses.
    """
    done = run("parameter_servers.py", "--steps", "200", *options)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"from step {first}." in done.stdout, done.stdout
    restored = f"the {first} steps that were restored, and " if first else ""
    text = f"Global step {reached}: {restored}the sum of the workers' steps"
    assert text in done.stdout, done.stdout
    found = re.search(r"cluster ([\d.]+), one process ([\d.]+)\.", done.stdout)
    return found and [float(each) for each in found.groups()]


@pytest.mark.full
@pytest.mark.parametrize("options", [[], ["--sync"]], ids=["asynchronous", "synchronous"])
def test_the_cluster_learns_what_one_process_learns(options, tmp_path):
    options, reached = options + ["--out", tmp_path], 100 if options else 200
    cluster, alone = log_losses(options, 0, reached)
    assert abs(cluster - alone) < 0.04
    # The second run resumes from the first run's checkpoint, in a cluster of a different size.
    options += ["--servers", "1", "--workers", "1"]
    assert log_losses(options, reached, reached + 200) is None


def evaluated(output):
    """Returns (step, log-loss, rest of the line) for each line that the evaluator has printed."""
    return re.findall(r"^  step (\d+): ([\d.]+)(.*)\n", output, re.M)


@pytest.mark.full
@estimators.needed
def test_estimators_in_a_cluster(tmp_path):
    done = run("estimator_cluster.py", "--steps", "2000", "--out", tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    *others, (step, loss, end) = evaluated(done.stdout)
    # The chief and the worker train at the same time. Until both have read that the global step is
    # 2000, they may do up to three more updates.
    assert 2000 <= int(step) <= 2003, done.stdout
    # The loss shows only that the training does not diverge, because these flights differ from the
    # days before. One process that trains on all flights in order has 0.62, four clusters had 0.52
    # to 0.68. What a cluster learns is tested above.
    assert float(loss) < 0.8, done.stdout
    assert end == ", the last step" and not any(end for _, _, end in others), done.stdout
    steps = [int(step) for step, _, _ in others]
    assert steps and steps == sorted(set(steps)) and steps[-1] < 2000, done.stdout


@pytest.mark.full
@estimators.needed
@pytest.mark.parametrize("job", ["worker", "chief", "ps"])
def test_a_killed_process_of_an_estimators_cluster_is_restarted(job, tmp_path):
    options = ["--steps", "3000", "--restart", "--out", tmp_path]
    with programs.started(EXAMPLES / "estimator_cluster.py", *options) as program:
        wait_until(lambda: list(tmp_path.rglob("model.ckpt-1*.index")))
        victim = [pid for pid in children(program.pid) if job_of(pid) == job][0]
        os.kill(victim, signal.SIGKILL)
        output, errors = program.communicate(timeout=300)
    assert program.returncode == 0, output + errors
    assert re.search(job + r" \d was killed by SIGKILL\. Restarted", output), output
    step, loss, end = evaluated(output)[-1]
    assert 3000 <= int(step) <= 3003 and np.isfinite(float(loss)) and end, output


def job_of(pid):
    """Returns the job of a cluster's process, from TF_CONFIG in the process's environment."""
    words = pathlib.Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    (place,) = [word for word in words if word.startswith(b"TF_CONFIG=")]
    return json.loads(place.partition(b"=")[2].decode())["task"]["type"]


@estimators.needed
def test_the_evaluator_evaluates_each_checkpoint_until_the_last_step(tmp_path, monkeypatch, capsys):
    flights = random_flights(64)
    monkeypatch.setattr(estimator_cluster, "load_flights", lambda: flights)
    monkeypatch.setattr(os, "_exit", lambda code: None)
    options = ["--out", str(tmp_path), "--steps", "5", "--batch-size", "8"]
    arguments = estimator_cluster.parse_arguments(options)
    training, following = estimator_cluster.split(arguments, flights)
    assert (training.size, following.size) == (40, 24)
    model = estimator_flights.make_estimator(arguments, flights.vocabulary_size)
    place = {"cluster": {"chief": ["127.0.0.1:1"]}, "task": {"type": "evaluator", "index": 0}}
    monkeypatch.setenv("TF_CONFIG", json.dumps(place))
    losses, shown = [], []

    def printed():
        shown.append(capsys.readouterr().out)
        return evaluated("".join(shown))

    def train(steps):
        model.train(estimator_flights.make_input_fn(training, 8), max_steps=steps)
        metrics = model.evaluate(estimator_flights.make_input_fn(following, 24))
        losses.append("{:.4f}".format(metrics["log_loss"]))

    train(3)
    evaluator = threading.Thread(
        target=estimator_cluster.be_process, args=(arguments,), daemon=True
    )
    evaluator.start()
    wait_until(lambda: printed() or not evaluator.is_alive())
    train(5)
    evaluator.join(SECONDS)
    assert not evaluator.is_alive()
    assert printed() == [("3", losses[0], ""), ("5", losses[1], ", the last step")]
    assert losses[0] != losses[1]


@estimators.needed
@pytest.mark.parametrize("job, other", [("chief", "worker"), ("worker", "chief")])
def test_an_estimator_does_not_wait_for_a_dead_one(job, other, monkeypatch, tmp_path):
    """Runs an op on the parameter server, although the server of the job `other` never starts."""
    cluster = {each: flights_processes.free_addresses(1) for each in ("ps", job, other)}
    place = {"cluster": cluster, "task": {"type": job, "index": 0}}
    monkeypatch.setenv("TF_CONFIG", json.dumps(place))
    servers = {each: tf.compat.v1.train.Server(cluster, each, 0) for each in ("ps", job)}
    arguments = estimator_cluster.parse_arguments(["--out", str(tmp_path)])
    filters = estimator_cluster.device_filters(job)
    estimator = estimator_flights.make_estimator(arguments, 10, filters)
    found = []

    def run_on_the_server():
        graph, config = tf.Graph(), estimator.config.session_config
        with graph.as_default(), tf.compat.v1.device("/job:ps/task:0"):
            one = tf.constant(1)
        with tf.compat.v1.Session(servers[job].target, graph, config) as session:
            found.append(session.run(one))

    # TensorFlow waits for servers without a time limit, so the Session runs in a thread.
    thread = threading.Thread(target=run_on_the_server, daemon=True)
    thread.start()
    thread.join(30)
    assert found == [1]


# Termination. The tests marked `full` run parameter_servers.py. The tests with the fixture
# small_cluster run PARENT, which starts processes in the same way, but without TensorFlow.


@pytest.mark.full
@pytest.mark.parametrize("moment", ["starting", "training"])
def test_the_program_ends_on_a_signal_and_leaves_no_process(moment, tmp_path):
    options = LONG_AND_SMALL + ["--out", tmp_path, "--checkpoint-every", "20"]
    with programs.started(EXAMPLES / "parameter_servers.py", *options) as program:
        wait_until(lambda: len(children(program.pid)) == 2)
        processes = children(program.pid)
        if moment == "training":
            wait_until(lambda: list(tmp_path.glob("model.ckpt-[1-9]*.index")))
        os.kill(program.pid, signal.SIGINT if moment == "starting" else signal.SIGTERM)
        assert_ended(program, processes, "SIG(INT|TERM): all processes are stopped.")


@pytest.mark.full
def test_the_program_ends_when_a_server_dies_while_it_trains(tmp_path):
    options = LONG_AND_SMALL + ["--out", tmp_path, "--checkpoint-every", "20"]
    with programs.started(EXAMPLES / "parameter_servers.py", *options) as program:
        wait_until(lambda: list(tmp_path.glob("model.ckpt-[1-9]*.index")))
        processes = children(program.pid)
        os.kill(processes[0], signal.SIGKILL)
        assert_ended(program, processes, "ps 0 was killed by SIGKILL.")


PARENT = """
import sys
from flights.processes import Cluster, end_on_signals
end_on_signals()
with Cluster(60, ps=1, worker=2) as cluster:
    cluster.start("ps", sys.argv[1])
    cluster.start("worker", sys.argv[1])
    print("started", flush=True)
    cluster.wait("worker")
"""
CHILD = """
import sys, time
from flights.processes import stop_with_parent
stop_with_parent()
time.sleep(60)
"""


@pytest.fixture
def small_cluster(tmp_path, monkeypatch):
    """Starts a program with three child processes; yields the program and the children's pids."""
    monkeypatch.setenv("PYTHONPATH", str(EXAMPLES))
    for name, text in (("parent.py", PARENT), ("child.py", CHILD)):
        (tmp_path / name).write_text(text)
    with programs.started(tmp_path / "parent.py", tmp_path / "child.py") as program:
        assert program.stdout.readline() == "started\n"
        processes = children(program.pid)
        assert len(processes) == 3
        yield program, processes


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM"])
def test_no_process_is_left_after_a_signal(small_cluster, name):
    program, processes = small_cluster
    program.send_signal(getattr(signal, name))
    assert_ended(program, processes, name + ": all processes are stopped.")


def test_no_process_is_left_after_ctrl_c_to_the_process_group(small_cluster):
    program, processes = small_cluster
    os.killpg(program.pid, signal.SIGINT)
    assert_ended(program, processes, "SIGINT: all processes are stopped.")


def test_no_process_is_left_when_the_program_is_killed(small_cluster):
    program, processes = small_cluster
    program.kill()
    wait_until(lambda: not any(map(is_running, processes)))


def test_a_signal_during_the_start_of_a_process_stops_it(tmp_path, monkeypatch):
    class Popen(subprocess.Popen):
        def __init__(self, *arguments, **options):
            super().__init__(*arguments, **options)
            os.kill(os.getpid(), signal.SIGTERM)
            started_processes.append(self)

    started_processes, program = [], tmp_path / "child.py"
    program.write_text("import time; time.sleep(60)")
    monkeypatch.setattr(subprocess, "Popen", Popen)
    handlers = {each: signal.getsignal(each) for each in flights_processes.ENDING}
    try:
        flights_processes.end_on_signals()
        cluster = flights_processes.Cluster(60, worker=2)
        with pytest.raises(SystemExit, match="SIGTERM: all processes are stopped."), cluster:
            cluster.start("worker", str(program))
        assert [each.returncode for each in started_processes] == [-signal.SIGKILL]
    finally:
        for each in started_processes:
            each.kill()
        for number, handler in handlers.items():
            signal.signal(number, handler)


@pytest.mark.parametrize("index, name", [(0, "ps 0"), (2, "worker 1")])
def test_a_process_that_is_killed_ends_the_others(small_cluster, index, name):
    program, processes = small_cluster
    os.kill(processes[index], signal.SIGTERM)
    assert_ended(program, processes, name + " was killed by SIGTERM.")


def assert_ended(program, processes, last_line):
    """Asserts that a program fails without a traceback, and that its processes are gone."""
    errors = program.communicate(timeout=SECONDS)[1]
    assert program.returncode == 1
    assert re.fullmatch(last_line, errors.splitlines()[-1]) and "Traceback" not in errors, errors
    assert not any(map(is_running, processes))


def children(pid):
    path = pathlib.Path(f"/proc/{pid}/task/{pid}/children")
    return [int(each) for each in path.read_text().split()] if path.exists() else []


def is_running(pid):
    try:
        state = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state not in "ZX"


def wait_until(condition):
    programs.wait_until(condition, SECONDS)


# The checks and messages of the programs.


@pytest.mark.parametrize("program", [parameter_servers, estimator_cluster])
def test_more_steps_than_flights(program, monkeypatch):
    monkeypatch.setattr(program, "Cluster", None)  # the program must not start processes
    few = data.load_flights().first(640)
    monkeypatch.setattr(program, "load_flights", lambda: few)
    with pytest.raises(SystemExit, match="--steps: .*; give fewer"):
        program.main(["--steps", "12"])


def test_the_last_line_of_an_error():
    trace = "Traceback:\n  x\na.b.SomeError: no such name\n\nOriginal stack trace:\n  stack()"
    for text, line in (trace, "a.b.SomeError: no such name"), ("one\ntwo", "two"), ("", ""):
        assert flights_processes.last_line(io.StringIO(text)) == line


def test_a_lost_step_fails_the_program(capsys):
    workers = [{"steps": 6, "global_step": 110}, {"steps": 4}]
    arguments = parameter_servers.parse_arguments(["--steps", "10"])
    parameter_servers.check_steps(arguments, 100, workers)
    expected = "the 100 steps that were restored, and the sum of the workers' steps"
    assert capsys.readouterr().out == f"Global step 110: {expected}.\n"
    workers[0]["global_step"] = 109
    message = "advanced by 9. The workers made [6, 4] steps, so 10 were expected."
    with pytest.raises(SystemExit, match=re.escape(message)):
        parameter_servers.check_steps(arguments, 100, workers)


def test_synchronous_updates_count_once(capsys):
    arguments = parameter_servers.parse_arguments(["--steps", "10", "--sync"])
    parameter_servers.check_steps(arguments, 0, [{"steps": 6, "global_step": 5}, {"steps": 4}])
    assert "divided by 2, the number of gradients in each update" in capsys.readouterr().out

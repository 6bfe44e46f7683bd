"""Tests that the examples restart killed processes, and that the training then continues."""

from tests.examples.flights_modules import random_flights  # must be imported first

# isort: split
import argparse
import contextlib
import json
import os
import pathlib
import re
import signal
import threading

import numpy as np
import pytest
import tensorflow as tf

import parameter_servers
from flights import cluster_worker, processes, restarts
from flights.model import Settings
from tests.support.paths import EXAMPLES
from tests.support.processes import programs
from tests.support.processes.local_cluster import SECONDS, LocalCluster

v1 = tf.compat.v1

# A program whose argument is a folder. The first run of each task writes TF_CONFIG to a file in the
# folder, and then kills itself. The second run checks that TF_CONFIG has not changed.
KILLED_ONCE = """
import json, os, pathlib, sys
place = json.loads(os.environ["TF_CONFIG"])["task"]
file = pathlib.Path(sys.argv[1], "{type} {index}".format(**place))
if not file.exists():
    file.write_text(os.environ["TF_CONFIG"])
    os.kill(os.getpid(), 9)
assert file.read_text() == os.environ["TF_CONFIG"]
"""


def test_killed_processes_are_restarted_at_their_place(tmp_path, capsys):
    program = tmp_path / "program.py"
    program.write_text(KILLED_ONCE)
    with processes.Cluster(60, ps=1, worker=2) as cluster:
        cluster.start("worker", str(program), str(tmp_path))
        cluster.wait("worker 0", restart=True)
        cluster.wait("worker", restart=True)
    assert cluster.restarts == {"worker 0": 1, "worker 1": 1}
    lines = capsys.readouterr().out.splitlines()
    text = r"worker \d was killed by SIGKILL\. Restarted as process \d+\."
    assert len(lines) == 2 and all(re.fullmatch(text, line) for line in lines), lines
    place = json.loads((tmp_path / "worker 1").read_text())
    assert place == {"cluster": cluster.addresses, "task": {"type": "worker", "index": 1}}


def test_a_job_outside_the_cluster_has_one_task(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(KILLED_ONCE)
    with processes.Cluster(60, chief=1) as cluster:
        cluster.start("evaluator", str(program), str(tmp_path))
        cluster.wait("evaluator", restart=True)
    place = json.loads((tmp_path / "evaluator 0").read_text())
    assert place["task"] == {"type": "evaluator", "index": 0}
    assert list(place["cluster"]) == ["chief"]


def test_an_error_ends_all_although_processes_are_restarted(tmp_path):
    program = tmp_path / "program.py"
    program.write_text("raise ValueError('no more')")
    with processes.Cluster(60, worker=1) as cluster:
        cluster.start("worker", str(program))
        with pytest.raises(SystemExit, match="worker 0 failed. ValueError: no more"):
            cluster.wait("worker", restart=True)
    assert not cluster.restarts


PARENT = """
import sys
from flights.processes import Cluster, end_on_signals
end_on_signals()
with Cluster(60, worker=2) as cluster:
    cluster.start("worker", sys.argv[1])
    print([each.pid for each, _ in cluster.processes.values()], flush=True)
    cluster.wait("worker", restart=True)
"""
CHILD = """
import time
from flights.processes import stop_with_parent
stop_with_parent()
time.sleep(60)
"""


@pytest.mark.parametrize("sent", ["SIGINT", "SIGTERM", "SIGKILL"])
def test_no_restarted_process_is_left(sent, tmp_path):
    for name, text in (("parent.py", PARENT), ("child.py", CHILD)):
        (tmp_path / name).write_text(text)
    environment = {"PYTHONPATH": str(EXAMPLES)}
    command = tmp_path / "parent.py", tmp_path / "child.py"
    with programs.started(*command, environment=environment) as program:
        children = json.loads(program.stdout.readline())
        os.kill(children[0], signal.SIGKILL)
        children[0] = int(program.stdout.readline().split()[-1].rstrip("."))
        program.send_signal(getattr(signal, sent))
        program.communicate(timeout=60)
        programs.wait_until(lambda: not any(map(is_running, children)), 60)


def is_running(pid):
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        state = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        return state not in "ZX"
    return False


def test_ports_are_not_those_of_outgoing_connections():
    addresses = processes.free_addresses(200)
    assert len(set(addresses)) == 200
    assert all(10000 <= int(each.rpartition(":")[2]) < 32768 for each in addresses)


# Training. The servers run in this process. A new LocalCluster simulates restarted servers.

BATCHES, BATCH = 20, 4


class Done(Exception):
    """Raised by a worker that has trained on its share of the batches."""


class EndingTraining(restarts.RestartableTraining):
    """Raises `Done` in a worker that has trained on its share, instead of letting it wait."""

    def step(self, session, position):
        positions = super().step(session, position)
        if self.index and positions[self.index] == self.shares[self.index]:
            raise Done
        return positions


class Worker:
    """A worker of a cluster, with its graph.

    Args:
      cluster: a `LocalCluster`.
      index: the worker's number.
      directory: the directory of the checkpoints.
    """

    def __init__(self, cluster, index, directory):
        self.cluster, self.index = cluster, index
        self.predictions = np.full(BATCHES * BATCH, np.nan, np.float32)
        flights = random_flights(BATCHES * BATCH)
        settings = Settings("AdagradDecay", 0.3, decay_step=3, embedding_dim=2)
        arguments = argparse.Namespace(batch_size=BATCH, out=str(directory), checkpoint_every=4)
        with tf.Graph().as_default() as self.graph:
            built = cluster_worker.build_graph(cluster.addresses, index, flights, settings, False)
            self.training = EndingTraining(
                built, flights, self.predictions, index, np.full(2, BATCHES // 2), arguments
            )

    def __call__(self, action, *arguments):
        """Calls `action` with a new session and `arguments`; returns the result."""
        with self.graph.as_default(), self.cluster.session(self.index) as session:
            return action(session, *arguments)

    def state(self):
        """Returns the values of all variables on the servers."""
        with self.graph.as_default():
            variables = {each.op.name: each for each in v1.global_variables()}
        return self(lambda session: session.run(variables))

    def has_predicted(self):
        """Returns the batches with predictions; asserts that no batch has only some predictions."""
        predicted = np.isfinite(self.predictions).reshape([BATCHES, BATCH])
        assert (predicted.all(axis=1) == predicted.any(axis=1)).all()
        return list(np.flatnonzero(predicted.all(axis=1)))


def checkpoint(directory):
    reader = tf.train.load_checkpoint(str(directory))
    return {name: reader.get_tensor(name) for name in reader.get_variable_to_shape_map()}


def test_a_restored_training_goes_on_at_the_checkpoint(tmp_path):
    """The chief alone trains on 6 of its batches. A checkpoint is due after 4 batches."""
    chief = Worker(LocalCluster(ps=2, worker=1), 0, tmp_path)
    training = chief.training

    def train(session):
        training.prepare(session)
        for position in range(6):
            training.save_if_due(session, position, False)
            assert list(training.step(session, position)) == [position + 1, 0]

    chief(train)
    assert chief.has_predicted() == [0, 2, 4, 6, 8, 10]
    trained = chief.state()
    assert trained["global_step"] == 6 and list(trained["batches_done"]) == [6, 0]
    chief(training.prepare)
    np.testing.assert_equal(chief.state(), trained)  # the servers still run, so nothing is restored

    saved = checkpoint(tmp_path)
    assert saved["global_step"] == 4 and list(saved["batches_done"]) == [4, 0]
    again = Worker(LocalCluster(ps=2, worker=1), 0, tmp_path)
    again(again.training.prepare)
    np.testing.assert_equal(again.state(), saved)


def test_workers_wait_for_the_chief_and_train_on_all_batches(tmp_path):
    cluster = LocalCluster(ps=2, worker=2)
    chief, worker = (Worker(cluster, index, tmp_path) for index in range(2))

    def start(each):
        def run():
            with contextlib.suppress(Done):
                each(each.training.run)

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        return thread

    waiting = start(worker)
    waiting.join(0.5)
    assert waiting.is_alive() and not worker.has_predicted()
    for thread in (start(chief), waiting):
        thread.join(SECONDS)
        assert not thread.is_alive()
    saved = checkpoint(tmp_path)
    assert saved["global_step"] == BATCHES and list(saved["batches_done"]) == [BATCHES // 2] * 2
    assert chief.has_predicted() == list(range(0, BATCHES, 2))
    assert worker.has_predicted() == list(range(1, BATCHES, 2))


# The program.


def kill(directory, printed):
    """Kills ps 0 and worker 1 as soon as the directory has a checkpoint.

    Args:
      directory: the directory of the checkpoints.
      printed: a function that returns what the program has printed.
    """
    programs.wait_until(lambda: (directory / "checkpoint").exists(), 300)
    pids = dict(re.findall(r"(\w+ \d+) (\d+)", re.search("Processes: .*", printed()).group()))
    for name in ("ps 0", "worker 1"):
        os.kill(int(pids[name]), signal.SIGKILL)


def assert_completed(output, batches):
    """Asserts that the program has restarted ps 0 and worker 1, and has trained on all batches."""
    for name in ("ps 0", "worker 1"):
        assert re.search(rf"^{name} was killed by SIGKILL\. Restarted as", output, re.M), output
    assert "\nRestarted: ps 0 1 times, worker 1 1 times.\n" in output, output
    step, done = map(int, re.search(r"\nGlobal step (\d+), (\d+) batches", output).groups())
    # A checkpoint may lack a worker's step, and the last step of a killed worker may count twice.
    assert done == batches and abs(step - batches) <= 3, output


@pytest.mark.full
def test_the_training_completes_when_a_server_and_a_worker_are_killed(tmp_path, monkeypatch, capfd):
    """Runs the program in this process, with few flights, without the comparison of results."""
    batches, predictions, shown = 600, [], []
    flights = random_flights(batches * BATCH)
    monkeypatch.setattr(parameter_servers, "load_flights", lambda: flights)
    compare = lambda *values: predictions.append(values[-1])  # noqa: E731
    monkeypatch.setattr(parameter_servers, "compare_with_one_process", compare)

    def printed():
        shown.append(capfd.readouterr().out)
        return "".join(shown)

    killing = threading.Thread(target=kill, args=(tmp_path, printed), daemon=True)
    killing.start()
    options = ["--servers", "1", "--batch-size", str(BATCH), "--checkpoint-every", "20"]
    parameter_servers.main(["--restart", "--steps", str(batches), "--out", str(tmp_path)] + options)
    killing.join()
    assert_completed(printed(), batches)
    missing = np.isnan(predictions[0]).reshape([batches, BATCH]).any(axis=1).sum()
    assert missing <= 1  # worker 1 may lose the batch that it trains on


@pytest.mark.full
@pytest.mark.parametrize("native", [False, True], ids=["", "native"])
def test_the_program_completes_when_a_server_and_a_worker_are_killed(native, tmp_path):
    kernels, out = {"LEGACY_OPT_KERNELS": str(tmp_path / "kernels")}, tmp_path / "out"
    options = ["--steps", "1000", "--checkpoint-every", "50", "--out", out]
    if native:
        options.append("--native")
        command = ["-m", "legacy_opt", "build-kernels"]
        built = programs.run(*command, seconds=300, environment=kernels)
        assert built.returncode == 0, built.stderr
    command = [EXAMPLES / "parameter_servers.py", "--restart", *options]
    with programs.forked(*command, environment=kernels) as program:
        kill(out, lambda: program.texts()[0])
        program.process.join(300)
        output, errors = program.texts()
    assert program.code == 0, output + errors
    assert_completed(output, 1000)
    found = re.search(r"before training on them: cluster (\S+), one process (\S+)\.", output)
    cluster, alone = map(float, found.groups())
    assert abs(cluster - alone) < 0.04


# The command line.


def test_restarts_of_synchronous_training_are_refused(capsys):
    with pytest.raises(SystemExit):
        parameter_servers.parse_arguments(["--restart", "--sync"])
    assert "--restart does not work with --sync: checkpoints lack" in capsys.readouterr().err


def test_the_first_step_is_that_of_the_checkpoint(tmp_path):
    def save(name, **values):
        with tf.Graph().as_default(), v1.Session() as session:
            variables = [v1.get_variable(each, initializer=value) for each, value in values.items()]
            session.run(v1.global_variables_initializer())
            v1.train.Saver(variables).save(session, str(tmp_path / name / "model.ckpt"), 1)

    def first_step(name, *options):
        arguments = ["--out", str(tmp_path / name), *options]
        return parameter_servers.first_step(parameter_servers.parse_arguments(arguments))

    save("plain", global_step=np.int64(12))
    save("restartable", global_step=np.int64(13), batches_done=np.int64([7, 5]))
    assert first_step("none") == first_step("none", "--restart") == 0
    assert (first_step("plain"), first_step("restartable")) == (12, 13)
    assert first_step("restartable", "--restart") == 12
    for name, workers in (("plain", "2"), ("restartable", "1")):
        message = f"was not written with --restart and --workers {workers}; give another"
        with pytest.raises(SystemExit, match=message):
            first_step(name, "--restart", "--workers", workers)

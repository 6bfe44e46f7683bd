"""Tests that keras_clusters.py reports whether runs are equal, and leaves no process running."""

from tests.examples import flights_modules  # noqa: F401 - must be imported first

# isort: split
import subprocess

import numpy as np
import pytest
import tensorflow as tf

import keras_clusters
from flights import processes
from tests.support.paths import EXAMPLES
from tests.support.processes import programs


@pytest.mark.full
def test_program_finds_equal_bits():
    program = EXAMPLES / "keras_clusters.py"
    done = programs.run(program, "--steps", "12", "--batch-size", "16", seconds=500)
    if not hasattr(tf.distribute.experimental, "coordinator"):
        assert done.returncode == 1 and done.stdout == ""
        assert done.stderr.splitlines()[-1].startswith("Keras trains with parameter servers from")
        return
    assert done.returncode == 0, done.stdout + done.stderr
    for name, count in (("AdagradDecay", 22), ("Adam", 24)):
        for who in ("the two processes", "the cluster and a single process"):
            start = f"  {name}: {who} are equal bit for bit: {count} variables and slots ("
            assert start in done.stdout, done.stdout
    assert done.stdout.count(", 12 steps.\n") == 4
    assert "AdagradDecay, 12 steps at the same time" in done.stdout


def test_powers_of_beta_and_iterations_advance_once_a_step():
    beta1, beta2 = np.float32(0.9), np.float32(0.999)
    values = {"iterations": 1, "beta1_power": beta1 * beta1, "beta2_power": beta2 * beta2}
    assert keras_clusters.once_per_step(values, 1)
    assert not keras_clusters.once_per_step(values, 2)
    assert not keras_clusters.once_per_step(dict(values, beta1_power=beta1), 1)
    assert not keras_clusters.once_per_step(dict(values, iterations=2), 1)


def test_a_difference_fails_the_program(tmp_path):
    np.savez(str(tmp_path / "AdagradDecay 0.npz"), **{"variable 0": 1.0, "iterations": 3})
    np.savez(str(tmp_path / "AdagradDecay 1.npz"), **{"variable 0": 2.0, "iterations": 3})
    arguments = keras_clusters.parse_arguments(["--steps", "3"])
    with pytest.raises(SystemExit, match="AdagradDecay: the two differ in variable 0."):
        keras_clusters.report(arguments, str(tmp_path), "0", "1", "the two")


def test_a_process_that_fails_ends_the_others(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(
        "import json, os, sys, time\n"
        "if json.loads(os.environ['TF_CONFIG'])['task']['index'] == 1:\n"
        "    raise ValueError('no more')\n"
        "time.sleep(60)\n"
    )
    with processes.Cluster(60, worker=2) as cluster:
        cluster.start("worker", str(program))
        with pytest.raises(SystemExit, match="worker 1 failed. ValueError: no more"):
            cluster.wait("worker")
    assert all(process.poll() is not None for process, _ in cluster.processes.values())


def test_waiting_times_out(tmp_path):
    program = tmp_path / "program.py"
    program.write_text("import time\ntime.sleep(60)\n")
    with processes.Cluster(0.5, worker=1) as cluster:
        cluster.start("worker", str(program))
        with pytest.raises(SystemExit, match="have not ended after"):
            cluster.wait("worker")


@pytest.mark.full
def test_servers_stop_with_the_one_that_started_them():
    with processes.Cluster(60, chief=1, ps=1) as cluster:
        cluster.start("ps", processes.SERVER)
        ((process, _),) = cluster.processes.values()
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(timeout=2)
        process.stdin.close()
        assert process.wait(timeout=60) == 1

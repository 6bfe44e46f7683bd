"""MultiWorkerMirroredStrategy and ParameterServerStrategy in processes of their own."""

import json
import os
import subprocess
import sys
import tempfile
import time

import pytest
import tensorflow as tf

from legacy_opt import versions
from tests.support.paths import EXAMPLES, ROOT

sys.path.insert(0, str(EXAMPLES))

from flights_processes import STARTED, free_addresses

APIS = ["optimizer_v2"] + ["keras3"] * (versions.keras_facts()["generation"] == 3)
SECONDS = 240


class Processes:
    """The processes of one cluster, which are gone when the `with` block ends."""

    def __init__(self, **jobs):
        self.cluster = {job: free_addresses(count) for job, count in jobs.items()}
        self.running = []  # pairs of a process and the file that it writes to

    def __enter__(self):
        return self

    def start(self, role, job, options):
        """Starts a process of `tests.support.processes.clusters` for each task of a job."""
        for index in range(len(self.cluster[job])):
            place = {"cluster": self.cluster, "task": {"type": job, "index": index}}
            output = tempfile.TemporaryFile("w+")  # noqa: SIM115 - closed in __exit__
            process = subprocess.Popen(
                [sys.executable, "-m", "tests.support.processes.clusters", role] + options,
                cwd=str(ROOT),
                env=dict(os.environ, TF_CONFIG=json.dumps(place), **{STARTED: "1"}),
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=subprocess.STDOUT,
            )
            self.running.append((process, output))

    def outputs(self, count):
        """Waits until the last `count` processes have ended well, and returns what they wrote."""
        stop = time.time() + SECONDS
        waiting = [process for process, _ in self.running[-count:]]
        while any(process.poll() is None for process in waiting) and time.time() < stop:
            if any(process.poll() for process, _ in self.running):
                break  # the others would wait for it
            time.sleep(0.1)
        texts = [self._text(output) for _, output in self.running[-count:]]
        codes = [process.poll() for process in waiting]
        assert codes == [0] * count, "%s\n%s" % (codes, "\n---\n".join(t[-5000:] for t in texts))
        return texts

    def _text(self, output):
        output.seek(0)
        return output.read()

    def __exit__(self, *error):
        for process, output in self.running:
            process.kill()
            process.wait()
            process.stdin.close()
            output.close()


def options_of(api, full):
    return ["--keras3"] * (api == "keras3") + ["--full"] * full


def assert_passed(text, *checks):
    for check in checks:
        assert "\n%s passed\n" % check in "\n" + text, text


def has_coordinator():
    """Whether this TensorFlow has what is tested here, in one namespace or the other."""
    return hasattr(tf.distribute.experimental, "coordinator")


@pytest.mark.parametrize("api", APIS)
def test_two_workers(api, full):
    if not has_coordinator():
        assert hasattr(tf, "contrib")
        return
    with Processes(worker=2) as processes:
        processes.start("workers", "worker", options_of(api, full))
        for text in processes.outputs(2):
            assert_passed(text, "bridge", "fit")


@pytest.mark.parametrize("api", APIS)
def test_parameter_server(api, full):
    if not has_coordinator():
        assert hasattr(tf, "contrib")
        return
    with Processes(chief=1, worker=2, ps=1) as processes:
        processes.start("server", "ps", [])
        processes.start("server", "worker", [])
        processes.start("coordinator", "chief", options_of(api, full))
        (text,) = processes.outputs(1)
        assert_passed(text, "steps", "together", "coordinated_fit")


@pytest.mark.full
def test_processes_stop_with_the_one_that_started_them():
    with Processes(chief=1, worker=1, ps=1) as processes:
        processes.start("server", "ps", [])
        ((process, _),) = processes.running
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(timeout=2)
        process.stdin.close()
        assert process.wait(timeout=30) == 1

"""Tests of MultiWorkerMirroredStrategy and ParameterServerStrategy, with one process per task."""

import contextlib
import json
import time

import pytest
import tensorflow as tf

from tests.support.processes import programs
from tests.support.processes.local_cluster import free_addresses

# The tests with Keras 3 have the marker `every_lane` (tests/README.md), because the oldest Keras 3
# raises errors in some of these trainings, and newer versions of Keras 3 do not.
KERAS_3 = pytest.param("keras3", marks=pytest.mark.every_lane)
SECONDS = 240


def run(**jobs):
    """Runs a cluster until the processes of its last job end. Returns the output of this job.

    Args:
      **jobs: a list for each job. The list contains the number of tasks, followed by the command
        line arguments of `tests.clusters.strategies`.
    """
    addresses = iter(free_addresses(sum(count for count, *_ in jobs.values())))
    cluster = {job: [next(addresses) for _ in range(count)] for job, (count, *_) in jobs.items()}
    started = []
    with contextlib.ExitStack() as stack:
        for job, (count, *words) in jobs.items():
            for index in range(count):
                place = {"cluster": cluster, "task": {"type": job, "index": index}}
                program = programs.forked(
                    *["-m", "tests.clusters.strategies", *words],
                    environment={"TF_CONFIG": json.dumps(place)},
                )
                started.append(stack.enter_context(program))
        last, stop = started[-count:], time.monotonic() + SECONDS
        while any(program.code is None for program in last) and time.monotonic() < stop:
            if any(program.code for program in started):
                break  # the other processes would wait for the failed process
            time.sleep(0.1)
        texts = ["".join(program.texts()) for program in started]
        codes = [program.code for program in last]
    assert codes == [0] * count, "{}\n{}".format(codes, "\n---\n".join(t[-5000:] for t in texts))
    return texts[-count:]


def options_of(api, full):
    return ["--keras3"] * (api == "keras3") + ["--full"] * full


def assert_passed(text, *checks):
    for check in checks:
        assert f"\n{check} passed\n" in "\n" + text, text


def has_coordinator():
    """Returns whether this TensorFlow version has the coordinator of ParameterServerStrategy."""
    return hasattr(tf.distribute.experimental, "coordinator")


@pytest.mark.parametrize("api", [pytest.param("optimizer_v2", marks=pytest.mark.full), KERAS_3])
def test_two_workers(api, full):
    if not has_coordinator():
        assert hasattr(tf, "contrib")
        return
    for text in run(worker=[2, "workers", *options_of(api, full)]):
        assert_passed(text, "bridge", "fit")


@pytest.mark.parametrize("api", ["optimizer_v2", KERAS_3])
def test_parameter_server(api, full):
    if not has_coordinator():
        assert hasattr(tf, "contrib")
        return
    servers = {"ps": [1, "server"], "worker": [2, "server"]}
    (text,) = run(**servers, chief=[1, "coordinator", *options_of(api, full)])
    assert_passed(text, "steps", "together", "coordinated_fit")

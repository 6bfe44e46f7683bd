"""Measures what a training step costs with Horovod, parameter servers and tf.distribute.

    python -m benchmarks.distributed
    unshare --net --map-root-user sh -c "ip link set lo up; exec python -m benchmarks.distributed"

Processes on this machine train the model of examples_graph_mode/flights with AdagradDecay. In a
step, each worker process trains on one batch of 64 flights. The cost of a step is the difference
between the costs of a long and a short training, divided by the difference of their numbers of
steps. The costs of the start and the end cancel out. Two costs are measured:

* CPU milliseconds of all processes, including parameter servers.
* Kilobytes that are sent over the loopback interface, with TCP headers. The interface counts the
  bytes of all programs on the machine, so the second command runs the benchmark with a separate
  interface.
"""

import argparse
import contextlib
import importlib.util
import os
import pathlib
import resource
import sys
import tempfile

import numpy as np
import tensorflow as tf

from benchmarks import horovod_ranks

EXAMPLES = pathlib.Path(__file__).resolve().parents[1] / "examples_graph_mode"
sys.path.insert(0, str(EXAMPLES))

from flights.data import load_flights  # noqa: E402
from flights.processes import SERVER, Cluster, end_on_signals  # noqa: E402

SERVERS = 2
SECONDS = 1800
FLIGHTS = 64 * 1000  # a training with more steps repeats them
# Keys: names in the printed table. Values: first arguments of `benchmarks.distributed_worker`.
WAYS = {
    "one Session, no cluster": "alone",
    "Horovod": "horovod",
    "parameter servers, synchronous": "synchronous",
    "parameter servers, asynchronous": "asynchronous",
    "MultiWorkerMirroredStrategy": "mirrored",
}
GRADIENTS = ("sparse", "dense")
ROW = "%-33s%-9s%10s%14s%14s"


def run(way, gradients, processes, steps, folder):
    """Trains in new processes; returns an array of the used CPU seconds and sent bytes."""
    before = used()
    servers = {"ps": SERVERS} if way.endswith("synchronous") else {}
    with contextlib.ExitStack() as stack:
        port = stack.enter_context(horovod_ranks.rendezvous()) if way == "horovod" else 0
        cluster = stack.enter_context(Cluster(SECONDS, worker=processes, **servers))
        if servers:
            cluster.start("ps", SERVER)
        words = [way, gradients, steps, folder, port]
        cluster.start("worker", "-m", "benchmarks.distributed_worker", *map(str, words))
        cluster.wait("worker")
    return np.subtract(used(), before)


def used():
    """Returns the CPU seconds of ended child processes, and the bytes sent over loopback."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    with open("/proc/net/dev", encoding="utf-8") as lines:
        (loopback,) = [line.split() for line in lines if line.strip().startswith("lo:")]
    return usage.ru_utime + usage.ru_stime, int(loopback[9])


def runs_here(way, processes):
    """Returns whether `way`, a value of `WAYS`, can train with this number of processes here."""
    if way == "alone":
        return processes == 1
    if way == "horovod":
        return importlib.util.find_spec("horovod") is not None
    # MultiWorkerMirroredStrategy of TensorFlow 1 rejects the optimizers that to_keras returns.
    return way != "mirrored" or not hasattr(tf, "contrib")


def main():
    """Runs the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--processes", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--steps", type=int, nargs=2, default=[100, 1100], help="short, long")
    parser.add_argument("--ways", nargs="+", choices=list(WAYS.values()), metavar="WAY")
    arguments = parser.parse_args()
    short, long = arguments.steps
    print(f"TensorFlow {tf.__version__}")
    print(ROW % ("", "gradients", "processes", "CPU ms/step", "kB/step"), flush=True)
    with tempfile.TemporaryDirectory() as folder:
        load_flights().first(FLIGHTS).save(os.path.join(folder, "flights.npz"))
        for name, way in WAYS.items():
            if arguments.ways and way not in arguments.ways:
                continue
            for gradients in GRADIENTS:
                for processes in arguments.processes:
                    if not runs_here(way, processes):
                        continue
                    costs = [
                        run(way, gradients, processes, steps, folder) for steps in (short, long)
                    ]
                    cpu, sent = (costs[1] - costs[0]) / (long - short)
                    texts = f"{1000 * cpu:.2f}", f"{sent / 1000:.1f}"
                    print(ROW % (name, gradients, processes, *texts), flush=True)


if __name__ == "__main__":
    end_on_signals()
    main()

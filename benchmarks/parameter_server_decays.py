"""Counts the decays of AdagradDecay that asynchronous workers lose or apply twice.

    python -m benchmarks.parameter_server_decays

Two parameter servers and several workers, all on this machine, train the model of
examples_graph_mode/flights. In each trial all accumulators start at 2**100. Squared gradients are
too small to change this value. One decay with the factor 1/2 becomes due during the trial. After
the trial, the exponent of an accumulator shows how often it has decayed. The slot
`accumulator_decay_power` shows how many decays the optimizer has counted. If a variable or row was
updated after the decay became due, both numbers should be 1.
"""

import argparse
import collections
import os
import pathlib
import sys
import tempfile

import numpy as np
import tensorflow.compat.v1 as tf

EXAMPLES = pathlib.Path(__file__).resolve().parents[1] / "examples_graph_mode"
sys.path.insert(0, str(EXAMPLES))

from flights.cluster_worker import (  # noqa: E402
    build_graph,
    session_config,
    train,
)
from flights.data import load_flights  # noqa: E402
from flights.model import Settings  # noqa: E402
from flights.processes import (  # noqa: E402
    Cluster,
    my_place,
    stop_with_parent,
)

START = np.float32(2.0**100)
PERIOD = 20
STEPS = 32  # in a trial, of all workers together


class Barrier:
    """Blocks each worker until all workers have arrived.

    There is one queue for each worker. A worker puts a token into every queue. Then the worker
    takes one token per worker from its own queue, and waits until the queue has so many tokens.
    """

    def __init__(self, index, workers):
        with tf.device("/job:ps/task:0"):
            name = "barrier_%d"
            queues = [
                tf.FIFOQueue(10 * workers, tf.int32, [[]], shared_name=name % i)
                for i in range(workers)
            ]
            arrive = tf.group(*[queue.enqueue(index) for queue in queues])
            with tf.control_dependencies([arrive]):
                self.op = queues[index].dequeue_many(workers)


def be_worker(directory, trials, batch_size):
    """Runs all trials in one worker process; the first worker writes the counts of decays."""
    stop_with_parent()
    cluster, _, index = my_place()
    server = tf.train.Server(cluster, "worker", index, config=session_config(index))
    with np.load(os.path.join(directory, "flights.npz")) as file:
        flights = dict(file)
    sizes = {
        "fields": flights["ids"].shape[1],
        "features": flights["dense"].shape[1],
        "vocabulary": int(flights["vocabulary_size"]),
    }
    workers = len(cluster["worker"])
    settings = Settings("AdagradDecayV2", 0.3, decay_step=PERIOD, decay_rate=0.5)
    graph = build_graph(cluster, index, sizes, settings, sync=False)
    slots = {each.op.name: each for each in tf.global_variables() if "AdagradDecay" in each.name}
    powers = {name: each for name, each in slots.items() if name.endswith("_1")}
    accumulators = {name: slots[name[:-2]] for name in powers}
    reset = tf.group(
        graph.global_step.assign(0),
        *[each.assign(tf.fill(each.shape, START)) for each in accumulators.values()],
        *[each.assign(tf.zeros_like(each)) for each in powers.values()],
    )
    barrier, found = Barrier(index, workers).op, collections.Counter()
    with tf.train.MonitoredTrainingSession(
        server.target, is_chief=index == 0, config=session_config(index)
    ) as session:
        for trial in range(trials):
            if index == 0:
                session.run(reset)
            session.run(barrier)
            batches = range(trial * STEPS + index, (trial + 1) * STEPS, workers)
            train(graph, session, flights, batches, batch_size)
            session.run(barrier)
            if index == 0:
                assert session.run(graph.global_step) == STEPS
                found.update(decays(*session.run([accumulators, powers])))
            session.run(barrier)
    if index == 0:
        np.save(os.path.join(directory, "found.npy"), dict(found), allow_pickle=True)
    os._exit(0)


def decays(accumulators, powers):
    """Counts rows and dense variables by the number of their decays.

    All dense variables are included, because all are updated after the decay becomes due. A row is
    included only if it has decayed, or if the optimizer has counted a decay: the accumulators do
    not show whether another row was updated after its decay became due.

    Returns:
      A Counter. Each key is a tuple of four items: "rows" for a row of a table, or "dense" for a
      dense variable; the smallest number of decays of its elements; the largest number of decays of
      its elements; and the number of decays that the optimizer has counted.
    """
    found = collections.Counter()
    for name, power in powers.items():
        is_table = name.startswith(("embeddings", "wide/"))
        accumulator = accumulators[name]
        rows = accumulator.reshape([power.size if is_table else 1, -1])
        times = np.rint(100 - np.log2(rows.astype(np.float64))).astype(int)
        counted = power.reshape(-1) if is_table else power.reshape(-1)[:1]
        for least, most, count in zip(times.min(axis=1), times.max(axis=1), counted):
            if most or count or not is_table:
                kind = "rows" if is_table else "dense"
                found[kind, int(least), int(most), int(count)] += 1
    return found


def report(found):
    """Prints the result of `decays`, first for dense variables, then for rows."""
    for kind in ("dense", "rows"):
        counts = {key[1:]: n for key, n in found.items() if key[0] == kind}
        total = sum(counts.values())
        print(f"{kind}: {total} decays {'due' if kind == 'dense' else 'applied or counted'}")
        for (least, most, counted), n in sorted(counts.items()):
            decayed = f"{most}" if least == most else f"{least} to {most}"
            line = "  decayed %s times, counted %d: %d (%.3f %%)"
            print(line % (decayed, counted, n, 100.0 * n / total))


def main():
    """Runs the measurement. With --directory, this process is a worker of the measurement."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trials", type=int, default=100)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--directory", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.directory:
        return be_worker(arguments.directory, arguments.trials, arguments.batch_size)
    with tempfile.TemporaryDirectory() as directory:
        flights = load_flights().first(arguments.trials * STEPS * arguments.batch_size)
        arrays = ("ids", "dense", "late", "vocabulary_size")
        np.savez(os.path.join(directory, "flights.npz"), **{n: getattr(flights, n) for n in arrays})
        options = {"directory": directory, "trials": arguments.trials}
        options["batch-size"] = arguments.batch_size
        command = [word for name, value in options.items() for word in ("--" + name, str(value))]
        with Cluster(1800, ps=2, worker=arguments.workers) as cluster:
            cluster.start("ps", str(EXAMPLES / "flights/processes.py"))
            cluster.start("worker", str(pathlib.Path(__file__).resolve()), *command)
            cluster.wait("worker")
        found = np.load(os.path.join(directory, "found.npy"), allow_pickle=True).item()
    print(f"TensorFlow {tf.__version__}, {arguments.workers} workers, {arguments.trials} trials")
    return report(found)


if __name__ == "__main__":
    tf.disable_v2_behavior()
    tf.logging.set_verbosity(tf.logging.ERROR)
    main()

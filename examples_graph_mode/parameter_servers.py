"""Trains the flights model with parameter servers and workers, in processes on this machine.

    python examples_graph_mode/parameter_servers.py
    python examples_graph_mode/parameter_servers.py --sync
    python examples_graph_mode/parameter_servers.py --native  # after: legacy-opt build-kernels
    python examples_graph_mode/parameter_servers.py --restart --checkpoint-every 100

Two parameter servers store the variables and slots. Two workers train at the same time, on
alternate batches. Each worker is a process with its own graph. Without --sync, the workers do not
wait for each other: while a worker computes a gradient, the other worker may change the variables.
With --sync, the optimizer is wrapped in a SyncReplicasOptimizer, so each update applies the mean of
two gradients. With --native, the servers update the variables by native kernels (docs/native.md).

The workers predict each batch before they train on it. The log-loss of these predictions is
compared with the log-loss of a training in a single process. All processes are stopped at the end,
after a failure, and on Ctrl-C and SIGTERM.

With --restart, a process that was killed is started again, and the training continues (see
`legacy-opt docs running`). If a server was killed, the training continues from the last checkpoint.
If a worker was killed, it continues from the variables on the servers. Try `kill -9` with one of
the printed process ids. A process that ends with an error still stops all processes.
"""

import argparse
import os
import sys
import tempfile

import numpy as np
import tensorflow.compat.v1 as tf

from flights.arguments import (
    add_cluster_options,
    one_optimizer_parser,
    one_optimizer_settings,
    positive_int,
)
from flights.cluster_worker import be_worker
from flights.data import load_flights
from flights.model import loss_per_flight
from flights.processes import SERVER, Cluster, end_on_signals
from flights.restarts import POSITIONS
from flights.training import Trainer


def parse_arguments(argv=None):
    """Returns the command line as a namespace."""
    parser = one_optimizer_parser(__doc__, None)
    add_cluster_options(parser, steps=1000)
    add, default = parser.add_argument, "(default: %(default)s)"
    add("--sync", action="store_true", help="each update applies one gradient of each worker")
    add("--native", action="store_true", help="the servers update by native kernels")
    add("--restart", action="store_true", help="start processes again that are killed by a signal")
    add("--servers", type=positive_int, default=2, help="parameter servers " + default)
    add("--workers", type=positive_int, default=2, help=default)
    add("--checkpoint-every", type=positive_int, default=1000, help="steps " + default)
    add("--directory", help=argparse.SUPPRESS)  # of a worker: the folder with the flights
    add("--last-step", type=int, help=argparse.SUPPRESS)  # of a worker
    arguments = parser.parse_args(argv)
    if arguments.steps % arguments.workers:
        parser.error(f"--steps: {arguments.steps} is no multiple of --workers")
    if arguments.restart and arguments.sync:
        parser.error(
            "--restart does not work with --sync: checkpoints lack the gradients that "
            "SyncReplicasOptimizer collects on the servers"
        )
    return arguments


def first_step(arguments):
    """Returns the step of the checkpoint in --out, or 0 if there is no checkpoint.

    With --restart, the step is the number of batches that all workers have trained on. Otherwise it
    is the global step.

    Raises:
      SystemExit: if --restart cannot continue from the checkpoint.
    """
    checkpoint = tf.train.latest_checkpoint(arguments.out) if arguments.out else None
    if not checkpoint:
        return 0
    if not arguments.restart:
        return int(tf.train.load_variable(checkpoint, "global_step"))
    shapes = dict(tf.train.list_variables(checkpoint))
    if shapes.get(POSITIONS) != [arguments.workers]:
        sys.exit(
            f"--out: the checkpoint {checkpoint} was not written with --restart and "
            f"--workers {arguments.workers}; give another directory."
        )
    return int(tf.train.load_variable(checkpoint, POSITIONS).sum())


def write_flights(flights, directory):
    """Writes a file with the flights, and a file for the workers' predictions."""
    flights.save(os.path.join(directory, "flights.npz"))
    nothing = np.full(flights.late.shape, np.nan, np.float32)
    np.save(os.path.join(directory, "predictions.npy"), nothing)


def train_in_cluster(arguments, argv, directory):
    """Starts the processes, waits for the workers, and stops all processes.

    Args:
      arguments: the command line.
      argv: the options of the workers.
      directory: the folder for the results.

    Raises:
      SystemExit: if a process fails, or if the workers have not ended after --timeout seconds.
    """
    with Cluster(arguments.timeout, ps=arguments.servers, worker=arguments.workers) as cluster:
        cluster.start("ps", SERVER, *["--native"] * arguments.native)
        cluster.start("worker", os.path.abspath(__file__), *argv, "--directory", directory)
        if arguments.restart:
            pids = [f"{name} {each.pid}" for name, (each, _) in cluster.processes.items()]
            print("Processes: " + ", ".join(pids), flush=True)
        # With --restart, worker 0 ends only when all workers have trained on their batches.
        cluster.wait("worker 0" if arguments.restart else "worker", restart=arguments.restart)
    return cluster.restarts


def report_restarts(arguments, restarts):
    """Prints the last checkpoint's step and batches, and how often each process was restarted."""
    checkpoint = tf.train.latest_checkpoint(arguments.out)
    step, batches = (
        tf.train.load_variable(checkpoint, name) for name in ("global_step", POSITIONS)
    )
    print(f"Batches of each worker: {', '.join(map(str, batches))}.")
    print(f"Global step {step}, {batches.sum()} batches.")
    times = [f"{name} {count} times" for name, count in sorted(restarts.items())]
    print(f"Restarted: {', '.join(times) or 'no process'}.")


def report_workers(arguments, first, directory):
    """Prints the speed of each worker, and checks the global step."""
    workers = []
    for index in range(arguments.workers):
        with np.load(os.path.join(directory, f"worker {index}.npz")) as file:
            workers.append(dict(file))
        steps, seconds = workers[-1]["steps"], workers[-1]["seconds"]
        rate = steps / seconds
        print(f"  worker {index}: {steps} steps in {seconds:.1f} s, {rate:.0f} a second")
    check_steps(arguments, first, workers)


def check_steps(arguments, first, workers):
    """Checks the growth of the global step since step `first`, and prints the global step.

    Without --sync, the global step grows by the sum of the workers' steps. With --sync, it grows by
    this sum divided by the number of workers, because each update applies the mean of as many
    gradients as there are workers.

    Raises:
      SystemExit: if the global step has grown by a different number.
    """
    done = [int(worker["steps"]) for worker in workers]
    reached, total = int(workers[0]["global_step"]) - first, sum(done)
    text = f"Global step {first + reached}: "
    if first:
        text += f"the {first} steps that were restored, and "
    text += "the sum of the workers' steps"
    if arguments.sync:
        text += f" divided by {arguments.workers}, the number of gradients in each update"
        total /= arguments.workers
    if reached != total:
        sys.exit(
            f"The global step advanced by {reached}. The workers made {done} steps, so "
            f"{total:g} were expected."
        )
    print(text + ".")


def compare_with_one_process(arguments, flights, predictions):
    """Prints the log-loss of the cluster and of a single process, for the same flights.

    With --sync, each update of the cluster uses as many batches as there are workers. Therefore,
    the single process trains with batches that are larger by this factor.

    Raises:
      SystemExit: if a prediction is not finite.
    """
    batch_size = arguments.batch_size * (arguments.workers if arguments.sync else 1)
    settings = one_optimizer_settings(arguments)
    alone = Trainer(flights, {settings.optimizer: settings}, batch_size)
    alone_predictions = alone.train_once("one process")[0]
    both = ~np.isnan(predictions)
    losses = [
        loss_per_flight(flights.late[both], each[both]).mean()
        for each in (predictions, alone_predictions)
    ]
    if not np.isfinite(losses).all():
        sys.exit("The training diverged; give a lower --learning-rate.")
    text = "Log-loss of %d flights before training on them: cluster %.4f, one process %.4f."
    print(text % (both.sum(), losses[0], losses[1]))


def flights_of(arguments, first):
    """Returns the flights to train on.

    Raises:
      SystemExit: if there are too few flights.
    """
    size = arguments.steps * arguments.batch_size
    done = first * (arguments.workers if arguments.sync else 1) * arguments.batch_size
    flights = load_flights()
    if flights.size < done + size:
        left = max(flights.size - done, 0)
        sys.exit(f"--steps: only {left} flights are left; give fewer steps.")
    # With --restart, workers count batches from the beginning of the year, so no flight is removed.
    return flights.first(done + size) if arguments.restart else flights.after(done).first(size)


def main(argv=None):
    """Runs the example."""
    argv = sys.argv[1:] if argv is None else list(argv)
    arguments = parse_arguments(argv)
    if arguments.directory:
        be_worker(arguments)
    first = first_step(arguments)
    flights = flights_of(arguments, first)
    how = "synchronous" if arguments.sync else "asynchronous"
    print(
        f"TensorFlow {tf.__version__}, {arguments.servers} parameter servers, {arguments.workers} "
        f"workers, {how}: {arguments.optimizer} from step {first}."
    )
    argv += ["--last-step", str(first + arguments.steps // arguments.workers)]
    with tempfile.TemporaryDirectory() as directory:
        if arguments.restart and not arguments.out:
            arguments.out = os.path.join(directory, "checkpoints")
            argv += ["--out", arguments.out]
        write_flights(flights, directory)
        restarts = train_in_cluster(arguments, argv, directory)
        if arguments.restart:
            report_restarts(arguments, restarts)
        else:
            report_workers(arguments, first, directory)
        predictions = np.load(os.path.join(directory, "predictions.npy"))
    if not first:
        compare_with_one_process(arguments, flights, predictions)


if __name__ == "__main__":
    tf.logging.set_verbosity(tf.logging.ERROR)
    tf.disable_v2_behavior()
    end_on_signals()
    main()

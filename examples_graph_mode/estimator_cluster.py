"""The Estimator of `estimator_flights.py` in a cluster: a chief, a worker, two parameter servers.

    python examples_graph_mode/estimator_cluster.py

All processes of the cluster run `train_and_evaluate`. The environment variable TF_CONFIG determines
whether a process is a parameter server, the worker or the chief. Chief and worker train on
alternate batches, and repeat them until both together have done all steps. The chief also writes
the checkpoints. At the end the last checkpoint is evaluated on the flights that follow the training
data. All processes are stopped at the end, after a failure, and on Ctrl-C and SIGTERM.

With TensorFlow 2.16 and newer, Estimators need another package (docs/estimators.md).
"""

import os
import sys
import tempfile

import tensorflow.compat.v1 as tf

from estimator_flights import make_estimator, make_input_fn
from flights.arguments import one_optimizer_parser, positive_int
from flights.data import load_flights
from flights.processes import Cluster, end_on_signals, my_place, stop_with_parent
from legacy_opt.compat import estimator


def parse_arguments(argv=None):
    """Returns the command line as a namespace."""
    parser = one_optimizer_parser(__doc__, None)
    add = parser.add_argument
    add(
        "--steps",
        type=positive_int,
        default=4000,
        help="steps of chief and worker together (default: %(default)s)",
    )
    add("--timeout", type=positive_int, default=300, help="seconds (default: %(default)s)")
    return parser.parse_args(argv)


def device_filters(job):
    """Returns the device filters for the sessions of a process.

    With its filters the chief or the worker connects only to the parameter servers and to itself.
    Without filters the chief would wait forever for a worker that has finished. A parameter server
    needs no filters. The Estimator would set such filters itself if its RunConfig had no
    session_config.
    """
    return [] if job == "ps" else ["/job:ps", "/job:" + job]


def be_process(arguments):
    """Runs the task of TF_CONFIG: serves variables, or trains on half of the batches."""
    stop_with_parent()
    flights = load_flights().first(arguments.steps * arguments.batch_size)
    job = my_place()[1]
    model = make_estimator(arguments, flights.vocabulary_size, device_filters(job))
    number = {"chief": 0, "worker": 1}.get(job, 0)
    whole = make_input_fn(flights, arguments.batch_size)
    # The worker starts five seconds after the chief. So the chief does more than half of the steps,
    # needs more batches than its half, and repeats batches.
    input_fn = lambda: whole().shard(2, number).repeat()  # noqa: E731
    estimator.train_and_evaluate(
        model,
        estimator.TrainSpec(input_fn, max_steps=arguments.steps),
        estimator.EvalSpec(input_fn, steps=1),  # a required argument; no process evaluates
    )
    os._exit(0)  # the server threads would keep the process alive


def main(argv=None):
    """Runs the example.

    Raises:
      SystemExit: if a process fails, or if the processes have not ended after --timeout seconds.
    """
    argv = sys.argv[1:] if argv is None else list(argv)
    arguments = parse_arguments(argv)
    if "TF_CONFIG" in os.environ:
        if not arguments.out:
            sys.exit("With TF_CONFIG, --out is required: all processes use the same directory.")
        be_process(arguments)
    flights = load_flights()
    following = flights.after(arguments.steps * arguments.batch_size).first(20000)
    if not following.size:
        sys.exit(f"--steps: no flight follows {arguments.steps} steps; give fewer.")
    with tempfile.TemporaryDirectory() as directory:
        arguments.out = arguments.out or directory
        with Cluster(arguments.timeout, chief=1, worker=1, ps=2) as cluster:
            for job in ("ps", "chief", "worker"):
                cluster.start(job, os.path.abspath(__file__), *argv, "--out", arguments.out)
            cluster.wait("chief", "worker")
        model = make_estimator(arguments, flights.vocabulary_size)
        metrics = model.evaluate(make_input_fn(following, 1024))
        print(
            f"TensorFlow {tf.__version__}, step {metrics['global_step']}; "
            f"log-loss of the next {following.size} flights: {metrics['log_loss']:.4f}."
        )


if __name__ == "__main__":
    tf.logging.set_verbosity(tf.logging.ERROR)
    tf.disable_v2_behavior()
    end_on_signals()
    main()

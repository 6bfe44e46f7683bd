"""Trains the Estimator of `estimator_flights.py` in a cluster, and evaluates it meanwhile.

    python examples_graph_mode/estimator_cluster.py

All processes run `train_and_evaluate`. The environment variable TF_CONFIG determines whether a
process is one of the two parameter servers, the chief, the worker or the evaluator. The chief and
the worker train on alternate batches, and repeat these batches until they have done all steps
together. The chief also writes the checkpoints. The evaluator is not part of the cluster. It
evaluates each new checkpoint on the flights that follow the training data, prints the log-loss, and
ends after the last step. If training is faster than the evaluation, the evaluator leaves out
checkpoints, but never the last checkpoint. All processes are stopped at the end, after a failure,
and on Ctrl-C and SIGTERM.

With --restart, a process that is killed is started again. If the chief or a server was killed, the
chief restores the last checkpoint. A worker that was killed continues with the variables that are
on the servers.

With TensorFlow 2.16 and newer, Estimators need another package (`legacy-opt docs estimators`).
"""

import os
import sys
import tempfile

import tensorflow.compat.v1 as tf

from estimator_flights import make_estimator, make_input_fn
from flights.arguments import add_cluster_options, one_optimizer_parser
from flights.data import load_flights
from flights.processes import Cluster, end_on_signals, my_place, stop_with_parent
from legacy_opt.compat import estimator

EVALUATED = 20000  # the number of flights that the evaluator predicts


def parse_arguments(argv=None):
    """Returns the command line as a namespace."""
    parser = one_optimizer_parser(__doc__, None)
    add_cluster_options(parser, steps=4000)
    restart = "start processes again that are killed by a signal"
    parser.add_argument("--restart", action="store_true", help=restart)
    return parser.parse_args(argv)


def device_filters(job):
    """Returns the device filters for the sessions of a process.

    With filters, the chief and the worker connect only to the parameter servers and to themselves.
    Without filters, the chief would wait forever for a worker that has finished. A parameter server
    needs no filters, and the evaluator connects to no other process. An Estimator sets such filters
    itself only if its RunConfig has no session_config.
    """
    return ["/job:ps", "/job:" + job] if job in ("chief", "worker") else []


def result_printer():
    """Returns an exporter that prints each result. An evaluator calls it after each evaluation."""

    class Printer(estimator.Exporter):
        name = "printer"

        def export(self, eval_result, is_the_final_export, **others):
            end = ", the last step" if is_the_final_export else ""
            print("  step {global_step}: {log_loss:.4f}".format(**eval_result) + end, flush=True)

    return Printer()


def split(arguments, flights):
    """Returns the flights to train on, and the flights to evaluate on."""
    size = arguments.steps * arguments.batch_size
    return flights.first(size), flights.after(size).first(EVALUATED)


def be_process(arguments):
    """Runs the task of TF_CONFIG: serves variables, trains on half of the batches, or evaluates."""
    stop_with_parent()
    flights, following = split(arguments, load_flights())
    job = my_place()[1]
    model = make_estimator(arguments, flights.vocabulary_size, device_filters(job))
    number = {"chief": 0, "worker": 1}.get(job, 0)
    whole = make_input_fn(flights, arguments.batch_size)
    # The worker starts five seconds after the chief. Therefore the chief does more than half of the
    # steps, and must repeat batches of its half.
    input_fn = lambda: whole().shard(2, number).repeat()  # noqa: E731
    estimator.train_and_evaluate(
        model,
        estimator.TrainSpec(input_fn, max_steps=arguments.steps),
        estimator.EvalSpec(
            make_input_fn(following, 1024),
            steps=None,
            exporters=result_printer(),
            start_delay_secs=0,
            throttle_secs=1,
        ),
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
    following = split(arguments, load_flights())[1]
    if not following.size:
        sys.exit(
            f"--steps: no flights are left for the evaluation after {arguments.steps} steps; give "
            "fewer steps."
        )
    text = f"TensorFlow {tf.__version__}, log-loss of the {following.size} flights that follow:"
    print(text, flush=True)
    with tempfile.TemporaryDirectory() as directory:
        out = arguments.out or directory
        with Cluster(arguments.timeout, chief=1, worker=1, ps=2) as cluster:
            for job in ("ps", "chief", "worker", "evaluator"):
                cluster.start(job, os.path.abspath(__file__), *argv, "--out", out)
            cluster.wait("chief", "worker", "evaluator", restart=arguments.restart)


if __name__ == "__main__":
    tf.logging.set_verbosity(tf.logging.ERROR)
    tf.disable_v2_behavior()
    end_on_signals()
    main()

"""Migrates a training in the middle of the year from TensorFlow 1.15 to Keras 3, and back.

    python examples_graph_mode/migration_story.py --old python3.7 --new python3.13

The model of flights_session.py is trained on the flights of 2013, in time order. Each of the stages
A, B and C continues the training of the previous stage. --old and --new are Python programs that
have an old and a new TensorFlow (`make migration-demo` installs them). Without these options, all
stages run on the installed TensorFlow.

* January-June: the old program, a TF1 graph in a Session on the old TensorFlow, trains and saves a
  checkpoint with its Saver.
* A, July-August: on the new TensorFlow, load_v1_checkpoint loads this checkpoint into a Keras
  model, and `fit` continues with the same optimizer, converted by to_keras. At the end,
  save_v1_checkpoint saves the Keras model in a checkpoint for the old program.
* B, September-October: the old program restores this checkpoint and continues.
* C, November-December: a Keras model continues again, as in stage A.
* exit, November-December: a Keras model repeats stage C with Keras' own Adagrad, which
  to_plain_keras creates. This optimizer does not need legacy-opt. There is no exit for
  AdagradDecay, because Keras does not have this optimizer.

Stages A, B and C begin with a hand-over between Session and Keras. For comparison with each of
these stages, a Session on the same TensorFlow starts from the same state without a hand-over, and
trains on the same flights. The predictions, variables and slots of the Session and of the stage
must be equal bit for bit. The old program also trains until December without any migration. If
--old and --new have different TensorFlow versions, the stages may differ from this training by
rounding, within a bound.

The exit code is 0 if the results are equal or within their bounds, and 1 if not. story.png,
rows.json, and all checkpoints and values are written to the output directory.
"""

import argparse
import os
import shutil
import subprocess
import sys
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

from flights.arguments import new_parser
from flights.data import load_flights
from flights.training import write_json
from migration.files import Story, periods_of, read_story, write_story

OPTIMIZERS = ("Adagrad", "AdagradDecay")
QUICK_STEPS = 25  # per month


def parse_arguments(argv=None):
    """Returns the command line as a namespace."""
    parser = new_parser(__doc__, "flights_migration_out")
    add = parser.add_argument
    add("--old", metavar="PYTHON", help="a Python with the old TensorFlow (default: this Python)")
    add("--new", metavar="PYTHON", help="a Python with the new TensorFlow (default: this Python)")
    add("--optimizers", nargs="+", choices=OPTIMIZERS, default=list(OPTIMIZERS))
    add("--quick", action="store_true", help=f"the first {QUICK_STEPS} steps of each month")
    add("--stages", nargs="+", help=argparse.SUPPRESS)  # for processes that `run_stages` starts
    arguments = parser.parse_args(argv)
    for option in ("old", "new"):
        python = getattr(arguments, option)
        if python is not None and shutil.which(python) is None:
            parser.error(f"--{option}: there is no program {python!r}")
    if not arguments.stages and not is_ours(arguments.out):
        parser.error(f"--out: this program did not create {arguments.out!r}; give a new folder")
    return arguments


def is_ours(directory):
    """Whether the folder does not exist, is empty, or was created by this program."""
    if not os.path.exists(directory):
        return True
    if not os.path.isdir(directory):
        return False
    return not os.listdir(directory) or os.path.exists(os.path.join(directory, "story.json"))


def begin(arguments):
    """Writes the files that all stages read; removes the files of an earlier run."""
    os.makedirs(arguments.out, exist_ok=True)
    for name in OPTIMIZERS:
        shutil.rmtree(os.path.join(arguments.out, name), ignore_errors=True)
    flights = load_flights()
    if arguments.quick:
        flights = flights.first_of_months(QUICK_STEPS * arguments.batch_size)
    periods = periods_of(flights, arguments.batch_size)
    write_story(Story(arguments.out, arguments.batch_size, periods), flights)
    print(f"{flights.size} flights, {periods[-1].stop} steps of {arguments.batch_size}.")


def run_all_stages(arguments):
    """Runs all stages, each on the old or on the new TensorFlow."""
    run_stages(arguments, arguments.old, "stay")
    run_stages(arguments, arguments.new, "A")
    run_stages(arguments, arguments.old, "B")
    run_stages(arguments, arguments.new, "C", "exit")
    story, _ = read_story(arguments.out)
    again = [
        name
        for name in arguments.optimizers
        if any(row.get("other_keras") for row in story.load_rows(name))
    ]
    if again:  # repeat the exit with Keras 2, which is installed beside Keras 3
        arguments = argparse.Namespace(**dict(vars(arguments), optimizers=again))
        keras_2 = {"TF_USE_LEGACY_KERAS": "1"}
        run_stages(arguments, arguments.new or sys.executable, "exit", environment=keras_2)


def run_stages(arguments, python, *stages, environment=()):
    """Runs stages with another Python, or in this process.

    Args:
      arguments: the command line.
      python: the path of the other Python, or None for this process.
      *stages: the names of the stages.
      environment: additional environment variables for the other process.

    Raises:
      SystemExit: if a stage fails.
    """
    if python is None:
        run_stages_here(arguments, stages)
        return
    command = [python, os.path.abspath(__file__), "--out", arguments.out]
    command += ["--optimizers", *arguments.optimizers, "--stages", *stages]
    sys.stdout.flush()
    code = subprocess.call(command, env=dict(os.environ, **dict(environment)))
    if code:
        sys.exit(f"{python} ended with {code}: {' '.join(command[1:])}")


def run_stages_here(arguments, stages):
    """Runs stages in this process."""
    from migration.stages import run_stage

    story, flights = read_story(arguments.out)
    for stage in stages:
        for optimizer in arguments.optimizers:
            run_stage(stage, story, flights, optimizer)


def tell(arguments):
    """Prints the tables; writes rows.json and the plot.

    Raises:
      SystemExit: if a hand-over changes results, or if a difference exceeds its bound.
    """
    from migration import report

    story, flights = read_story(arguments.out)
    judged = {name: report.judge(story, flights, name) for name in arguments.optimizers}
    for name, rows in judged.items():
        print(f"\n{name}\n{report.format_rows(rows)}")
    print("\n" + report.NOTES)
    write_json(os.path.join(arguments.out, "rows.json"), judged)
    png = os.path.join(arguments.out, "story.png")
    report.write_plot(png, story, flights, judged)
    print(f"Wrote {png}.")
    problems, good = report.verdict(judged)
    if problems:
        sys.exit("\n".join(problems))
    print(good)


def main(argv=None):
    """Runs the example.

    Raises:
      SystemExit: if a hand-over changes results, or if a difference exceeds its bound.
    """
    arguments = parse_arguments(argv)
    if arguments.stages:
        run_stages_here(arguments, arguments.stages)
        return
    start = time.time()
    begin(arguments)
    run_all_stages(arguments)
    tell(arguments)
    print(f"{time.time() - start:.0f} s.")


if __name__ == "__main__":
    import tensorflow as tf

    # With one thread per operation, all trainings add floats in the same order.
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.compat.v1.logging.set_verbosity(tf.compat.v1.logging.ERROR)
    main()

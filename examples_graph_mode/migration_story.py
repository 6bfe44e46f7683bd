"""Moves a training in the middle of the year from TensorFlow 1.15 to Keras 3, back, and out.

    python examples_graph_mode/migration_story.py --old python3.7 --new python3.13

The model of flights_session.py learns from the flights of 2013, in time order. --old and --new are
Pythons with an old and a new TensorFlow (`make migration-demo` makes them); without them, all
happens on the TensorFlow at hand.

* January-June: a TF1 graph in a Session on the old TensorFlow; its Saver leaves a checkpoint.
* A, July-August: on the new one that checkpoint goes into a Keras model (load_v1_checkpoint), whose
  `fit` goes on, with the same optimizer (to_keras).
* B, September-October: rolled back. The old program restores what save_v1_checkpoint wrote.
* C, November-December: Keras again.
* exit, November-December: the same months with Keras' own optimizer (to_plain_keras), for which
  this package is needed no more.

At each hand-over another training starts from the same state, on the same TensorFlow, without the
bridge: its predictions, variables and slots have to be equal bit for bit. And the old program has
gone on to December, as if nothing had happened: from that, two TensorFlows part by rounding only,
for which there is a bound.

The exit code is 0 if all is so; if not, it is 1. The output directory receives story.png,
rows.json, and all checkpoints and values.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

from flights.arguments import positive_int
from flights.data import load_flights
from flights.training import replacing
from migration.files import Story, periods_of, read_story, write_story

OPTIMIZERS = ("Adagrad", "AdagradDecay")
QUICK_STEPS = 25  # a month


def parse_arguments(argv=None):
    """Returns the command line as a namespace."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--old", metavar="PYTHON", help="a Python with the old TensorFlow (this one)")
    add("--new", metavar="PYTHON", help="a Python with the new TensorFlow (this one)")
    add("--out", default="flights_migration_out", metavar="DIR", help="(%(default)s)")
    add("--optimizers", nargs="+", choices=OPTIMIZERS, default=list(OPTIMIZERS))
    add("--batch-size", type=positive_int, default=64, help="flights per step (%(default)s)")
    add("--quick", action="store_true", help=f"the first {QUICK_STEPS} steps of each month")
    add("--stages", nargs="+", help=argparse.SUPPRESS)  # what a process that this one starts does
    arguments = parser.parse_args(argv)
    for option in ("old", "new"):
        python = getattr(arguments, option)
        if python is not None and shutil.which(python) is None:
            parser.error(f"--{option}: there is no program {python!r}")
    if not arguments.stages and not is_ours(arguments.out):
        parser.error(f"--out: {arguments.out!r} is no folder of this program; name a new one")
    return arguments


def is_ours(directory):
    """Whether the folder is new, empty, or one that this program has made."""
    if not os.path.exists(directory):
        return True
    if not os.path.isdir(directory):
        return False
    return not os.listdir(directory) or os.path.exists(os.path.join(directory, "story.json"))


def begin(arguments):
    """Writes what all stages read; what an earlier story has left is removed."""
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
    """Lets the stages happen, each on its TensorFlow."""
    run_stages(arguments, arguments.old, "stay")
    run_stages(arguments, arguments.new, "A")
    run_stages(arguments, arguments.old, "B")
    run_stages(arguments, arguments.new, "C", "exit")
    again = with_another_keras(arguments)
    if again:
        python, old = arguments.new or sys.executable, {"TF_USE_LEGACY_KERAS": "1"}
        run_stages(arguments, python, "exit", optimizers=again, environment=old)


def run_stages(arguments, python, *stages, optimizers=None, environment=()):
    """Runs stages with a Python, or here if it is None.

    Args:
      arguments: the command line.
      python: the Python.
      *stages: their names.
      optimizers: those to run them for; all if None.
      environment: variables for another process, in addition.

    Raises:
      SystemExit: if they fail.
    """
    optimizers = optimizers or arguments.optimizers
    if python is None:
        run_stages_here(arguments.out, optimizers, stages)
        return
    command = [python, os.path.abspath(__file__), "--out", arguments.out]
    command += ["--optimizers", *optimizers, "--stages", *stages]
    sys.stdout.flush()
    code = subprocess.call(command, env=dict(os.environ, **dict(environment)))
    if code:
        sys.exit(f"{python} ended with {code}: {' '.join(command[1:])}")


def run_stages_here(directory, optimizers, stages):
    """Runs stages in this process."""
    from migration.stages import run_stage

    story, flights = read_story(directory)
    for stage in stages:
        for optimizer in optimizers:
            run_stage(stage, story, flights, optimizer)


def with_another_keras(arguments):
    """Returns the optimizers that could leave for Keras 3, where Keras 2 is there as well."""
    story, _ = read_story(arguments.out)
    return [
        name
        for name in arguments.optimizers
        if any(row.get("other_keras") for row in story.load_rows(name))
    ]


def tell(arguments):
    """Prints the tables, writes rows.json and the plot.

    Raises:
      SystemExit: if something is not as it has to be.
    """
    from migration import report

    story, flights = read_story(arguments.out)
    judged = {name: report.judge(story, flights, name) for name in arguments.optimizers}
    for name, rows in judged.items():
        print(f"\n{name}\n{report.format_rows(rows)}")
    print("\n" + report.NOTES)
    with replacing(os.path.join(arguments.out, "rows.json")) as temporary, open(
        temporary, "w"
    ) as file:
        json.dump(judged, file, indent=2)
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
      SystemExit: if something is not as it has to be.
    """
    arguments = parse_arguments(argv)
    if arguments.stages:
        run_stages_here(arguments.out, arguments.optimizers, arguments.stages)
        return
    start = time.time()
    begin(arguments)
    run_all_stages(arguments)
    tell(arguments)
    print(f"{time.time() - start:.0f} s.")


if __name__ == "__main__":
    import tensorflow as tf

    # One thread within an op: float sums in one order, hence reproducible numbers.
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.compat.v1.logging.set_verbosity(tf.compat.v1.logging.ERROR)
    main()

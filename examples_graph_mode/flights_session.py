"""Predicts late arrivals with a TF1 graph in a Session; compares Adagrad, AdagradDecay and SGD.

    python examples_graph_mode/flights_session.py
    python examples_graph_mode/flights_session.py --resume

The models train on all flights of 2013 once, in time order. Every batch is predicted before the
models train on it, so the log-loss measures each optimizer on unseen data ("progressive
validation"). The program trains on a flight's label at once, although in reality the label would be
known hours later.

The program writes metrics.csv, running_log_loss.png and checkpoints to the output directory. A run
that continues from a checkpoint with --resume gives the same numbers as an uninterrupted run.
"""

import os
import sys
import time

import numpy as np
import tensorflow.compat.v1 as tf

import legacy_opt
from flights.arguments import model_parser, positive_float, positive_int, settings_of
from flights.data import load_flights
from flights.model import LEARNING_RATES, OPTIMIZERS
from flights.report import format_table, metrics_table, write_plot
from flights.training import CheckpointedRun, Trainer, first_difference, replacing


def parse_arguments(argv=None):
    """Returns the command line as a namespace."""
    parser = model_parser(__doc__, "flights_out")
    add, default = parser.add_argument, "(default: %(default)s)"
    add("--optimizers", nargs="+", choices=OPTIMIZERS, default=list(OPTIMIZERS))
    for name, rate in LEARNING_RATES.items():
        option = "--learning-rate-" + name.lower()
        add(option, type=positive_float, default=rate, metavar="RATE", help=default)
    add("--steps", type=positive_int, help="stop after so many steps (default: the whole year)")
    add(
        "--native",
        choices=["auto", "require"],
        help="run the optimizers of legacy_opt with compiled kernels (first run legacy-opt "
        "build-kernels); require: stop if an optimizer of legacy_opt has no kernel",
    )
    add("--checkpoint-every", type=positive_int, default=1000, help="steps " + default)
    add("--resume", action="store_true", help="continue from the latest checkpoint in --out")
    add(
        "--verify-resume",
        action="store_true",
        help="run twice, once interrupted and resumed in a new graph and session; fail unless "
        "all predictions and variables are equal, bit for bit",
    )
    return parser.parse_args(argv)


def report(arguments, flights, predictions):
    """Prints the table and writes CSV and PNG.

    Raises:
      SystemExit: if a prediction is not finite.
    """
    bad = [name for name, values in predictions.items() if not np.isfinite(values).all()]
    if bad:
        sys.exit(f"{', '.join(bad)} diverged; give a lower --learning-rate-<optimizer>")
    table = metrics_table(flights, predictions)
    print(format_table(table))
    csv = os.path.join(arguments.out, "metrics.csv")
    png = os.path.join(arguments.out, "running_log_loss.png")
    with replacing(csv) as temporary:
        table.to_csv(temporary, index=False)
    title = "Late arrivals 2013, each batch predicted before training on it"
    write_plot(png, flights, predictions, dict.fromkeys(predictions, {}), title)
    print(f"Wrote {csv} and {png}.")


def verify_resume(arguments, flights, settings, steps, predictions, variables):
    """Interrupts and resumes a second run, and compares its results with those of the first run.

    The interrupted run saves a checkpoint after a third of the steps, and stops some steps later
    without saving, as if it had been killed. A new trainer then resumes from the checkpoint.

    Raises:
      SystemExit: if anything differs, or if the run is too short to be interrupted.
    """
    every = steps // 3
    stop = every + every // 2  # a step without a checkpoint
    if every == stop:
        sys.exit(f"--verify-resume: {steps} steps are too few to interrupt; use 6 or more")
    directory = os.path.join(arguments.out, "interrupted")
    for stop_at, resume in [(stop, False), (steps, True)]:
        trainer = Trainer(flights, settings, arguments.batch_size)
        run = CheckpointedRun(trainer, directory, every)
        resumed, resumed_variables = run.run(stop_at, resume=resume, save_at_end=resume)
    difference = first_difference(
        dict(variables, predictions=predictions), dict(resumed_variables, predictions=resumed)
    )
    if difference:
        sys.exit(f"Resumed run differs from uninterrupted run: {difference}.")
    print(
        f"Stopped at step {stop}, resumed from step {every}: all {resumed.size} predictions "
        f"and {len(variables)} variables are equal to those of the uninterrupted run, bit for "
        "bit."
    )


def main(argv=None):
    """Runs the example."""
    arguments = parse_arguments(argv)
    os.makedirs(arguments.out, exist_ok=True)
    if arguments.native:
        legacy_opt.native.enable(require=arguments.native == "require")
    begin = time.time()
    flights = load_flights()
    print(
        f"{flights.size} flights, {100 * flights.late.mean():.1f} % late, "
        f"{flights.vocabulary_size} ids; TensorFlow {tf.__version__}."
    )
    rates = {name: getattr(arguments, "learning_rate_" + name.lower()) for name in OPTIMIZERS}
    settings = {
        name: settings_of(arguments, name, rate)
        for name, rate in rates.items()
        if name in arguments.optimizers
    }
    trainer = Trainer(flights, settings, arguments.batch_size)
    steps = min(arguments.steps or trainer.steps, trainer.steps)
    run = CheckpointedRun(trainer, arguments.out, arguments.checkpoint_every)
    predictions, variables = run.run(steps, resume=arguments.resume)
    report(arguments, flights.first(predictions.shape[1]), dict(zip(settings, predictions)))
    if arguments.verify_resume:
        verify_resume(arguments, flights, settings, steps, predictions, variables)
    print(f"{time.time() - begin:.0f} s.")


if __name__ == "__main__":
    tf.logging.set_verbosity(tf.logging.ERROR)
    tf.disable_v2_behavior()
    main()

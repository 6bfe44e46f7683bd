"""Predicts late arrivals with a TF1 graph in a Session; compares Adagrad, AdagradDecay and SGD.

    python examples_graph_mode/flights_session.py
    python examples_graph_mode/flights_session.py --resume
    python examples_graph_mode/flights_session.py --sweep

The models train on all flights of 2013 once, in time order. Every batch is predicted before the
models train on it, so the log-loss measures each optimizer on unseen data ("progressive
validation"). The program trains on a flight's label at once, although in reality the label would be
known hours later.

The program writes metrics.csv, running_log_loss.png and checkpoints to the output directory. A run
that continues from a checkpoint with --resume gives the same numbers as an uninterrupted run. With
--sweep the program tunes the optimizers instead, and writes sweep_trials.csv and sweep_seeds.csv.
"""

import argparse
import os
import sys
import time

import numpy as np
import tensorflow.compat.v1 as tf

import legacy_opt
from flights.arguments import decay_rate, positive_float, positive_int
from flights.data import load_flights
from flights.model import DECAY_RATE, DECAY_STEP, LEARNING_RATES, MODELS, OPTIMIZERS, Settings
from flights.report import format_table, metrics_table, summary, write_csv, write_plot
from flights.sweep import sweep
from flights.training import CheckpointedRun, Trainer, replacing


def parse_arguments(argv=None):
    """Returns the command line as a namespace."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add(
        "--out",
        default="flights_out",
        metavar="DIR",
        help="output directory (default: %(default)s)",
    )
    add("--optimizers", nargs="+", choices=OPTIMIZERS, default=list(OPTIMIZERS))
    add("--model", choices=MODELS, default="mlp", help="logistic: without the MLP")
    add(
        "--batch-size",
        type=positive_int,
        default=64,
        help="flights per step (default: %(default)s)",
    )
    add("--steps", type=positive_int, help="stop after so many steps (default: the whole year)")
    add("--embedding-dim", type=positive_int, default=8, help="(default: %(default)s)")
    for name in OPTIMIZERS:
        tuned = ", ".join(f"{model} {LEARNING_RATES[model][name]:g}" for model in MODELS)
        option = "--learning-rate-" + name.lower()
        add(option, type=positive_float, metavar="RATE", help=f"(default: {tuned})")
    add(
        "--decay-step",
        type=positive_int,
        default=DECAY_STEP,
        metavar="T",
        help="AdagradDecay: steps between decays (default: %(default)s). DeepRec's default of "
        "100000 is for longer streams: with it nothing would ever decay in the 5,115 steps of a "
        "year, and AdagradDecay would never differ from Adagrad",
    )
    add(
        "--decay-rate",
        type=decay_rate,
        default=DECAY_RATE,
        metavar="RATE",
        help="AdagradDecay: factor of the accumulator (default: %(default)s)",
    )
    add(
        "--native",
        choices=["auto", "require"],
        help="run the optimizers of legacy_opt with compiled kernels (first run legacy-opt "
        "build-kernels); require: stop if an optimizer of legacy_opt has no kernel",
    )
    add("--seed", type=int, default=0, help="(default: %(default)s)")
    add("--checkpoint-every", type=positive_int, default=1000, help="steps (default: %(default)s)")
    add("--resume", action="store_true", help="continue from the latest checkpoint in --out")
    add(
        "--verify-resume",
        action="store_true",
        help="run twice, once interrupted and resumed in a new graph and session; fail unless "
        "all predictions and variables are equal, bit for bit",
    )
    add(
        "--sweep",
        action="store_true",
        help="tune each optimizer on January-June, then measure July-December over --seeds seeds; "
        "takes minutes, does not save checkpoints",
    )
    add(
        "--trials",
        type=positive_int,
        default=24,
        help="sweep: trials of each optimizer (default: %(default)s)",
    )
    add(
        "--seeds",
        type=positive_int,
        default=5,
        help="sweep: number of seeds for ranking the best trials and for measuring July-December "
        "(default: %(default)s)",
    )
    return parser.parse_args(argv)


def make_settings(arguments):
    """Returns a dict from optimizer name to `Settings`."""
    settings = {}
    for name in OPTIMIZERS:
        if name in arguments.optimizers:
            given = getattr(arguments, "learning_rate_" + name.lower())
            settings[name] = Settings(
                optimizer=name,
                learning_rate=given or LEARNING_RATES[arguments.model][name],
                decay_step=arguments.decay_step,
                decay_rate=arguments.decay_rate,
                model=arguments.model,
                embedding_dim=arguments.embedding_dim,
                seed=arguments.seed,
            )
    return settings


def report(arguments, flights, settings, predictions):
    """Prints the table and writes CSV and PNG.

    Raises:
      SystemExit: if a prediction is not finite.
    """
    flights = flights.first(predictions.shape[1])
    names = list(settings)
    if not np.isfinite(predictions).all():
        bad = [name for name, values in zip(names, predictions) if not np.isfinite(values).all()]
        sys.exit(f"{', '.join(bad)} diverged; give a lower --learning-rate-<optimizer>")
    table = metrics_table(flights, predictions, names)
    print(format_table(table))
    print(summary(table, names, settings, -(-flights.size // arguments.batch_size)))
    csv = os.path.join(arguments.out, "metrics.csv")
    png = os.path.join(arguments.out, "running_log_loss.png")
    write_csv(csv, table)
    write_plot(png, flights, predictions, settings, arguments.batch_size)
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
    different = [
        name for name in variables if not np.array_equal(variables[name], resumed_variables[name])
    ]
    if not np.array_equal(predictions, resumed):
        different.append("predictions")
    if different:
        sys.exit(f"Resumed run differs from uninterrupted run in: {', '.join(different)}")
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
    settings = make_settings(arguments)
    if arguments.sweep:
        base = next(iter(settings.values()))
        sizes = arguments.trials, arguments.seeds, arguments.batch_size
        tables = sweep(flights, list(settings), *sizes, base=base)
        for name, table in zip(("sweep_trials.csv", "sweep_seeds.csv"), tables):
            with replacing(os.path.join(arguments.out, name)) as temporary:
                table.to_csv(temporary, index=False)
        return
    trainer = Trainer(flights, settings, arguments.batch_size)
    steps = min(arguments.steps or trainer.steps, trainer.steps)
    run = CheckpointedRun(trainer, arguments.out, arguments.checkpoint_every)
    predictions, variables = run.run(steps, resume=arguments.resume)
    report(arguments, flights, settings, predictions)
    if arguments.verify_resume:
        verify_resume(arguments, flights, settings, steps, predictions, variables)
    print(f"{time.time() - begin:.0f} s.")


if __name__ == "__main__":
    tf.logging.set_verbosity(tf.logging.ERROR)
    tf.disable_v2_behavior()
    main()

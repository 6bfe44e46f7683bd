"""Trains the flights model with all optimizers of legacy_opt and some optimizers of TensorFlow.

    python examples_graph_mode/compare_optimizers.py
    python examples_graph_mode/compare_optimizers.py --quick
    python examples_graph_mode/compare_optimizers.py --optimizers Adam --learning-rate Adam=0.01

The optimizers train one after the other, each in a new TF1 graph and Session, so that they do not
slow each other down. Every batch of flights is predicted before the model trains on it. The
default learning rates (flights/optimizers.py), except Shampoo's, are the results of sweeps on
January to June. Therefore a training on the whole year is scored by the log-loss and the AUC of
July to December only. With one model, one data set and one seed, the program shows how the
optimizers behave, but not which optimizer is the best.

The program writes compare.csv, compare_over_time.png and compare_ranking.png to the output
directory. With --sweep it writes compare_sweep.csv instead.
"""

import argparse
import dataclasses
import os
import sys
import time
from typing import Any

import numpy as np
import pandas as pd
import tensorflow.compat.v1 as tf

from flights.arguments import positive_float, positive_int
from flights.data import load_flights
from flights.model import Settings
from flights.optimizer_ranking import format_ranking, ranking, write_over_time, write_ranking
from flights.optimizers import CATALOGUE
from flights.sweep import ALL_SEEDS, tune
from flights.training import Trainer, replacing

QUICK_STEPS = 600
WARM_UP_STEPS = 10  # not timed


@dataclasses.dataclass(frozen=True)
class Outcome:
    """The results of one optimizer.

    Attributes:
      predictions: float32 [flights], the probability of each flight, predicted before the training
        on this flight.
      milliseconds: the median time of a training step.
      state_bytes: the size of the optimizer's variables.
    """

    predictions: Any
    milliseconds: float
    state_bytes: int


def named_rate(text):
    """Converts NAME=RATE to a pair; a type for argparse."""
    name, equals, rate = text.partition("=")
    if name in CATALOGUE and not equals:
        raise argparse.ArgumentTypeError(f"{text!r} has no rate: write NAME=RATE")
    if name not in CATALOGUE:
        known = ", ".join(CATALOGUE)
        raise argparse.ArgumentTypeError(f"{text!r} does not begin with NAME=; names: {known}")
    try:
        return name, positive_float(rate)
    except ValueError:
        raise argparse.ArgumentTypeError(f"the rate {rate!r} in {text!r} is not a number") from None


def make_parser():
    """Returns the parser of the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--out", default="flights_compare_out", metavar="DIR", help="(default: %(default)s)")
    add(
        "--optimizers",
        nargs="+",
        choices=CATALOGUE,
        default=list(CATALOGUE),
        metavar="NAME",
        help=f"train only these optimizers; possible names: {', '.join(CATALOGUE)}",
    )
    add(
        "--learning-rate",
        nargs="+",
        action="append",
        type=named_rate,
        default=[],
        metavar="NAME=RATE",
        help="learning rates that replace the tuned learning rates",
    )
    length = parser.add_mutually_exclusive_group()
    length.add_argument(
        "--steps", type=positive_int, help="number of training steps (default: the whole year)"
    )
    length.add_argument("--quick", action="store_true", help=f"train {QUICK_STEPS} steps only")
    add(
        "--batch-size",
        type=positive_int,
        default=64,
        help="flights per step (default: %(default)s)",
    )
    add("--seed", type=int, default=0, help="(default: %(default)s)")
    add("--sweep", action="store_true", help="only tune the learning rates, on January to June")
    add(
        "--trials",
        type=positive_int,
        default=10,
        help="sweep: how many trials each optimizer gets (default: %(default)s)",
    )
    add(
        "--seeds",
        type=positive_int,
        default=2,
        help="sweep: how many seeds the best trials get (default: %(default)s)",
    )
    return parser


def parse_arguments(argv=None):
    """Returns a namespace, in which `learning_rate` is a dict from optimizer name to rate."""
    parser = make_parser()
    arguments = parser.parse_args(argv)
    arguments.learning_rate = dict(pair for pairs in arguments.learning_rate for pair in pairs)
    for name in arguments.learning_rate:
        if name not in arguments.optimizers:
            parser.error(f"--learning-rate: {name} is not among the --optimizers")
        if arguments.sweep:
            parser.error("--learning-rate: --sweep tries its own rates")
    return arguments


def make_settings(arguments):
    """Returns a dict from optimizer name to `Settings`, in the order of the catalogue."""
    return {
        name: Settings(
            optimizer=name,
            learning_rate=arguments.learning_rate.get(name, choice.learning_rate),
            seed=arguments.seed,
        )
        for name, choice in CATALOGUE.items()
        if name in arguments.optimizers
    }


def train(flights, settings, batch_size):
    """Trains once on all `flights` with one optimizer, in a new graph."""
    trainer = Trainer(flights, {settings.optimizer: settings}, batch_size)
    (predictions,) = trainer.train_once(f"{settings.optimizer:<16}")
    timed = trainer.step_seconds[WARM_UP_STEPS:] or trainer.step_seconds
    return Outcome(predictions, 1000 * float(np.median(timed)), trainer.state_bytes())


def sweep(flights, arguments):
    """Tunes every optimizer; prints the best learning rates, and returns all trials."""
    seeds = range(arguments.seed + 1, arguments.seed + 1 + arguments.seeds)
    tables = []
    for name, settings in make_settings(arguments).items():
        print(f"{name}:")
        sizes = arguments.trials, seeds, arguments.batch_size
        best, table = tune(flights, [name], *sizes, base=settings)
        rates = sorted(table["learning_rate"])
        rate = best[name].learning_rate
        edge = " (at the end of the range: widen it)" if rate in (rates[0], rates[-1]) else ""
        print(f"{name} {rate:g}, log-loss {table[ALL_SEEDS].min():.4f}{edge}")
        tables.append(table)
    return pd.concat(tables)


def compare(flights, arguments):
    """Trains with every optimizer; prints the ranking, and writes a CSV and two plots.

    Raises:
      SystemExit: an optimizer diverged. The CSV and the plots are written in this case, too.
    """
    settings = make_settings(arguments)
    outcomes = {name: train(flights, one, arguments.batch_size) for name, one in settings.items()}
    table = ranking(flights, outcomes, settings)
    print(format_ranking(flights, table))
    paths = [
        os.path.join(arguments.out, name)
        for name in ("compare.csv", "compare_over_time.png", "compare_ranking.png")
    ]
    with replacing(paths[0]) as temporary:
        table.to_csv(temporary, index_label="optimizer")
    write_over_time(paths[1], flights, {name: one.predictions for name, one in outcomes.items()})
    write_ranking(paths[2], flights, table)
    print("Wrote {}, {} and {}.".format(*tuple(paths)))
    diverged = list(table.index[table["log_loss"].isna()])
    if diverged:
        sys.exit(f"{', '.join(diverged)} diverged; give a lower --learning-rate NAME=RATE")


def main(argv=None):
    """Runs the example."""
    arguments = parse_arguments(argv)
    try:
        os.makedirs(arguments.out, exist_ok=True)
    except OSError as error:
        sys.exit(f"--out: cannot create the directory: {error}")
    begin = time.time()
    flights = load_flights()
    if arguments.sweep:
        with replacing(os.path.join(arguments.out, "compare_sweep.csv")) as temporary:
            sweep(flights, arguments).to_csv(temporary, index=False)
    else:
        steps = QUICK_STEPS if arguments.quick else arguments.steps
        compare(flights.first(steps * arguments.batch_size) if steps else flights, arguments)
    print(f"{time.time() - begin:.0f} s.")


if __name__ == "__main__":
    tf.disable_v2_behavior()
    tf.logging.set_verbosity(tf.logging.ERROR)
    main()

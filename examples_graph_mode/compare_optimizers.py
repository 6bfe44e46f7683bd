"""Trains the flights model with all optimizers of legacy_opt and some optimizers of TensorFlow.

    python examples_graph_mode/compare_optimizers.py
    python examples_graph_mode/compare_optimizers.py --quick
    python examples_graph_mode/compare_optimizers.py --optimizers Adam --learning-rate Adam=0.01

The optimizers train one after the other, each in a new TF1 graph and Session, so that they do not
slow each other down. Every batch of flights is predicted before the model trains on it. The
default learning rates (flights/optimizers.py) were tuned on January to June. Therefore a training
on the whole year is scored by the log-loss and the AUC of July to December only. With one model,
one data set and one seed, the program shows how the optimizers behave, but not which optimizer is
the best.

The program prints a table, and writes it to compare.csv in the output directory.
"""

import argparse
import os
import sys
import time

import numpy as np
import pandas as pd
import tensorflow.compat.v1 as tf

from flights.arguments import new_parser, positive_float, positive_int
from flights.data import load_flights
from flights.model import Settings
from flights.optimizers import CATALOGUE
from flights.report import score
from flights.training import Trainer, replacing

QUICK_STEPS = 600
WARM_UP_STEPS = 10  # not timed


def named_rate(text):
    """Converts NAME=RATE to a pair; a type for argparse."""
    name, equals, rate = text.partition("=")
    if name in CATALOGUE and not equals:
        raise argparse.ArgumentTypeError(f"{text!r} has no rate: write NAME=RATE")
    if name not in CATALOGUE:
        known = ", ".join(CATALOGUE)
        raise argparse.ArgumentTypeError(f"{text!r} does not begin with NAME=; names: {known}")
    if CATALOGUE[name].learning_rate is None:
        raise argparse.ArgumentTypeError(f"{name} has no learning rate")
    try:
        return name, positive_float(rate)
    except ValueError:
        raise argparse.ArgumentTypeError(f"the rate {rate!r} in {text!r} is not a number") from None


def parse_arguments(argv=None):
    """Returns a namespace, in which `learning_rate` is a dict from optimizer name to rate."""
    parser = new_parser(__doc__, "flights_compare_out")
    add, names = parser.add_argument, ", ".join(CATALOGUE)
    chosen = {"nargs": "+", "choices": CATALOGUE, "default": list(CATALOGUE), "metavar": "NAME"}
    rates = {"nargs": "+", "action": "append", "type": named_rate, "metavar": "NAME=RATE"}
    add("--optimizers", help=f"train only these optimizers; possible names: {names}", **chosen)
    add("--learning-rate", default=[], help="rates that replace the tuned learning rates", **rates)
    add("--seed", type=int, default=0, help="(default: %(default)s)")
    length = parser.add_mutually_exclusive_group()
    steps = "number of training steps (default: the whole year)"
    length.add_argument("--steps", type=positive_int, help=steps)
    length.add_argument("--quick", action="store_true", help=f"train {QUICK_STEPS} steps only")
    arguments = parser.parse_args(argv)
    arguments.learning_rate = dict(pair for pairs in arguments.learning_rate for pair in pairs)
    for name in arguments.learning_rate:
        if name not in arguments.optimizers:
            parser.error(f"--learning-rate: {name} is not among the --optimizers")
    return arguments


def scored(flights):
    """Returns a mask of the flights whose predictions are scored, and their description.

    After a training on the whole year, these are July to December only, because the learning rates
    were tuned on January to June. After a shorter training, all flights are scored.
    """
    if flights.month[-1] == 12:
        return flights.month >= 7, "July-December"
    return np.ones(flights.size, bool), f"the first {flights.size:,} flights"


def train(flights, settings, batch_size):
    """Trains once on all `flights` with one optimizer, in a new graph.

    Returns:
      A row of the table, a dict.
    """
    trainer = Trainer(flights, {settings.optimizer: settings}, batch_size)
    (predictions,) = trainer.train_once(f"{settings.optimizer:<16}")
    seconds = trainer.step_seconds[WARM_UP_STEPS:] or trainer.step_seconds
    inside, _ = scored(flights)
    loss, auc = score(flights.late[inside], predictions[inside])
    return {
        "log_loss": loss,
        "auc": auc,
        "milliseconds_per_step": 1000 * float(np.median(seconds)),
        "state_bytes": trainer.state_bytes(),
        "learning_rate": settings.learning_rate,
        "tensorflows_own": CATALOGUE[settings.optimizer].stock,
    }


def compare(flights, arguments):
    """Trains with every optimizer; prints the table, and writes a CSV.

    Raises:
      SystemExit: an optimizer diverged. The CSV is written in this case, too.
    """
    rows = {}
    for name in [each for each in CATALOGUE if each in arguments.optimizers]:
        rate = arguments.learning_rate.get(name, CATALOGUE[name].learning_rate)
        rows[name] = train(flights, Settings(name, rate, seed=arguments.seed), arguments.batch_size)
    table = pd.DataFrame.from_dict(rows, orient="index").sort_values("log_loss", kind="mergesort")
    inside, period = scored(flights)
    late = flights.late[inside]
    constant = score(late, np.full(late.shape, late.mean()))[0]
    print(f"Predictions of {period}, each made before training on its flight:")
    print(table.to_string(float_format="{:.4g}".format))
    print(f"Always predicting the share of late flights would score {constant:.4f}.")
    csv = os.path.join(arguments.out, "compare.csv")
    with replacing(csv) as temporary:
        table.to_csv(temporary, index_label="optimizer")
    print(f"Wrote {csv}.")
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
    steps = QUICK_STEPS if arguments.quick else arguments.steps
    compare(flights.first(steps * arguments.batch_size) if steps else flights, arguments)
    print(f"{time.time() - begin:.0f} s.")


if __name__ == "__main__":
    tf.disable_v2_behavior()
    tf.logging.set_verbosity(tf.logging.ERROR)
    main()

"""Argument types and options that several examples share."""

import argparse

from flights.model import DECAY_RATE, DECAY_STEP, LEARNING_RATES, OPTIMIZERS, Settings


def positive_int(text):
    """Converts text to an int of at least 1; a type for argparse."""
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not at least 1")
    return value


def positive_float(text):
    """Converts text to a finite float above 0; a type for argparse."""
    value = float(text)
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is not a finite number above 0")
    return value


def decay_rate(text):
    """Converts text to a float above 0 and below 1; a type for argparse."""
    value = float(text)
    if not 0 < value < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not between 0 and 1")
    return value


def one_optimizer_parser(description, out):
    """Returns a parser with the common options of programs that train with one optimizer.

    Args:
      description: the program's docstring, for --help.
      out: the default output directory.
    """
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    default = "%(default)s" if out else "a temporary directory"
    add("--out", default=out, metavar="DIR", help=f"(default: {default})")
    add("--optimizer", choices=OPTIMIZERS, default="AdagradDecay", help="(default: %(default)s)")
    add(
        "--learning-rate", type=positive_float, help="(default: the tuned rate in flights/model.py)"
    )
    add("--decay-step", type=positive_int, default=DECAY_STEP, help="(default: %(default)s)")
    add("--decay-rate", type=decay_rate, default=DECAY_RATE, help="(default: %(default)s)")
    add(
        "--batch-size",
        type=positive_int,
        default=64,
        help="flights per step (default: %(default)s)",
    )
    add("--embedding-dim", type=positive_int, default=8, help="(default: %(default)s)")
    add("--seed", type=int, default=0, help="(default: %(default)s)")
    return parser


def one_optimizer_settings(arguments):
    """Returns the `Settings` for the arguments of a `one_optimizer_parser`."""
    return Settings(
        optimizer=arguments.optimizer,
        learning_rate=arguments.learning_rate or LEARNING_RATES["mlp"][arguments.optimizer],
        decay_step=arguments.decay_step,
        decay_rate=arguments.decay_rate,
        embedding_dim=arguments.embedding_dim,
        seed=arguments.seed,
    )

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


def new_parser(description, out):
    """Returns a parser with the options --out and --batch-size.

    Args:
      description: the program's docstring, for --help.
      out: the default output directory; None means a temporary directory.
    """
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    place = "%(default)s" if out else "a temporary directory"
    size = "flights per step (default: %(default)s)"
    parser.add_argument("--out", default=out, metavar="DIR", help=f"(default: {place})")
    parser.add_argument("--batch-size", type=positive_int, default=64, help=size)
    return parser


def model_parser(description, out):
    """Returns a `new_parser` that also has the options for `settings_of`."""
    parser = new_parser(description, out)
    add, default = parser.add_argument, "(default: %(default)s)"
    add(
        "--decay-step",
        type=positive_int,
        default=DECAY_STEP,
        help="AdagradDecay: steps between decays (default: %(default)s). DeepRec's default of "
        "100000 is for longer streams: with it nothing would ever decay in the 5,115 steps of a "
        "year, and AdagradDecay would never differ from Adagrad",
    )
    add("--decay-rate", type=decay_rate, default=DECAY_RATE, help=default)
    add("--embedding-dim", type=positive_int, default=8, help=default)
    add("--seed", type=int, default=0, help=default)
    return parser


def settings_of(arguments, optimizer, learning_rate=None):
    """Returns `Settings` for an optimizer and the arguments of a `model_parser`."""
    return Settings(
        optimizer=optimizer,
        learning_rate=learning_rate or LEARNING_RATES[optimizer],
        decay_step=arguments.decay_step,
        decay_rate=arguments.decay_rate,
        embedding_dim=arguments.embedding_dim,
        seed=arguments.seed,
    )


def one_optimizer_parser(description, out):
    """Returns a `model_parser` for programs that train with one optimizer."""
    parser = model_parser(description, out)
    tuned = "(default: the tuned rate in flights/optimizers.py)"
    add = parser.add_argument
    add("--optimizer", choices=OPTIMIZERS, default="AdagradDecay", help="(default: %(default)s)")
    add("--learning-rate", type=positive_float, help=tuned)
    return parser


def one_optimizer_settings(arguments):
    """Returns the `Settings` for the arguments of a `one_optimizer_parser`."""
    return settings_of(arguments, arguments.optimizer, arguments.learning_rate)


def add_cluster_options(parser, steps):
    """Adds the options --steps and --timeout of programs that start a cluster."""
    add = parser.add_argument
    add("--steps", type=positive_int, default=steps, help="of all workers (default: %(default)s)")
    seconds = "seconds after which the processes must have ended (default: %(default)s)"
    add("--timeout", type=positive_int, default=300, help=seconds)

"""`legacy-opt compare`: compares training through to_keras with training in a Session."""

from __future__ import annotations

import argparse
from typing import TextIO

from . import terminal

_DESCRIPTION = """\
Converts a v1 optimizer to a Keras optimizer with to_keras. Applies the same gradients with the v1
optimizer in a graph-mode Session and with the Keras optimizer. Compares all variables after each
step, and all slot variables at the end, bit for bit.
"""
_EPILOG = """\
example: legacy-opt compare training.optimizers:make_optimizer --steps 50

exit codes: 0, equal bit for bit; 1, different; 2, the optimizer cannot be imported or converted
"""


def add_command(commands: terminal.Commands):
    """Adds `compare` to the command line."""
    summary = "check that an optimizer computes the same in Keras as in a Session"
    parser = terminal.add_parser(commands, "compare", summary, _DESCRIPTION, _EPILOG, execute)
    parser.add_argument(
        "optimizer",
        metavar="MODULE:OBJECT",
        help="a tf.compat.v1.train.Optimizer, or a function that returns one",
    )
    parser.add_argument(
        "--steps", type=int, default=20, help="training steps (default: %(default)s)"
    )
    parser.add_argument(
        "--api",
        choices=("auto", "optimizer_v2", "keras3"),
        default="auto",
        help="the kind of Keras optimizer (default: the kind that the installed tf.keras uses)",
    )


def execute(arguments: argparse.Namespace, screen: TextIO) -> terminal.Outcome:
    """Compares the two trainings and returns an `Outcome`."""
    from legacy_opt import versions

    from ..in_keras.session_comparison import compare_with_session
    from ..state import user_objects

    optimizer = user_objects.made(arguments.optimizer)
    comparison = compare_with_session(optimizer, arguments.steps, api=arguments.api)
    facts = dict(comparison._asdict(), optimizer=type(optimizer).__name__)
    facts.update(tensorflow=versions.tensorflow_version(), api=arguments.api)
    line = f"{facts['optimizer']} on TensorFlow {facts['tensorflow']}: {comparison}"
    code = terminal.SUCCESS if comparison else terminal.MANUAL_WORK
    return terminal.Outcome(code, facts, (line,))

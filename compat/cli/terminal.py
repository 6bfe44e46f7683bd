"""What the commands have in common: how they end, and what they keep off the terminal.

Exit codes: 0, all is well; 1, something needs manual work; 2, bad input, of which one line on
stderr tells, and nothing has been written.
"""

import argparse
import importlib
import json
import os
import sys
import traceback
from typing import NamedTuple

from .. import messages, plain_text
from ..quiet import silence
from . import tables

FINE, NEEDS_A_PERSON, BAD_INPUT = 0, 1, 2
_INTERRUPTED = 130  # what a shell makes of Ctrl-C


class Outcome(NamedTuple):
    """What a command has found or done.

    Attributes:
      code: the exit code.
      facts: what `--json` prints: a dict that `json` can write.
      blocks: what people see: lines and `tables.Table`s.
    """

    code: int
    facts: dict
    blocks: tuple


class Parser(argparse.ArgumentParser):
    """Tells of a wrong word in one line."""

    def error(self, message):
        """Ends the process."""
        message = plain_text.printable(message, sys.stderr)
        self.exit(BAD_INPUT, f"{self.prog}: {message} ({self.prog} --help tells more)\n")


def add_parser(commands, name, help, description, epilog):
    """Adds a command, with what all commands take, and returns its parser."""
    parser = commands.add_parser(
        name,
        help=help,
        description=description,
        epilog=epilog,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--json", action="store_true", help="the same for machines")
    parser.add_argument(
        "--traceback", action="store_true", help="show where in the code an error comes from"
    )
    return parser


def run(name, work, arguments, with_tensorflow=True):
    """Runs a command and prints what comes of it.

    Args:
      name: the command's name, for messages.
      work: called with the arguments and the stream for progress, returns an `Outcome`. What it
        and TensorFlow write by the way is dropped.
      arguments: the parsed words; `json` and `traceback` are among them.
      with_tensorflow: whether it needs TensorFlow.

    Returns:
      The exit code.
    """
    try:
        with silence() as screen:
            if with_tensorflow:
                importlib.import_module("legacy_opt.public")  # tells how to come by it
            outcome = work(arguments, screen)
    except KeyboardInterrupt:
        print(f"legacy-opt {name}: interrupted, nothing was written", file=sys.stderr)
        return _INTERRUPTED
    except Exception as error:  # of TensorFlow, of Keras, of a user's module: any may come
        if arguments.traceback:
            for line in traceback.format_exc().splitlines():
                print(plain_text.printable(line, sys.stderr), file=sys.stderr)
        print(f"legacy-opt {name}: {one_line(error)}", file=sys.stderr)
        return BAD_INPUT
    try:
        if arguments.json:
            print(json.dumps(outcome.facts, indent=2))
        else:
            tables.show(outcome.blocks, sys.stdout)
        sys.stdout.flush()
    except BrokenPipeError:  # as in `| head`; Python would complain once more at its end
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    return outcome.code


def one_line(error):
    """Returns what an error says, on one line."""
    text = plain_text.printable(" ".join(messages.text_of(error).split()), sys.stderr)
    # Those are written for people; the others do not say what they are about.
    if isinstance(error, (ValueError, ImportError)) and text:
        return text
    return f"{type(error).__name__}: {text}" if text else type(error).__name__

"""The `legacy-opt` command."""

import argparse

from legacy_opt import __version__
from legacy_opt.compat import doctor


def main(arguments=None):
    """Runs the command line and returns the exit code.

    Args:
      arguments: the words after the program's name; None takes those of the process.
    """
    parser = argparse.ArgumentParser(
        prog="legacy-opt", description="Tools for optimizers of TensorFlow 1 graphs."
    )
    parser.add_argument("--version", action="version", version="legacy-opt " + __version__)
    commands = parser.add_subparsers(title="commands", dest="command", metavar="COMMAND")
    commands.required = True
    for command in (doctor,):
        command.add_command(commands)
    parsed = parser.parse_args(arguments)
    return parsed.run(parsed)

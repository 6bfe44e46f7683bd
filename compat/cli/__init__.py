"""The `legacy-opt` command."""

from __future__ import annotations

import argparse
import sys
from typing import Any, List, Optional

from legacy_opt import __version__, _checkout

from . import (
    audit_command,
    build_kernels_command,
    compare_command,
    completion_command,
    convert_command,
    docs_command,
    doctor_command,
    export_command,
    import_command,
    inspect_command,
    prove_command,
    run_command,
    terminal,
)

_EPILOG = """\
Exit codes: 0, success; 1, something needs manual work; 2, bad input: one line on stderr says what
is wrong, and nothing was written. If `run` has started a script, the exit code is the script's own.
COMMAND --help prints the options of a command.
"""


class _PrintVersion(argparse.Action):
    """Prints the version, and the commit if the package is a checkout."""

    def __call__(self, parser: argparse.ArgumentParser, *_: Any):
        commit = _checkout.commit()
        suffix = f" (commit {commit})" if commit else ""
        print(f"legacy-opt {__version__}{suffix}")
        parser.exit()


def main(arguments: Optional[List[str]] = None) -> int:
    """Runs the command line and returns the exit code; `arguments` default to `sys.argv[1:]`."""
    parser = make_parser()
    words = sys.argv[1:] if arguments is None else arguments
    if not words:
        parser.print_help()
        return terminal.SUCCESS
    parsed = parser.parse_args(words)
    return parsed.run(parsed)


def make_parser() -> terminal.CommandParser:
    """Returns the `argparse` parser of the command line."""
    parser = terminal.CommandParser(
        prog="legacy-opt",
        description="Tools for TensorFlow 1 optimizers, scripts and checkpoints.",
        epilog=_EPILOG,
    )
    parser.add_argument("--version", action=_PrintVersion, nargs=0, help="print the version")
    commands = parser.add_subparsers(title="commands", dest="command", metavar="COMMAND")
    commands.required = True
    for command in (
        doctor_command,
        inspect_command,
        convert_command,
        export_command,
        import_command,
        compare_command,
        prove_command,
        audit_command,
        run_command,
        build_kernels_command,
        docs_command,
        completion_command,
    ):
        command.add_command(commands)
    return parser

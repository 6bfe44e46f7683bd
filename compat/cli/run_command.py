"""`legacy-opt run`: runs a TF1, tf.contrib.opt or DeepRec script on the TensorFlow that is here."""

import argparse
import functools
import os
import sys

from .. import plain_text
from ..script_runner import missing_errors
from ..script_runner.runner import (
    module_called,
    outcome,
    path_of_script,
    prepare,
    run_file,
    run_module,
)
from ..source_analysis import missing_names
from . import terminal

_DESCRIPTION = """\
Runs a script of TensorFlow 1, without edits, on the TensorFlow that is here, like `python SCRIPT`:
`import tensorflow` gives the script tf.compat.v1 without TensorFlow 2's behaviour, and the
optimizers and helpers of tf.contrib and DeepRec are those of legacy_opt where TensorFlow has none.
Names that nobody provides are listed before anything runs; without those that it reaches in any
case it does not run.
"""
_EPILOG = """\
example: legacy-opt run train.py --steps 1000

exit codes: those of the script; 1, names that it cannot do without are missing; 2, there is no such
script
"""


def add_command(commands):
    """Adds `run` to the command line."""
    parser = commands.add_parser(
        "run",
        help="run a TensorFlow 1 script as it is",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("-m", action="store_true", dest="is_module", help="SCRIPT names a module")
    parser.add_argument("--force", action="store_true", help="run it though names are missing")
    parser.add_argument(
        "words",
        metavar="SCRIPT",
        nargs=argparse.PARSER,  # which leaves alone what follows, "--" and all
        help="a Python file, or a module's name, and what it is given",
    )
    parser.set_defaults(run=run)


def run(arguments):
    """Runs a script; this process is the script's from here on.

    Args:
      arguments: the parsed words.

    Returns:
      The exit code, if the script does not end the process by itself.
    """
    script, is_module = arguments.words[0], arguments.is_module
    if not getattr(sys.flags, "safe_path", sys.flags.isolated):  # the former from Python 3.11 on
        sys.path[0] = os.getcwd() if is_module else os.path.dirname(os.path.realpath(script))
    try:
        path, name = module_called(script) if is_module else (path_of_script(script), "__main__")
        tensorflow = prepare()
    except (ImportError, OSError) as error:
        print(f"legacy-opt run: {terminal.one_line(error)}", file=sys.stderr)
        return terminal.BAD_INPUT
    missing = missing_names.find(path, name, tensorflow)
    if _tell(missing, arguments.force):
        return terminal.NEEDS_A_PERSON
    missing_errors.install(missing, tensorflow)
    sys.argv = list(arguments.words)
    return outcome(functools.partial(run_module if is_module else run_file, script))


def _tell(missing, all_the_same):
    """Prints what is missing; returns whether the script cannot run."""
    certain = [each for each in missing if each.is_certain]
    for each in missing:
        kind = "" if each.is_certain else "legacy-opt run: warning: "
        print(kind + each.text, file=sys.stderr)
    if certain:
        text = "legacy-opt run: nobody provides what the script uses in %s"
        places = plain_text.counted(len(certain), "place")
        text += "." if all_the_same else "; nothing was run (--force runs it all the same)."
        print(text % places, file=sys.stderr)
    return bool(certain) and not all_the_same

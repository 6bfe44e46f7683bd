"""`legacy-opt run`: runs a TF1, tf.contrib.opt or DeepRec script on the installed TensorFlow."""

from __future__ import annotations

import argparse
import contextlib
import functools
import json
import os
import sys
from typing import Any, Callable, ContextManager, Iterable, List

from .. import plain_text
from ..old_programs.script_runner import missing_errors, packages, runner
from ..old_programs.source_analysis import (
    decay_var_lists,
    global_steps,
    missing_names,
    script_modules,
)
from . import terminal

_DESCRIPTION = """\
Runs an unchanged TensorFlow 1 script on the installed TensorFlow, like `python SCRIPT`. In the
script, `import tensorflow` returns tf.compat.v1 with TensorFlow 2's behaviour disabled. Optimizers
and helpers of tf.contrib and DeepRec that the installed TensorFlow lacks come from legacy_opt.

While the script runs, builtins.__import__ is replaced, so that `import tensorflow` returns
tf.compat.v1 in the script and in your own modules. Installed packages import the installed
TensorFlow as usual, except for packages that are named with --package: these were written for
TensorFlow 1, too.

Before the run, the command lists the names in the script that neither TensorFlow nor legacy_opt
has. If the script is certain to use one of these names, the script is not run.
"""
_EPILOG = """\
example: legacy-opt run train.py --steps 1000

exit codes: the script's own. If the script was not run: 1, names are missing; 2, no such script
"""


def add_command(commands: terminal.Commands):
    """Adds `run` to the command line."""
    parser = commands.add_parser(
        "run",
        help="run an unchanged TensorFlow 1 script",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--json",
        action="store_true",
        help="print the missing names as JSON, and do not run the script",
    )
    add_options(parser)
    add_script(parser)
    parser.set_defaults(run=execute)


def add_options(parser: argparse.ArgumentParser):
    """Adds the options that say how a script is run."""
    parser.add_argument(
        "-m", action="store_true", dest="is_module", help="SCRIPT is a module's name"
    )
    parser.add_argument(
        "--force", action="store_true", help="run the script even if names are missing"
    )
    parser.add_argument(
        "--native", action="store_true", help="use native kernels (see `legacy-opt docs native`)"
    )
    parser.add_argument(
        "--package",
        action="append",
        default=[],
        dest="packages",
        metavar="NAME",
        help="give an installed package TensorFlow 1's names, too; may be repeated",
    )


def add_script(parser: argparse.ArgumentParser):
    """Adds the script."""
    parser.add_argument(
        "argv",
        metavar="SCRIPT",
        nargs=argparse.PARSER,  # all arguments after SCRIPT belong to the script, even options
        help="a Python file or the name of a module, followed by its arguments",
    )


def words_of(arguments: argparse.Namespace) -> List[str]:
    """Returns the words of a command line that `add_options` and `add_script` have parsed."""
    flags = {"-m": arguments.is_module, "--force": arguments.force, "--native": arguments.native}
    packages = [word for name in arguments.packages for word in ("--package", name)]
    return [*(flag for flag in flags if flags[flag]), *packages, "--", *arguments.argv]


def execute(
    arguments: argparse.Namespace, scope: Callable[[], ContextManager[Any]] = contextlib.suppress
) -> int:
    """Runs a script in this process, in a scope. Returns the exit code, unless the script exits."""
    script = arguments.argv[0]
    is_module = arguments.is_module
    if not getattr(sys.flags, "safe_path", sys.flags.isolated):  # safe_path is in Python 3.11+
        sys.path[0] = os.getcwd() if is_module else os.path.dirname(os.path.realpath(script))
    try:
        if is_module:
            path, name = runner.module_called(script)
        else:
            path = runner.path_of_script(script)
            name = "__main__"
        for package in arguments.packages:
            packages.include(package)
        tensorflow = runner.prepare(arguments.native)
    except (ImportError, OSError) as error:
        print(f"legacy-opt run: {terminal.one_line(error)}", file=sys.stderr)
        return terminal.BAD_INPUT
    modules = script_modules.read(path, name)
    missing = missing_names.find(modules, tensorflow)
    if getattr(arguments, "json", False):
        return _print_json(path, modules, missing)
    _warn_of_races(modules, arguments.native)
    if _report(missing, arguments.force):
        return terminal.MANUAL_WORK
    missing_errors.install(missing, tensorflow)
    sys.argv = list(arguments.argv)
    have_kernels = {}  # {update: whether a native kernel did it}, filled by `one_step`
    if arguments.native:
        from legacy_opt.native.updates import one_step

        one_step.have_kernels = have_kernels
    try:
        start = runner.run_module if is_module else runner.run_file
        with scope():
            return runner.outcome(functools.partial(start, script))
    finally:  # also if the script calls sys.exit
        if arguments.native:
            updates = plain_text.counted(len(have_kernels), "update")
            text = f"{sum(have_kernels.values())} of {updates} have native kernels"
            print(f"legacy-opt run: {text}", file=sys.stderr)


def _print_json(path: str, modules: Iterable[Any], missing: List[Any]) -> int:
    """Prints what was found in the script, and returns the exit code."""
    certain = [each for each in missing if each.is_certain]
    facts = {
        "script": path,
        "missing": [each._asdict() for each in missing],
        "races": [{"path": file, "line": line} for file, line in global_steps.races(modules)],
        "runs": not certain,
    }
    print(json.dumps(facts, indent=2))
    return terminal.MANUAL_WORK if certain else terminal.SUCCESS


def _warn_of_races(modules: Iterable[Any], native: bool):
    from legacy_opt import versions  # not above: the command line does not need TensorFlow

    found = [(*place, global_steps.RACE) for place in global_steps.races(modules)]
    if versions.has_contrib() and not native:  # else the classes are legacy_opt's, without a race
        found += [(*place, decay_var_lists.DECAY_RACE) for place in decay_var_lists.races(modules)]
    for path, line, advice in found:
        text = plain_text.printable(f"{path}:{line}: {advice}")
        print(f"legacy-opt run: warning: {text}", file=sys.stderr)


def _report(missing: List[Any], force: bool) -> bool:
    """Prints the missing names. Returns whether they prevent the script from running."""
    certain = [each for each in missing if each.is_certain]
    printed = set()
    for each in missing:
        kind = "" if each.is_certain else "legacy-opt run: warning: "
        shown = each._replace(advice="see above") if each.advice in printed else each
        print(kind + shown.text, file=sys.stderr)
        printed.add(each.advice)
    if certain:
        places = plain_text.counted(len(certain), "place")
        text = f"legacy-opt run: the script uses missing names in {places}"
        text += "." if force else "; nothing was run (--force runs it anyway)."
        print(text, file=sys.stderr)
    return bool(certain) and not force

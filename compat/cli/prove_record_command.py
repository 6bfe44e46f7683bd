"""`legacy-opt prove record`: records the training of a TF1 script."""

from __future__ import annotations

import argparse
import os
import re
import sys
from typing import Any, List

from .. import plain_text, special_files
from . import run_command, tables, terminal

_DESCRIPTION = """\
Runs an unchanged TensorFlow 1 script like `legacy-opt run`, and writes down its training: of each
optimizer, the state before the first step, the gradients and hyperparameters of each step, and what
they make of the variables. The file is written after the last step, and the script is ended.
"""
_EPILOG = """\
Gradients are recorded as the optimizer gets them: after clipping, and without a loss scale. With
--inputs, the file also has what the model is fed, which may be private.

example: legacy-opt prove record --steps 200 --out run.proof -- train.py --batch_size 64

exit codes: 0, recorded; 2, no step was recorded, or bad input. If the script ends before, its own
"""


def add_command(commands: terminal.Commands):
    """Adds `record` to the commands of `prove`."""
    parser = commands.add_parser(
        "record",
        help="record the training of a TF1 script",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--out", metavar="FILE", required=True, help="the file to write")
    add("--overwrite", action="store_true", help="replace FILE if it exists")
    add("--steps", type=int, default=200, help="training steps (default: 200)")
    add("--every", type=int, metavar="N", help="keep the variables after each N steps (steps / 10)")
    add("--inputs", action="store_true", help="record what the model is fed, too")
    add("--variables", metavar="REGEX", default="", help="record only variables with such names")
    add("--limit", type=float, default=256, metavar="MB", help="the largest size (default: 256)")
    add("--replay", nargs=2, metavar=("FILE", "SEED"), help=argparse.SUPPRESS)
    run_command.add_options(parser)
    run_command.add_script(parser)
    parser.set_defaults(run=_record)


def _record(arguments: argparse.Namespace) -> int:
    if arguments.argv[0] == "--":
        arguments.argv.pop(0)
    try:
        special_files.refuse_existing(arguments.out, arguments.overwrite)
        folder = os.path.dirname(os.path.abspath(arguments.out))
        if not (os.path.isdir(folder) and os.access(folder, os.W_OK)):
            raise ValueError(f"--out: there is no folder {folder!r} in which you may write.")
        if arguments.steps < 1 or (arguments.every or 1) < 1:
            raise ValueError("--steps and --every must be at least 1.")
        re.compile(arguments.variables)
    except (OSError, ValueError, re.error) as error:
        _say(terminal.one_line(error))
        return terminal.BAD_INPUT
    recorders: List[Any] = []
    with tables.progress("steps", arguments.steps, sys.stderr, " step") as advance:

        def scope() -> Any:  # after the installed TensorFlow was checked
            recorders.append(_recorder(arguments, advance))
            return recorders[0].watching()

        try:
            with terminal.exit_on_sigterm():
                code: Any = run_command.execute(arguments, scope)
        except SystemExit as error:
            code = error.code
    if not recorders or recorders[0].has_written:
        return code
    if not recorders[0].left_out:  # which was said
        _say("no step of a tf.compat.v1.train.Optimizer ran in a Session (Keras' fit is not seen)")
    _say("nothing was recorded")
    return code or terminal.BAD_INPUT


def _recorder(arguments: argparse.Namespace, advance: Any) -> Any:
    from legacy_opt import proofs
    from legacy_opt.proofs import replaying

    from ..old_programs.proving import training_replay, watching

    steps, old = arguments.steps, None
    every = arguments.every or max(1, steps // 10)
    ends = {1, steps, *range(every, steps + 1, every)}
    chosen = arguments.inputs, arguments.variables, arguments.limit
    options = training_replay.Options(steps, ends, *chosen)
    if arguments.replay:
        path, seed = arguments.replay
        old = training_replay.Replayed(proofs.read_run(path), int(seed) if seed else None)
        options = old.options

    def write(run: Any) -> None:
        made = {**run.made, "command": arguments.argv, "versions": replaying.versions()}
        try:
            proofs.write_run(arguments.out, run._replace(made=made))
        except (OSError, ValueError) as error:
            _say(f"cannot write {arguments.out!r}: {terminal.one_line(error)}")
            raise SystemExit(terminal.BAD_INPUT) from error
        _say_what(arguments.out, run)

    leave_out = lambda text: _say(f"not recorded: {text}")  # noqa: E731
    return watching.Recorder(options, leave_out, advance, write, old)


def _say_what(path: str, run: Any) -> None:
    size = os.path.getsize(path) / 1e6
    _say(f"{path}: {plain_text.counted(len(run.losses), 'step')}, {size:.1f} MB")
    for name, proof in run.proofs.items():
        variables = plain_text.counted(len(proof.start.variables), "variable")
        rule = "" if proof.has_rule else ", without its rule"
        steps = plain_text.counted(len(proof.gradients), "step")
        _say(f"{name}: {proof.record.optimizer}, {variables}, {steps}{rule}")
    if any(run.inputs):
        # The first step also has the start of other variables; steps may have different inputs.
        names = dict.fromkeys(name for each in run.inputs[1:] or run.inputs for name in each)
        _say(f"the file has the inputs of the model: {', '.join(names)}")


def _say(text: str) -> None:
    print(plain_text.printable(f"legacy-opt prove record: {text}", sys.stderr), file=sys.stderr)

"""`legacy-opt prove`: proofs that an implementation of an optimizer computes the same as a rule."""

from __future__ import annotations

import argparse
import importlib
from typing import Any, Dict, TextIO

from .. import plain_text, special_files
from . import prove_record_command, prove_report, prove_resume, run_command, tables, terminal

_SUMMARY = "check that an implementation computes the same as a rule"
_DRAW = """\
Writes a proof: drawn inputs of a training, and what a recorded rule makes of them.
"""
_DRAW_EPILOG = """\
example: legacy-opt prove draw AdamOptimizer --set epsilon=0.001 --out adam.proof

exit codes: 0, success; 2, bad input, and nothing was written
"""
_REPLAY = """\
Trains an implementation with the inputs of a proof, and compares; or a script, which computes its
own gradients from the recorded inputs of its model. EQUAL: all values are the same.
ROUNDING: the formula is the same, and some last digits differ. DIFFERS: it is another formula.
"""
_REPLAY_EPILOG = """\
TARGET is torch:MODULE:CLASS, keras:MODULE:CLASS, optax:MODULE:FUNCTION or numpy:MODULE:FUNCTION; in
TensorFlow, tf:MODULE:CLASS (of a v1 optimizer or of Keras) or to_keras:MODULE:CLASS (of a v1
optimizer); or a recorded rule, such as legacy-opt:torch-exact.

A script is trained three times: twice with a start that was moved by one random rounding.

examples:
  legacy-opt prove replay adam.proof --with torch:torch.optim:Adam --map eps=epsilon
  legacy-opt prove replay run.proof -- train.py --batch_size 64

exit codes: 0, EQUAL or ROUNDING; 1, DIFFERS; 2, TARGET cannot be judged, or bad input
"""


def add_command(commands: terminal.Commands):
    """Adds `prove` to the command line."""
    prove = commands.add_parser("prove", help=_SUMMARY, description=_SUMMARY)
    subcommands = prove.add_subparsers(title="commands", dest="step", metavar="COMMAND")
    subcommands.required = True
    parser = terminal.add_parser(subcommands, "draw", "draw a proof", _DRAW, _DRAW_EPILOG, _draw)
    parser.add_argument("rule", metavar="NAME|FILE", help="the name or the record of an optimizer")
    parser.add_argument("--rows", action="store_true", help="draw sparse gradients")
    parser.add_argument("--seed", type=int, default=0, help="of random numbers (default: 0)")
    parser.add_argument("--steps", type=int, default=10, help="training steps (default: 10)")
    terminal.add_list(parser, "--set", "NAME=NUMBER", "a hyperparameter, instead of a drawn one")
    parser.add_argument("--out", metavar="FILE", required=True, help="the file to write")
    parser.add_argument("--overwrite", action="store_true", help="replace FILE if it exists")
    what = "judge by a proof"
    parser = terminal.add_parser(subcommands, "replay", what, _REPLAY, _REPLAY_EPILOG, _replay)
    parser.add_argument("file", metavar="FILE", help="the proof, or a recorded training")
    parser.add_argument("--with", metavar="TARGET", dest="target", help="see below")
    what = "of a recorded training: the name of the optimizer (default: all)"
    parser.add_argument("--optimizer", metavar="NAME", help=what)
    what = "an argument of TARGET: a hyperparameter, several with commas, or a constant"
    terminal.add_list(parser, "--map", "ARGUMENT=SOURCE", what)
    parser.add_argument("--html", metavar="FILE", help="write the report as a page, too")
    parser.add_argument("--overwrite", action="store_true", help="replace this FILE if it exists")
    parser.takes_script = True
    parser.set_defaults(argv=[])
    run_command.add_options(parser)
    prove_record_command.add_command(subcommands)
    prove_resume.add_command(subcommands)


def _draw(arguments: argparse.Namespace, screen: TextIO) -> terminal.Outcome:
    from legacy_opt import proofs, recorded

    special_files.refuse_existing(arguments.out, arguments.overwrite)
    seed, steps, rows = arguments.seed, arguments.steps, arguments.rows
    if steps < 1 or not 0 <= seed < 2**32:
        raise ValueError("--steps must be at least 1, and --seed in [0, 2**32).")
    record = recorded.load(arguments.rule)
    values: Dict[str, Any] = dict(map(terminal.named_number, arguments.set))
    proof = proofs.draw(record, seed, steps, rows, power=True, hyperparameters=values)
    proofs.write(arguments.out, proof)
    shapes = {name: list(array.shape) for name, array in proof.start.variables.items()}
    first, last = proof.hyperparameters[0], proof.hyperparameters[-1]
    facts = {"path": arguments.out, "optimizer": record.optimizer, "variables": shapes}
    facts.update(first_step=first, last_step=last, made=proof.made)
    lines = (
        f"{arguments.out}: {record.optimizer}, {plain_text.counted(steps, 'step')}, seed {seed}",
        f"{'sparse' if rows else 'dense'} gradients: {prove_report.listed(shapes)}",
        f"first step: {prove_report.listed(first)}",
        f"last step: {prove_report.listed(last)}",
        prove_report.power(proof),
    )
    return terminal.Outcome(terminal.SUCCESS, facts, lines)


def _replay(arguments: argparse.Namespace, screen: TextIO) -> terminal.Outcome:
    from legacy_opt import proofs

    if arguments.html:
        special_files.refuse_existing(arguments.html, arguments.overwrite)
    if bool(arguments.target) == bool(arguments.argv):
        raise ValueError("Pass either --with TARGET, or -- and a script.")
    what = arguments.target or arguments.argv[0]
    if arguments.argv or what.partition(":")[0] in ("tf", "to_keras"):
        importlib.import_module("legacy_opt.public")  # its error says how to install TensorFlow
    run = proofs.read_run(arguments.file)
    if arguments.argv:
        from ..old_programs.proving import training_replay

        words = run_command.words_of(arguments)
        with tables.progress("trainings", 3, screen, " training") as advance:
            again, *moved = training_replay.trained(arguments.file, words, advance)
        reports = proofs.compare_runs(run, again, moved)
    else:
        reports = _of_target(arguments, run)
    found = {name: (run.proofs[name], report) for name, report in reports.items()}
    if arguments.html:
        from . import prove_page

        facts = {"file": arguments.file, "implementation": what}
        prove_page.write(arguments.html, facts, found, run.made)
    return prove_report.outcome(what, found)


def _of_target(arguments: argparse.Namespace, run: Any) -> Dict[str, Any]:
    """Returns the reports by names of optimizers."""
    from legacy_opt import proofs
    from legacy_opt.recorded.proofs.reference import with_ends

    text, kinds, chosen, names = arguments.target, None, arguments.optimizer, ", ".join(run.proofs)
    if text.partition(":")[0] in ("tf", "to_keras"):
        from ..in_keras.session_comparison import KINDS as kinds
    for each in arguments.map:
        if not all(each.partition("=")):
            raise ValueError(f"--map takes ARGUMENT=SOURCE, got {each!r}.")
    target = proofs.find(text, dict(each.split("=", 1) for each in arguments.map), kinds)
    if chosen not in (None, *run.proofs):
        raise ValueError(f"--optimizer must be one of {names}, got {chosen!r}.")
    found = {name: proof for name, proof in run.proofs.items() if chosen in (None, name)}
    rules = {proof.record.optimizer for proof in found.values()}
    if len(rules) > 1 and not text.startswith("legacy-opt:"):
        raise ValueError(
            f"{arguments.file} has several optimizers, but {text} is one: pass --optimizer and "
            f"one of {names}."
        )
    for name, proof in found.items():
        if proof.has_bars:  # those of a file from others may be wrong
            found[name] = with_ends(proof, proof.ends)
    return {name: proofs.replay(proof, target) for name, proof in found.items()}

"""`legacy-opt prove resume`: compares the states before a save and after a load."""

from __future__ import annotations

import argparse
from typing import Any, TextIO

from .. import plain_text
from . import terminal

_DESCRIPTION = """\
Compares the state when a training was saved with the state that the resumed program has before its
first step: what was lost, cast, moved, transposed or reset. With recorded steps, the rule trains
from BEFORE and must end in the recorded variables.
"""
_EPILOG = """\
BEFORE and AFTER are a checkpoint of tf.train.Saver or tf.train.Checkpoint, a file of Keras, a file
of PyTorch with a state_dict, a state file, or a recorded training (its last state as BEFORE, its
start as AFTER).

example: legacy-opt prove resume training/model.ckpt-1000 resumed/model.ckpt-1000

exit codes: 0, the states are the same; 1, they differ; 2, they cannot be compared, or bad input
"""
_MOST_LINES = 20


def add_command(subcommands: Any):
    """Adds `prove resume` to the command line."""
    summary = "compare the states around a save and a load"
    parser = terminal.add_parser(subcommands, "resume", summary, _DESCRIPTION, _EPILOG, execute)
    parser.add_argument("before", metavar="BEFORE", help="the state when the training was saved")
    parser.add_argument("after", metavar="AFTER", help="the state that the resumed program has")
    parser.add_argument("--steps", metavar="RUN.proof", help="steps recorded after the load")
    what = "names of variables, {in BEFORE: in AFTER}, as JSON or as a Python dict; null leaves out"
    parser.add_argument("--name-map", metavar="FILE", help=what)


def execute(arguments: argparse.Namespace, screen: TextIO) -> terminal.Outcome:
    """Compares the states and returns an `Outcome`."""
    from legacy_opt import proofs
    from legacy_opt.proofs.states import only_proof

    from ..state.checkpoints import name_maps, training_state

    resumed = proofs.resume(
        training_state.read(arguments.before, False),
        training_state.read(arguments.after, True),
        steps=None if arguments.steps is None else only_proof(arguments.steps),
        name_map=name_maps.read_file(arguments.name_map, "prove resume"),
    )
    code = terminal.MANUAL_WORK if resumed.name == proofs.DIFFERS else terminal.SUCCESS
    facts = dict(resumed._asdict(), verdict=resumed.verdict and str(resumed.verdict))
    facts["findings"] = [finding._asdict() for finding in resumed.findings]
    place = "" if resumed.step is None else f", after step {resumed.step}"
    lines = [f"{resumed.name}: before the first step{place}" if resumed.findings else resumed.name]
    lines += [finding.text for finding in resumed.findings[:_MOST_LINES]]
    more = len(resumed.findings) - _MOST_LINES
    lines += [f"and {plain_text.counted(more, 'more difference')}"] if more > 0 else []
    lines += [f"recorded steps: {resumed.verdict}"] if resumed.verdict else []
    return terminal.Outcome(code, facts, (*lines, *resumed.notes))

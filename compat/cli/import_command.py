"""`legacy-opt import`: writes a checkpoint with the state of a state file."""

from __future__ import annotations

import argparse
from typing import TextIO

from .. import file_endings, special_files
from . import export_command, terminal

_DESCRIPTION = """\
Writes a copy of the checkpoint --like with the values of a state file: what `export` wrote, or what
NumPy or PyTorch saved after more training. The names, dtypes and parts of the tensors are those of
--like. Variables that the rule does not train keep their values if FILE lacks them.
"""
_EPILOG = """\
example: legacy-opt import state.npz --like training/model.ckpt-1000 --out new/model.ckpt-1500

exit codes: 0, success; 2, bad input: a file is damaged, or both do not have the same rule and
variables, and nothing was written
"""


def add_command(commands: terminal.Commands):
    """Adds `import` to the command line."""
    parser = terminal.add_parser(
        commands, "import", "write a checkpoint from a state file", _DESCRIPTION, _EPILOG, execute
    )
    parser.add_argument("file", metavar="FILE", help="the .npz or .safetensors file")
    parser.add_argument("--like", metavar="CKPT", required=True, help="the checkpoint to copy")
    parser.add_argument(
        "--name-map", metavar="FILE.json", help="the name map with which the file was exported"
    )
    parser.add_argument("--out", metavar="CKPT", required=True, help="the checkpoint to write")
    parser.add_argument("--overwrite", action="store_true", help="replace --out if it exists")


def execute(arguments: argparse.Namespace, screen: TextIO) -> terminal.Outcome:
    """Imports the state and returns an `Outcome`."""
    from ..state.checkpoints import name_maps, state_transfer

    destination = file_endings.prefix_of(arguments.out)
    special_files.refuse_existing(destination, arguments.overwrite)
    name_map = name_maps.read_file(arguments.name_map, "import")
    state, plan, kept = state_transfer.import_state(
        arguments.file, arguments.like, destination, arguments.overwrite, name_map
    )
    facts = {"kept": list(kept)}
    lines = [f"as in --like: {name}" for name in kept]
    return export_command.outcome(destination, state.record, state.global_step, plan, facts, lines)

"""`legacy-opt export`: writes the state in a checkpoint to a state file of a recorded rule."""

from __future__ import annotations

import argparse
import importlib
import os
import tempfile
from typing import Any, Dict, Iterable, Optional, TextIO

from .. import plain_text, special_files
from . import convert_command, terminal

_DESCRIPTION = """\
Writes the variables, slots, shared variables and global step of a checkpoint to a state file, with
which NumPy or PyTorch go on training by a recorded rule. TensorFlow need not be installed. The
slots of partitioned variables are joined.
"""
_EPILOG = """\
CKPT is a checkpoint of tf.compat.v1.train.Saver in V2 format: a prefix such as model.ckpt-1000, or
a folder (its latest checkpoint). With --optimizer or --model, it may also be a checkpoint of
tf.train.Checkpoint or a Keras file; TensorFlow then converts it as `legacy-opt convert` does.

examples:
  legacy-opt export training/model.ckpt-1000 --rule adam.json --out state.npz
  legacy-opt export model.keras --model training:build --rule adam.json --out state.npz
  legacy-opt export training/model.ckpt-1000 --rule adam.json --to torch-own --out adam.pt

exit codes: 0, success; 1, some of the state does not fit the model or optimizer, and nothing was
written; 2, bad input: the checkpoint is damaged or belongs to another rule, and nothing was written
"""


# Values of --to: the readers of state files, and the modules that write for other optimizers.
_STATE_FILES = ("npz", "torch", "optax", "keras")
_OWN = {"torch-own": "torch_own", "optax-own": "optax_own"}


def add_command(commands: terminal.Commands):
    """Adds `export` to the command line."""
    summary = "write a training's state for NumPy or PyTorch"
    parser = terminal.add_parser(commands, "export", summary, _DESCRIPTION, _EPILOG, execute)
    parser.add_argument("checkpoint", metavar="CKPT", help="the checkpoint")
    parser.add_argument(
        "--rule",
        metavar="NAME|FILE",
        required=True,
        help="the record of the optimizer: a file, or the name of a recorded optimizer",
    )
    parser.add_argument(
        "--name-map",
        metavar="FILE.json",
        help="new names of variables, {old: new}, as JSON or as a Python dict; null leaves a "
        "variable out; with --model, from names in Keras to names in FILE",
    )
    for option in convert_command.OF_KERAS:
        parser.add_argument(option, metavar="MODULE:OBJECT", help=convert_command.OF_KERAS[option])
    parser.add_argument(
        "--to",
        choices=[*_STATE_FILES, *_OWN],
        default="npz",
        help="who reads FILE. All targets of recorded rules read the same file, which is the "
        "default; torch-own and optax-own are for the optimizers of PyTorch and optax, where one "
        "is the same up to rounding",
    )
    what = "with torch-own or optax-own: a hyperparameter, if it is not the record's"
    terminal.add_list(parser, "--set", "NAME=NUMBER", what)
    parser.add_argument(
        "--out",
        metavar="FILE",
        required=True,
        help="the file to write: .npz or .safetensors; with torch-own, any name",
    )
    parser.add_argument("--overwrite", action="store_true", help="replace FILE if it exists")


def execute(arguments: argparse.Namespace, screen: TextIO) -> terminal.Outcome:
    """Exports the state and returns an `Outcome`."""
    from legacy_opt import recorded

    from ..state.checkpoints import name_maps

    special_files.refuse_existing(arguments.out, arguments.overwrite)
    name_map = name_maps.read_file(arguments.name_map, "export")
    record = recorded.load(arguments.rule)
    if arguments.optimizer is None and arguments.model is None:
        return _export(arguments, record, arguments.checkpoint, name_map)
    with tempfile.TemporaryDirectory() as folder:
        converted = os.path.join(folder, "model.ckpt")
        outcome = convert_command.execute(_conversion(arguments, converted), screen)
        if outcome.code != terminal.SUCCESS:
            return outcome
        return _export(arguments, record, converted, name_map=None)  # `convert` has applied it


def _conversion(arguments: argparse.Namespace, destination: str) -> argparse.Namespace:
    """Returns the arguments of `legacy-opt convert`."""
    unused = dict(like=None, ignore=None, partial=False, dry_run=False, overwrite=False)
    chosen = dict(vars(arguments), source=arguments.checkpoint, destination=destination, to="v1")
    return argparse.Namespace(**dict(chosen, **unused))


def _export(
    arguments: argparse.Namespace, record: Any, checkpoint: str, name_map: Any
) -> terminal.Outcome:
    from ..state.checkpoints import state_transfer

    module_name = _OWN.get(arguments.to)
    if module_name is None:
        if arguments.set:
            raise ValueError(f"--set has no meaning with --to {arguments.to}.")
        plan, step = state_transfer.export_state(checkpoint, record, arguments.out, name_map)
        return _outcome(arguments, record, plan, step)
    numbers = dict(map(terminal.named_number, arguments.set))
    from legacy_opt.recorded import state_files

    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "state.npz")
        plan, step = state_transfer.export_state(checkpoint, record, path, name_map)
        try:
            module = importlib.import_module("legacy_opt.recorded." + module_name)
        except ModuleNotFoundError as error:
            library = arguments.to.partition("-")[0]
            raise ValueError(
                f"--to {arguments.to} needs {library}: pip install {library}"
            ) from error
        grade = module.write(arguments.out, state_files.read(path), **numbers)
    return _outcome(arguments, record, plan, step, grade)


def _outcome(
    arguments: argparse.Namespace, record: Any, plan: Any, step: Optional[int], grade: Any = None
) -> terminal.Outcome:
    facts = {"not_trained": list(plan.untrained), "left_out": list(plan.left_out)}
    lines = []
    if grade is not None:
        facts["grade"] = grade._asdict()
        lines.append(f"training by {arguments.to}, with dense gradients: {grade}")
    lines += [f"not trained: {name}" for name in plan.untrained]
    lines += [f"left out: {name}" for name in plan.left_out]
    return outcome(arguments.out, record, step, plan, facts, lines)


def outcome(
    path: str,
    record: Any,
    step: Optional[int],
    plan: Any,
    more_facts: Dict[str, Any],
    more_lines: Iterable[str],
) -> terminal.Outcome:
    """Returns the `Outcome` of a state that was written to a file or a checkpoint."""
    facts = {"path": path, "optimizer": record.optimizer, "step": step}
    facts.update(variables=list(plan.trained), **more_facts)
    variables = plain_text.counted(len(plan.trained), "variable")
    line = f"{path}: {record.optimizer}, step {step}, {variables}"
    return terminal.Outcome(terminal.SUCCESS, facts, (line, *more_lines))

"""`legacy-opt export`: writes the state in a checkpoint to a state file of a recorded rule."""

from .. import plain_text, special_files
from . import terminal

_DESCRIPTION = """\
Writes the variables, slots, shared variables and global step of a checkpoint to a state file, with
which NumPy or PyTorch go on training by a recorded rule. TensorFlow need not be installed. The
slots of partitioned variables are joined.
"""
_EPILOG = """\
CKPT is a checkpoint of tf.compat.v1.train.Saver in V2 format: a prefix such as model.ckpt-1000, or
a folder (its latest checkpoint).

example: legacy-opt export training/model.ckpt-1000 --rule adam.json --out state.npz

exit codes: 0, success; 2, bad input: the checkpoint is damaged or belongs to another rule, and
nothing was written
"""


def add_command(commands):
    """Adds `export` to the command line."""
    parser = terminal.add_parser(
        commands, "export", "write a training's state for NumPy or PyTorch", _DESCRIPTION, _EPILOG
    )
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
        "variable out",
    )
    parser.add_argument(
        "--out", metavar="FILE", required=True, help="the .npz or .safetensors file to write"
    )
    parser.add_argument("--overwrite", action="store_true", help="replace FILE if it exists")
    parser.set_defaults(
        run=lambda arguments: terminal.run_command("export", execute, arguments, False)
    )


def execute(arguments, screen):
    """Exports the state and returns an `Outcome`."""
    del screen
    from legacy_opt import recorded

    from ..checkpoints import name_maps, state_transfer

    special_files.refuse_existing(arguments.out, arguments.overwrite)
    name_map = None if arguments.name_map is None else name_maps.read(arguments.name_map)
    if name_map == name_maps.GUESS:
        raise ValueError("--name-map guess has no meaning with export.")
    record = recorded.load(arguments.rule)
    plan, step = state_transfer.export_state(arguments.checkpoint, record, arguments.out, name_map)
    facts = {
        "path": arguments.out,
        "optimizer": record.optimizer,
        "step": step,
        "variables": list(plan.trained),
        "not_trained": list(plan.untrained),
        "left_out": list(plan.left_out),
    }
    lines = [
        f"{arguments.out}: {record.optimizer}, step {step}, "
        f"{plain_text.counted(len(plan.trained), 'variable')}"
    ]
    lines += [f"not trained: {name}" for name in plan.untrained]
    lines += [f"left out: {name}" for name in plan.left_out]
    return terminal.Outcome(terminal.SUCCESS, facts, tuple(lines))

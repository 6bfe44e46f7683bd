"""`legacy-opt inspect`: shows the variables, slot variables and optimizers of a checkpoint."""

from __future__ import annotations

import argparse
from typing import Any, Dict, List, TextIO, Tuple

from .. import plain_text
from . import tables, terminal

_DESCRIPTION = """\
Shows the contents of a checkpoint: its variables, each with its slot variables below it, the
variables that an optimizer has only once for all trained variables, the global step, and the
optimizer that probably made the slot variables. Reads the checkpoint's index, its object graph (if
it has one) and the global step, but no other tensor.
"""
_EPILOG = """\
CKPT is a prefix such as model.ckpt-1000, a folder (its latest checkpoint), or a file in V1 format.

example: legacy-opt inspect training/model.ckpt-1000

exit codes: 0, success; 2, there is no such checkpoint, or it is damaged
"""


def add_command(commands: terminal.Commands):
    """Adds `inspect` to the command line."""
    parser = terminal.add_parser(
        commands, "inspect", "show the contents of a checkpoint", _DESCRIPTION, _EPILOG, execute
    )
    parser.add_argument("checkpoint", metavar="CKPT", help="the checkpoint")


def execute(arguments: argparse.Namespace, screen: TextIO) -> terminal.Outcome:
    """Inspects the checkpoint and returns an `Outcome`."""
    from ..state import checkpoint_contents
    from ..state.checkpoint_files.reader import open_checkpoint

    checkpoint = open_checkpoint(arguments.checkpoint)
    contents = checkpoint_contents.contents(checkpoint)
    facts = as_facts(checkpoint, contents)
    return terminal.Outcome(terminal.SUCCESS, facts, (*_heading(facts), _table(contents)))


def as_facts(checkpoint: Any, contents: Any) -> Dict[str, Any]:
    """Returns `contents`, the `Contents` of a checkpoint, as a JSON-serializable dict."""
    items = list(contents.items())
    step, step_name = None, None
    if contents.step is not None:
        step = int(checkpoint.read(contents.step.stored.names[0]))
        step_name = contents.step.name
    return {
        "path": checkpoint.path,
        "format": checkpoint.format,
        "kind": "name-based" if contents.by_name else "object-based",
        "step": step,
        "step_name": step_name,
        "tensors": sum(len(item.stored.names) for item in items),
        "numbers": sum(item.stored.numbers for item in items),
        "bytes": sum(item.stored.bytes for item in items),
        "optimizers": [guess._asdict() for guess in contents.optimizers],
        "variables": [
            dict(
                _facts_of(variable.item),
                slots=[
                    dict(_facts_of(slot.item), role=slot.role, scope=slot.scope, suffix=slot.suffix)
                    for slot in variable.slots
                ],
            )
            for variable in contents.variables
        ],
        "shared": [_facts_of(item) for item in contents.shared],
        "other": [_facts_of(item) for item in contents.other],
    }


def _facts_of(item: Any) -> Dict[str, Any]:
    return {
        "name": item.name,
        "dtype": item.dtype,
        "shape": None if item.shape is None else list(item.shape),
        "kind": item.kind,
        "pieces": list(item.stored.names),
        "numbers": item.stored.numbers,
        "bytes": item.stored.bytes,
    }


def _heading(facts: Dict[str, Any]) -> List[str]:
    tensors = plain_text.counted(facts["tensors"], "tensor")
    numbers = plain_text.counted(facts["numbers"], "number")
    step = "none" if facts["step"] is None else f"{facts['step']} ({facts['step_name']})"
    lines = [
        f"{facts['path']}: {facts['kind']}, format {facts['format']}",
        f"{tensors}, {numbers}, {plain_text.size(facts['bytes'])}",
        f"step: {step}",
    ]
    of_scope = " in the scope " if facts["kind"] == "name-based" else " of the object "
    for guess in facts["optimizers"]:
        scope = of_scope + guess["scope"] if guess["scope"] else ""
        count = plain_text.counted(guess["variables"], "variable")
        lines.append(f"optimizer: {guess['label']} (slots {guess['name']}{scope}, {count})")
    if not facts["optimizers"]:
        lines.append("optimizer: unknown, because " + _reason(facts))
    return lines + [""]


def _reason(facts: Dict[str, Any]) -> str:
    """Returns why no optimizer was recognised."""
    from ..state.checkpoint_contents import slot_signatures

    names = [each["name"] for each in facts["variables"]]
    slots = [name for name in names if slot_signatures.is_known(name.rpartition("/")[2])]
    if slots:
        return f"the checkpoint lacks the variables of its slots, such as that of {slots[0]}"
    return "no slot variables were recognised (GradientDescent has none)"


def _table(contents: Any) -> tables.Table:
    rows = []
    for variable in contents.variables:
        rows.append(_row("", variable.item, ""))
        rows += [_row("  ", slot.item, slot.role or "?") for slot in variable.slots]
    shared_by = "shared by all" if contents.by_name else "of the optimizer"
    rows += [_row("", item, shared_by) for item in contents.shared]
    if contents.step:
        rows.append(_row("", contents.step, "the step"))
    rows += [_row("", item, "other") for item in contents.other]
    return tables.Table(("variable, slots", "dtype", "shape", ">size", "what it is"), rows)


def _row(indent: str, item: Any, what: str) -> Tuple[str, ...]:
    notes = [what] if what else []
    stored = item.stored
    if item.kind == "parts":
        notes.append(plain_text.counted(len(stored.names), "part"))
    elif item.kind == "of each part":
        notes.append(f"a separate slot for each of {plain_text.counted(len(stored.names), 'part')}")
    elif item.kind == "incomplete":
        notes.append("INCOMPLETE: parts are missing in the checkpoint")
    elif item.kind == "EmbeddingVariable":
        notes.append(f"EmbeddingVariable of DeepRec, {plain_text.counted(item.shape[0], 'row')}")
    shape = "?" if item.shape is None else str(list(item.shape))
    size = plain_text.size(stored.bytes) if stored.bytes or not stored.numbers else "?"
    return (indent + item.name, item.dtype, shape, size, ", ".join(notes))

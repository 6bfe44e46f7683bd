"""`legacy-opt convert`: converts checkpoints between formats, with the optimizer's state."""

from __future__ import annotations

import argparse
import os
from typing import Any, Dict, Iterator, List, Optional, TextIO, Tuple, Union

from legacy_opt.core.shortened import first_few

from .. import file_endings, plain_text, special_files
from . import tables, terminal

_DESCRIPTION = """\
Converts a checkpoint, with the optimizer's state, to the form that --to names. Without --to, the
form is keras if DST ends in .keras, .h5 or .weights.h5, else v1:

  v1                a v1 checkpoint (a checkpoint of tf.compat.v1.train.Saver) in the Saver's V2
                    format. SRC may be in the Saver's V1 format, may contain partitioned
                    variables (x/part_0), may be written by tf.train.Checkpoint (with --optimizer or
                    --model), or may be a Keras file (with --model)
  adagrad-decay-v1  a copy of the v1 checkpoint SRC, with AdagradDecay's decay counts in the shapes
                    that AdagradDecayOptimizer uses
  adagrad-decay-v2  a copy of the v1 checkpoint SRC, with AdagradDecay's decay counts in the shapes
                    that AdagradDecayOptimizerV2 uses
  keras             a Keras file if DST ends in .keras, .h5 or .weights.h5, else a
                    tf.train.Checkpoint with the prefix DST. --model is needed. SRC must be a v1
                    checkpoint; or, if the model is of Keras 3 and was compiled with
                    to_keras(an_optimizer_v2, api="keras3"), what Keras 2 saved with this
                    OptimizerV2: a checkpoint, a SavedModel, or an .h5 file of a whole model
"""
_EPILOG = """\
examples:
  legacy-opt convert old/model.ckpt-1000 new/model.ckpt-1000
  legacy-opt convert keras/ckpt-7 v1/model.ckpt --optimizer training:make_optimizer
  legacy-opt convert training/model.ckpt-1000 model.keras --model training:build

DST is written completely or not at all.
exit codes: 0, all of the state was converted; 1, some of it was not: nothing was written, or with
--partial only what matches; 2, bad input, nothing was written
"""
# Options that name objects of the user's code.
OF_KERAS = {
    "--model": "a function that returns a built Keras model compiled with to_keras(…), or a pair "
    "(model, optimizer); MODULE may be in the current folder",
    "--optimizer": "the v1 optimizer, or a function that returns it; it determines the names of "
    "slots",
}
FORMS = ("v1", "adagrad-decay-v1", "adagrad-decay-v2", "keras")


def add_command(commands: terminal.Commands):
    """Adds `convert` to the command line."""
    parser = terminal.add_parser(
        commands, "convert", "convert a checkpoint to another form", _DESCRIPTION, _EPILOG, execute
    )
    parser.add_argument("source", metavar="SRC", help="the checkpoint, or a Keras file")
    parser.add_argument("destination", metavar="DST", help="the checkpoint or Keras file to write")
    parser.add_argument("--to", choices=FORMS, help="default: keras or v1, by the ending of DST")
    for option, text in OF_KERAS.items():
        parser.add_argument(option, metavar="MODULE:OBJECT", help=text)
    parser.add_argument(
        "--name-map",
        metavar="FILE.json|guess",
        help="new names of variables, {old: new}, as JSON or as a Python dict; with --model, from "
        "names in Keras to names in the v1 checkpoint; null leaves a variable out; guess, with "
        "--model: variables with the same shape and dtype",
    )
    parser.add_argument(
        "--like",
        metavar="CKPT",
        help="with --model: a v1 checkpoint of the graph that will restore DST; names, scopes and "
        "partitions are taken from it",
    )
    parser.add_argument(
        "--ignore",
        metavar="REGEX",
        action="append",
        help="with --to keras: names in SRC that may stay unused (re.match); may be given several "
        "times",
    )
    parser.add_argument(
        "--partial",
        action="store_true",
        help="with --model, or if tf.train.Checkpoint wrote SRC: write the state that matches, "
        "even if some does not",
    )
    parser.add_argument("--overwrite", action="store_true", help="replace DST if it exists")
    parser.add_argument(
        "--dry-run", action="store_true", help="print what would be converted, and write nothing"
    )


def execute(arguments: argparse.Namespace, screen: TextIO) -> terminal.Outcome:
    """Converts the checkpoint and returns an `Outcome`."""
    arguments.destination = file_endings.prefix_of(arguments.destination)
    if arguments.to is None:
        arguments.to = "keras" if _is_keras_file(arguments.destination) else "v1"
    _check(arguments)
    special_files.refuse_existing(arguments.destination, arguments.overwrite)
    from ..state.checkpoints import name_maps
    from ..state.checkpoints.report import CheckpointMismatch

    name_map = None if arguments.name_map is None else name_maps.read(arguments.name_map)
    try:
        if arguments.model is not None:
            from ..state.checkpoints import conversion_through_keras

            report = conversion_through_keras.convert(arguments, name_map)
        else:
            report = _convert_files(arguments, name_map, screen)
    except CheckpointMismatch as mismatch:
        return _outcome(arguments, mismatch.report, str(mismatch).splitlines()[0])
    return _outcome(arguments, report)


def _check(arguments: argparse.Namespace):
    """Raises a ValueError for options that cannot be combined, or for a missing --model."""
    to = arguments.to
    source, destination = arguments.source, arguments.destination
    takes_model = to in ("v1", "keras")
    has_model = takes_model and arguments.model is not None
    _refuse_upper_case(destination)
    if os.path.isfile(source):
        _refuse_upper_case(source)
    if to == "keras" and not has_model:
        raise ValueError(
            f"{destination!r}, a file or checkpoint of Keras, needs --model module:function. The "
            f"function returns the Keras model, compiled with to_keras(…), into which {source!r} "
            "is loaded."
        )
    if to != "keras" and _is_keras_file(destination):
        raise ValueError(
            f"{destination!r} has the ending of a Keras file, but --to {to} writes a v1 "
            "checkpoint. Choose another DST, or pass --to keras."
        )
    if not has_model and _is_keras_file(source) and os.path.exists(source):
        first = "" if takes_model else f"Before --to {to}, convert it with --to v1, and "
        raise ValueError(
            f"{source!r} is a Keras file, and only its model knows the names of the variables: "
            f"{first}pass --model module:function. The function returns the model."
        )
    if arguments.like is not None and to == "v1" and not has_model:
        raise ValueError("--like needs --model.")
    for option, value, has_meaning in (
        ("--like", arguments.like, to == "v1"),
        ("--optimizer", arguments.optimizer, to == "v1" and not has_model),
        ("--ignore", arguments.ignore, to == "keras"),
        ("--name-map", arguments.name_map, takes_model),
        ("--model", arguments.model, takes_model),
    ):
        if value is not None and not has_meaning:
            beside = " and --model" if has_model else ""
            raise ValueError(f"{option} has no meaning with --to {to}{beside}.")
    has_names = has_model and (to == "keras" or arguments.like)  # of a model and a v1 checkpoint
    if arguments.name_map == "guess" and not has_names:
        needed = "--like, a v1 checkpoint with the names" if has_model else "--model"
        raise ValueError(f"--name-map guess needs {needed}.")


def _is_keras_file(path: str) -> bool:
    return bool(file_endings.ending_of(path, file_endings.KERAS))


def _refuse_upper_case(path: str):
    """Raises a ValueError if a path has an ending of Keras' files, but not in lower case."""
    ending = file_endings.ending_of(path, file_endings.KERAS)
    if not path.endswith(ending):
        raise ValueError(
            f"{path!r}: Keras recognises its files by an ending in lower case ({ending}). Rename "
            "the file, or choose another DST."
        )


def _convert_files(arguments: argparse.Namespace, name_map: Any, screen: TextIO) -> Any:
    from ..state.checkpoint_files.reader import open_checkpoint
    from ..state.checkpoints import conversion_by_name

    checkpoint = open_checkpoint(arguments.source)
    moves, report = _plan(arguments, checkpoint, name_map)
    if arguments.dry_run:
        return report
    total = sum(move.nbytes for move in moves)
    with tables.progress("convert", total, screen) as advance:
        conversion_by_name.write(
            moves, checkpoint, arguments.destination, arguments.overwrite, advance
        )
    return report


def _plan(arguments: argparse.Namespace, checkpoint: Any, name_map: Any) -> Tuple[List[Any], Any]:
    """Returns a list of `conversion_by_name.Move` (the tensors to write), and the `Report`."""
    from ..state.checkpoints import conversion_by_name

    if checkpoint.object_graph is not None:
        if arguments.to != "v1":
            raise ValueError(
                f"{checkpoint.path!r} is object-based (a checkpoint of tf.train.Checkpoint). "
                "Convert it to a v1 checkpoint first: --to v1"
            )
        from ..state.checkpoints import conversion_from_objects

        return conversion_from_objects.plan(
            checkpoint, arguments.optimizer, name_map, arguments.partial
        )
    if arguments.optimizer is not None:
        raise ValueError(
            "--optimizer is for checkpoints of tf.train.Checkpoint; the slot variables of "
            f"{checkpoint.path!r} have their v1 names already."
        )
    if arguments.partial:
        raise ValueError(
            f"--partial has no meaning here: without --model, all tensors of {checkpoint.path!r} "
            "are converted, or none."
        )
    if arguments.to == "v1":
        moves = conversion_by_name.to_saver(checkpoint, name_map)
    else:
        layout = arguments.to[-2:].upper()  # V1 or V2
        moves = conversion_by_name.to_decay_layout(checkpoint, layout)
    used = {name for move in moves for name in move.sources}
    left_out = [name for name in checkpoint.tensors if name not in used]
    notes = ["left out by the name map: " + name for name in left_out]
    return moves, conversion_by_name.report(moves, notes)


def _outcome(
    arguments: argparse.Namespace, report: Any, mismatch: Optional[str] = None
) -> terminal.Outcome:
    """Returns the `Outcome`; `mismatch` is why nothing was written, or None."""
    is_complete = mismatch is None and report.complete
    facts = {
        "source": arguments.source,
        "destination": arguments.destination,
        "to": arguments.to,
        "written": mismatch is None and not arguments.dry_run,
        "complete": is_complete,
        "error": mismatch,
        "transferred": [_facts_of(each) for each in report.transferred],
        "left_in_source": [_facts_of(each) for each in report.left_in_checkpoint],
        "missing_in_source": [_facts_of(each) for each in report.left_in_model],
        "notes": list(report.notes),
    }
    code = terminal.SUCCESS if is_complete else terminal.MANUAL_WORK
    return terminal.Outcome(code, facts, tuple(_blocks(arguments, report, mismatch)))


def _facts_of(item: Any) -> Dict[str, Any]:
    return dict(
        item._asdict(),
        dtype=None if item.dtype is None else item.dtype.name,
        shape=None if item.shape is None else list(item.shape),
    )


def _blocks(
    arguments: argparse.Namespace, report: Any, mismatch: Optional[str]
) -> Iterator[Union[str, tables.Table]]:
    if report.transferred and mismatch is None:
        rows = [
            (each.source, each.target, each.dtype.name, str(list(each.shape)), each.note)
            for each in report.transferred
        ]
        yield tables.Table(("from", "to", "dtype", "shape", "note"), rows)
    yield from report.notes
    for heading, leftovers in (
        ("unused in the source", report.left_in_checkpoint),
        ("not found in the source", report.left_in_model),
    ):
        if leftovers:
            rows = []
            for each in leftovers:
                dtype = each.dtype.name if each.dtype else "?"
                shape = "?" if each.shape is None else str(list(each.shape))
                rows.append((each.name, dtype, shape, each.why))
            if mismatch is not None:
                rows = first_few(rows, lambda count: (f"… and {count} more: --json", "", "", ""))
            yield tables.Table((heading, "dtype", "shape", "why"), rows)
    if mismatch is None:
        count = plain_text.counted(len(report.transferred), "tensor")
        done = "would be written" if arguments.dry_run else "written"
        note = "" if report.complete else "; not all of the state"
        yield f"{done}: {arguments.destination}, {count}{note}"
    else:
        yield mismatch
        yield "Nothing was written."

"""Name-based v1 checkpoints into a Keras model and its bridged optimizer, and back."""

from __future__ import annotations

import collections.abc
import re
from typing import Iterable, Optional

from legacy_opt.core.types import KerasOptimizer, ModelOrVariables, NameMap, Path

from ..checkpoint_contents import deeprec_embeddings
from ..checkpoint_files import CheckpointError, CheckpointWriter, open_checkpoint
from ..checkpoint_files.paths import as_text
from ..plain_text import counted
from . import hints, matching
from .keras_state import STEP, KerasState
from .report import CheckpointMismatch, Leftover, Report, Transfer

_NOT_ASKED_FOR = "nothing here asks for it"


def load_v1_checkpoint(
    path: Path,
    model_or_variables: ModelOrVariables,
    optimizer: Optional[KerasOptimizer],
    name_map: Optional[NameMap] = None,
    strict: bool = True,
    ignore: Iterable[str] = (),
) -> Report:
    """Loads a checkpoint of a TF1 graph into Keras variables and the state of their optimizer.

    The checkpoint was written by `tf.compat.v1.train.Saver` (so by a Session, a
    MonitoredTrainingSession or an Estimator) of a graph that was trained with the v1 optimizer that
    `optimizer` was made of. Variables, slots, shared variables (Adam's powers of beta) and the
    global step come over, so the next steps equal, bit for bit, those of a Session of this
    TensorFlow that has restored the checkpoint.

    A scope before the slots' or the shared variables' names is found out
    (``OptimizeLoss/dense/kernel/Adam``). Partitioned variables are joined, whether they were saved
    whole or by parts (``x/part_0``). AdagradDecay's counts are brought into the layout of
    `optimizer`.

    Args:
      path: the checkpoint: what `Saver.save` returned, or the folder of which to take the latest.
        The V1 format is read, too.
      model_or_variables: a Keras model that is built, a list of variables, or a dict from names in
        the checkpoint to variables.
      optimizer: an optimizer made by `to_keras`; None loads the variables alone.
      name_map: a dict from names of variables here (Keras 3's `variable.path`, else `variable.name`
        without ":0") to names in the checkpoint, or a function from one to the other; None for a
        variable leaves it as it is. The dict may also map the names that shared variables
        ("beta1_power": "beta1_power_1"), slots ("dense/kernel/Adam": …) and the step
        ("global_step": …) have in a graph.
      strict: whether all here must be found in the checkpoint, and all of that be asked for. If
        not, what fits is loaded.
      ignore: a list of regular expressions for names in the checkpoint that may be left over, each
        to match from the beginning (`re.match`).

    Returns:
      A `Report` of what went where.

    Raises:
      CheckpointError: there is no such checkpoint, it is damaged, or it is written anew meanwhile.
      CheckpointMismatch: it does not fit, and `strict` is true. Its `report` tells all of it.
      TypeError: an argument is of the wrong kind.
      ValueError: two variables have the same name, or the optimizer trains other variables.
      In all these cases nothing has been changed, unless the checkpoint is written anew in the
        middle of it: the message tells.
    """
    as_text(path, order="load_v1_checkpoint(path, model_or_variables, optimizer)")
    ignore = _patterns(ignore)
    checkpoint = _open_name_based(path)
    state = KerasState(model_or_variables, optimizer, name_map)
    matches, misfits = matching.match(state.parts, checkpoint.tensors)
    left_in_model = [_leftover(misfit) for misfit in _that_matter(misfits, state)]
    report = Report(
        tuple(_loaded(found) for found in matches),
        tuple(_left(checkpoint.tensors, matches, ignore)),
        tuple(left_in_model),
        tuple(_notes(misfits, state)) + tuple(hints.hints(checkpoint, state, matches, misfits)),
    )
    if strict and not report.complete:
        raise CheckpointMismatch(
            f"The checkpoint {checkpoint.path!r} does not fit, so nothing was loaded. Tell "
            "names with name_map, allow leftovers in the checkpoint with ignore=[…], or pass "
            f"strict=False to load what fits ({counted(len(matches), 'tensor')}).",
            report,
        )
    for found in matches:  # all is read before anything is assigned: it may be damaged
        _read(found, checkpoint, report)
    state.build()
    for number, found in enumerate(matches):
        try:
            state.assign(found.part, _read(found, checkpoint, report))
        except CheckpointError as error:  # it has changed just now
            raise CheckpointError(
                f"{error} {number} of {len(matches)} tensors had been loaded by then: load a "
                "checkpoint again before you go on."
            ) from error
    state.begin_anew()
    return report


def save_v1_checkpoint(
    path: Path,
    model_or_variables: ModelOrVariables,
    optimizer: Optional[KerasOptimizer],
    name_map: Optional[NameMap] = None,
    like: Optional[Path] = None,
    overwrite: bool = False,
) -> Report:
    """Writes a Keras model and its optimizer's state as a checkpoint that a TF1 graph restores.

    It holds what `tf.compat.v1.train.Saver` would save of a graph with these variables that is
    trained with the v1 optimizer which `optimizer` was made of, in the V2 format. The folder's
    `checkpoint` file then names it as the latest, as after `Saver.save`.

    Args:
      path: where to write it, as "folder/model.ckpt-1000".
      model_or_variables: as for `load_v1_checkpoint`.
      optimizer: as for `load_v1_checkpoint`.
      name_map: as for `load_v1_checkpoint`.
      like: a checkpoint of the graph that is to restore this one. Its scopes, parts, dtypes and
        layouts are followed, and what it holds besides is copied.
      overwrite: whether a checkpoint at `path` may be replaced.

    Returns:
      A `Report` of what went where.

    Raises:
      CheckpointError: the destination exists, or `like` is no checkpoint.
      CheckpointMismatch: `like` has no place for some of the model or its optimizer.
      TypeError: an argument is of the wrong kind.
      ValueError: two variables have the same name, or the optimizer trains other variables.
      In all these cases nothing has been written.
    """
    as_text(path, order="save_v1_checkpoint(path, model_or_variables, optimizer)")
    if like is not None:
        as_text(like, "like")
    state = KerasState(model_or_variables, optimizer, name_map)
    original = None if like is None else _open_name_based(like)
    if original is None:
        matches, misfits, others = [matching.as_named(part) for part in state.parts], [], ()
    else:
        matches, misfits = matching.match(state.parts, original.tensors)
        others = _unclaimed(original.tensors, matches)
    missing = [misfit for misfit in misfits if misfit.part.kind != STEP]
    report = Report(
        tuple(_saved(found) for found in matches)
        + tuple(
            Transfer(original.path, name, info.shape, info.dtype, "copied")
            for name, info in ((name, original.tensors[name]) for name in others)
        ),
        (),
        tuple(_leftover(misfit) for misfit in misfits),
    )
    if missing:
        raise CheckpointMismatch(
            f"The checkpoint {original.path!r}, which is to be followed, has no place for "
            "some of the model or its optimizer, so nothing was written. Tell names with "
            "name_map.",
            report,
        )
    state.build()
    with CheckpointWriter(path, overwrite=overwrite) as writer:
        for found in matches:
            for name, array, part in _split(found, state.value(found.part), report):
                writer.add(name, array, part)
        for name in others:
            writer.copy(name, original)
    return report


def _open_name_based(path):
    checkpoint = open_checkpoint(path)
    if checkpoint.object_graph is not None:
        raise ValueError(
            f"{checkpoint.path!r} is an object-based checkpoint, as tf.train.Checkpoint and "
            "Keras 2 write them, not one of a v1 Saver. Restore it with tf.train.Checkpoint "
            "or load_weights, or make a v1 checkpoint of it: legacy-opt convert SRC DST --to "
            "v1"
        )
    return checkpoint


def _patterns(ignore):
    if isinstance(ignore, str) or not isinstance(ignore, collections.abc.Iterable):
        raise TypeError(f"ignore must be a list of regular expressions, got {ignore!r}.")
    patterns = []
    for each in ignore:
        try:
            patterns.append(re.compile(each))
        except (re.error, TypeError) as error:
            raise ValueError(f"ignore: {each!r} is no regular expression: {error}") from error
    return patterns


def _that_matter(misfits, state):
    """Leaves out a missing step where nothing here goes by it."""
    return [each for each in misfits if each.part.kind != STEP or each.names or state.needs_step]


def _notes(misfits, state):
    steps = [each for each in misfits if each.part.kind == STEP]
    if steps and not state.needs_step:
        yield f"The checkpoint has no step ({steps[0].why}), so iterations stay as they are."


def _read(found, checkpoint, report):
    try:
        return found.read(checkpoint)
    except CheckpointError:
        raise
    except ValueError as error:
        raise _does_not_go(found, error, report, "loaded") from error


def _split(found, value, report):
    try:
        return list(found.split(value))
    except ValueError as error:
        raise _does_not_go(found, error, report, "written") from error


def _does_not_go(found, error, report, done):
    reason = "%s does not fit %s: %s. Nothing was %s."
    where = ", ".join(found.names)
    return CheckpointMismatch(reason % (found.part.label, where, error, done), report)


def _loaded(found):
    part = found.part
    return Transfer(_tensors(found), part.label, part.shape, part.dtype, found.note)


def _saved(found):
    info = found.infos[0]
    shape = found.part.shape if len(found.names) > 1 else info.shape
    return Transfer(found.part.label, _tensors(found), shape, info.dtype, found.note)


def _tensors(found):
    names = found.names
    return names[0] if len(names) == 1 else f"{names[0]} … {names[-1]}"


def _leftover(misfit):
    return Leftover(misfit.part.label, misfit.part.shape, misfit.part.dtype, misfit.why)


def _unclaimed(tensors, matches):
    """Returns the names of a checkpoint's tensors that nothing has asked for."""
    claimed = {name for found in matches for name in found.names}
    return [name for name in tensors if name not in claimed]


def _left(tensors, matches, ignore):
    """Returns `Leftover`s for the tensors that nothing has asked for, and that count."""
    names = _unclaimed(tensors, matches)
    names = [name for name in names if not any(each.match(name) for each in ignore)]
    tables = deeprec_embeddings.embedding_variables(names)
    table_of = {name: table for table, pieces in tables.items() for name in pieces}
    result = [Leftover(table, None, None, deeprec_embeddings.WHY) for table in tables]
    for name in names:
        if name not in table_of:
            result.append(Leftover(name, tensors[name].shape, tensors[name].dtype, _NOT_ASKED_FOR))
    return result

"""Loads v1 checkpoints into Keras, and saves the state of Keras as v1 checkpoints."""

from __future__ import annotations

import collections.abc
import contextlib
import re
from typing import Dict, Iterable, Iterator, List, Optional, Pattern, Sequence, Tuple

from legacy_opt.core.types import KerasOptimizer, ModelOrVariables, NameMap, Path

from ...plain_text import counted
from ..checkpoint_contents import deeprec_embeddings
from ..checkpoint_contents.stored import new_tensor
from ..checkpoint_files.errors import CheckpointError
from ..checkpoint_files.paths import as_text
from ..checkpoint_files.reader import Checkpoint, open_checkpoint
from ..checkpoint_files.tensor_info import Infos
from ..checkpoint_files.writer import CheckpointWriter
from . import hints, matching
from .keras_state import STEP, KerasState, reset_derived_state
from .matching import Match, Misfit
from .report import CheckpointMismatch, Leftover, Report, first_and_last, leftover, transfer

_NO_COUNTERPART = "nothing in the model or its optimizer matches it"


def load_v1_checkpoint(
    path: Path,
    model_or_variables: ModelOrVariables,
    optimizer: Optional[KerasOptimizer],
    name_map: Optional[NameMap] = None,
    strict: bool = True,
    ignore: Iterable[str] = (),
) -> Report:
    """Loads a checkpoint of a TF1 graph into Keras variables and the state of their optimizer.

    The checkpoint must be from `tf.compat.v1.train.Saver` (a Session, a MonitoredTrainingSession
    or an Estimator). Its graph must have been trained with the v1 optimizer from which `to_keras`
    made `optimizer`. Variables, slots, shared variables (such as Adam's powers of beta) and the
    global step are loaded. The next training steps then give the same values, bit for bit, as in a
    Session that restores the checkpoint with the installed TensorFlow.

    A scope before the names of slots or shared variables (``OptimizeLoss/dense/kernel/Adam``) is
    detected. Partitioned variables are joined, whether they were saved as one tensor or in parts
    (``x/part_0``). AdagradDecay's counts are converted to the layout of `optimizer`.

    Args:
      path: the path that `Saver.save` returned, or a folder, to load the latest checkpoint in it.
        The V1 format can be read, too.
      model_or_variables: a built Keras model, a list of variables, or a dict from names in the
        checkpoint to variables.
      optimizer: an optimizer made by `to_keras`; None loads the variables alone.
      name_map: a dict from names of variables in Keras (`variable.path` in Keras 3, otherwise
        `variable.name` without ":0") to names in the checkpoint, or a function from Keras names to
        names in the checkpoint. A variable that is mapped to None is not loaded. The dict may also
        map the default v1 names of shared variables ("beta1_power": "beta1_power_1"), slots
        ("dense/kernel/Adam": …) and the global step ("global_step": …).
      strict: whether to raise an error if a variable or slot is missing in the checkpoint, or a
        tensor of the checkpoint has no counterpart in Keras. If false, the tensors that fit are
        loaded.
      ignore: a list of regular expressions. Tensors whose names begin with a match (`re.match`)
        need no counterpart in Keras.

    Returns:
      A `Report` of the tensors that were loaded, and of all leftovers.

    Raises:
      CheckpointError: the checkpoint does not exist, is damaged, or is overwritten while it is
        read.
      CheckpointMismatch: the checkpoint does not fit, and `strict` is true; or the parts of a
        tensor cannot be joined; or a number is too large for the dtype in Keras. The error's
        `report` lists every leftover.
      TypeError: an argument is of the wrong type.
      ValueError: two variables have the same name, the optimizer has slots for variables that are
        not among `model_or_variables`, or the checkpoint is object-based.
      In all these cases nothing has been changed, with one exception: if the checkpoint is
        overwritten while its tensors are assigned, some tensors have been loaded. The error's
        message contains their number.
    """
    as_text(path, signature="load_v1_checkpoint(path, model_or_variables, optimizer)")
    patterns = _patterns(ignore)
    checkpoint = _open_name_based(path)
    state = KerasState(model_or_variables, optimizer, name_map)
    matches, misfits = matching.match(state.tensors, checkpoint.tensors, patterns)
    report = Report(
        transferred=tuple(
            transfer(first_and_last(each.stored.names), each.tensor.label, each.tensor, each.note)
            for each in matches
        ),
        left_in_checkpoint=_leftovers_in_checkpoint(checkpoint.tensors, matches, patterns),
        left_in_model=_leftovers(_relevant_misfits(misfits, state)),
        notes=(*hints.hints(checkpoint, state, matches, misfits), *_notes(misfits, state)),
    )
    if strict and not report.complete:
        raise CheckpointMismatch(
            f"The checkpoint {checkpoint.path!r} does not fit, so nothing was loaded. Map "
            "names with name_map, allow leftovers in the checkpoint with ignore=[…], or pass "
            f"strict=False to load what fits ({counted(len(matches), 'tensor')}).",
            report,
        )
    for match in matches:  # first verify all tensors, because the last tensor may be damaged
        with _value_errors(match, report, "loaded"):
            match.verify(checkpoint)
    state.build()
    for number, match in enumerate(matches):
        try:
            with _value_errors(match, report, "loaded"):
                value = match.read(checkpoint)
        except CheckpointError as error:  # the checkpoint was overwritten after it was verified
            raise CheckpointError(
                f"{error} {number} of {len(matches)} tensors had been loaded by then: load a "
                "checkpoint again before you continue."
            ) from error
        state.assign(match.tensor, value)
    reset_derived_state(optimizer)
    return report


def guess_name_map(
    path: Path, model_or_variables: ModelOrVariables, optimizer: Optional[KerasOptimizer]
) -> Tuple[Dict[str, str], bool]:
    """Guesses the name_map that the error of `load_v1_checkpoint` suggests.

    Returns a dict, which is empty if all names fit, or if nothing can be guessed; and whether it
    lacks variables that could be mapped in several ways.
    """
    checkpoint = _open_name_based(path)
    state = KerasState(model_or_variables, optimizer)
    return hints.guess(checkpoint, state, *matching.match(state.tensors, checkpoint.tensors))


def save_v1_checkpoint(
    path: Path,
    model_or_variables: ModelOrVariables,
    optimizer: Optional[KerasOptimizer],
    name_map: Optional[NameMap] = None,
    like: Optional[Path] = None,
    overwrite: bool = False,
) -> Report:
    """Writes a Keras model and its optimizer's state as a checkpoint that a TF1 graph can restore.

    The checkpoint is in V2 format. It contains the tensors that `tf.compat.v1.train.Saver` would
    save for a graph with these variables and the v1 optimizer from which `to_keras` made
    `optimizer`. The file `checkpoint` in the same folder names the new checkpoint as the latest,
    as after `Saver.save`.

    Args:
      path: the prefix of the new checkpoint, such as "folder/model.ckpt-1000".
      model_or_variables: see `load_v1_checkpoint`.
      optimizer: see `load_v1_checkpoint`.
      name_map: see `load_v1_checkpoint`.
      like: an old checkpoint of the graph that will restore the new checkpoint. The new checkpoint
        gets the scopes, parts, dtypes and layouts of the old checkpoint. Tensors that Keras does
        not have are copied from the old checkpoint.
      overwrite: whether a checkpoint at `path` may be replaced.

    Returns:
      A `Report` of the tensors that were written.

    Raises:
      CheckpointError: the destination exists, or `like` is not a checkpoint.
      CheckpointMismatch: `like` lacks some tensors of the model or its optimizer, or a number is
        too large for the dtype in `like`.
      TypeError: an argument is of the wrong type.
      ValueError: two variables have the same name, the optimizer has slots for variables that are
        not among `model_or_variables`, or `like` is object-based.
      In all these cases nothing has been written.
    """
    as_text(path, signature="save_v1_checkpoint(path, model_or_variables, optimizer)")
    if like is not None:
        as_text(like, "like")
    state = KerasState(model_or_variables, optimizer, name_map)
    original = None if like is None else _open_name_based(like)
    if original is None:
        matches = [Match(x, new_tensor(x.name, x.dtype, x.shape)) for x in state.tensors]
        misfits, copied_names = [], []
    else:
        matches, misfits = matching.match(state.tensors, original.tensors)
        copied_names = _unclaimed(original.tensors, matches)
    missing = [misfit for misfit in misfits if misfit.tensor.kind != STEP]
    written = [
        transfer(each.tensor.label, first_and_last(each.stored.names), each.stored, each.note)
        for each in matches
    ]
    for name in copied_names:
        written.append(transfer(original.path, name, original.tensors[name], "copied"))
    report = Report(tuple(written), left_in_checkpoint=(), left_in_model=_leftovers(misfits))
    if missing:
        raise CheckpointMismatch(
            f"The checkpoint {original.path!r}, passed as like, lacks some tensors of the model "
            "or its optimizer, so nothing was written. Map names with name_map.",
            report,
        )
    state.build()
    with CheckpointWriter(path, overwrite=overwrite) as writer:
        for match in matches:
            with _value_errors(match, report, "written"):
                pieces = list(match.split(state.value(match.tensor)))
            for piece in pieces:
                writer.add(*piece)
        if original is not None:
            for name in copied_names:
                writer.copy(name, original)
    return report


def _open_name_based(path: Path) -> Checkpoint:
    checkpoint = open_checkpoint(path)
    if checkpoint.object_graph is not None:
        raise ValueError(
            f"{checkpoint.path!r} is an object-based checkpoint (of tf.train.Checkpoint or Keras "
            "2), not a checkpoint of a v1 Saver. Restore it with tf.train.Checkpoint or "
            "load_weights, or convert it to a v1 checkpoint: legacy-opt convert SRC DST --to v1"
        )
    return checkpoint


def _patterns(ignore: Iterable[str]) -> List[Pattern[str]]:
    if isinstance(ignore, str) or not isinstance(ignore, collections.abc.Iterable):
        raise TypeError(f"ignore must be a list of regular expressions, got {ignore!r}.")
    patterns = []
    for each in ignore:
        try:
            patterns.append(re.compile(each))
        except (re.error, TypeError) as error:
            raise ValueError(f"ignore: {each!r} is not a regular expression: {error}") from error
    return patterns


def _relevant_misfits(misfits: Iterable[Misfit], state: KerasState) -> List[Misfit]:
    """Returns the misfits, but omits a missing global step if the next updates do not need it."""
    return [each for each in misfits if each.tensor.kind != STEP or each.names or state.needs_step]


def _notes(misfits: Iterable[Misfit], state: KerasState) -> Iterator[str]:
    for each in misfits:
        if each.tensor.kind == STEP and not state.needs_step:
            yield f"The checkpoint has no global step ({each.why}), so iterations were not changed."


@contextlib.contextmanager
def _value_errors(match: Match, report: Report, verb: str) -> Iterator[None]:
    """A context in which a ValueError becomes a CheckpointMismatch that names the tensors."""
    try:
        yield
    except CheckpointError:
        raise
    except ValueError as error:
        raise CheckpointMismatch(
            f"{match.tensor.label} does not fit {', '.join(match.stored.names)}: {error}. "
            f"Nothing was {verb}.",
            report,
        ) from error


def _leftovers(misfits: Iterable[Misfit]) -> Tuple[Leftover, ...]:
    return tuple(leftover(each.tensor.label, each.tensor, each.why) for each in misfits)


def _unclaimed(tensors: Iterable[str], matches: Iterable[Match]) -> List[str]:
    """Returns the names of a checkpoint's tensors that are in none of the matches."""
    claimed = {name for match in matches for name in match.stored.names}
    return [name for name in tensors if name not in claimed]


def _leftovers_in_checkpoint(
    tensors: Infos, matches: Iterable[Match], ignore: Sequence[Pattern[str]]
) -> Tuple[Leftover, ...]:
    """Returns a `Leftover` for each tensor that is in none of the matches and is not ignored."""
    names = _unclaimed(tensors, matches)
    names = [name for name in names if not any(each.match(name) for each in ignore)]
    tables = deeprec_embeddings.embedding_variables(names)
    pieces = {name for names_of_table in tables.values() for name in names_of_table}
    left = [Leftover(table, None, None, deeprec_embeddings.WHY) for table in tables]
    left += [leftover(each, tensors[each], _NO_COUNTERPART) for each in names if each not in pieces]
    return tuple(left)

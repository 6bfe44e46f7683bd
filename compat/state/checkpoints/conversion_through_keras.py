"""Converts checkpoints to Keras files or object-based checkpoints, and back to v1 checkpoints.

The state is loaded into a Keras model, which the user's code builds, and saved from this model.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from argparse import Namespace
from types import SimpleNamespace
from typing import Any, NamedTuple, Optional

import numpy as np
import tensorflow as tf

from legacy_opt import durable_files, versions
from legacy_opt.core.types import KerasModel, KerasOptimizer

from ... import file_endings, messages, special_files
from ...plain_text import counted
from .. import user_objects
from ..checkpoint_contents import keras_2_state
from ..checkpoint_contents.object_based import STEP_NAMES
from ..checkpoint_files import keras_files, paths
from ..checkpoint_files.errors import CheckpointError
from ..checkpoint_files.file_watch import Watch
from ..checkpoint_files.object_graph import SLOT_VARIABLES, SavedOptimizer
from ..checkpoint_files.reader import Checkpoint, open_checkpoint
from ..checkpoint_files.tensor_info import is_integer
from ..checkpoint_files.working_folder import WorkingFolder
from . import conversion_from_objects, object_checkpoint
from .conversion_from_objects import OptimizerConversion
from .keras_state import VARIABLE, KerasState, is_from_optimizer_v2
from .name_maps import GUESS, as_text
from .optimizer_v2_checkpoint import load_optimizer_v2
from .report import CheckpointMismatch, Leftover, Report, leftover
from .v1_checkpoint import guess_name_map, load_v1_checkpoint, save_v1_checkpoint


def convert(arguments: Namespace, name_map: Any) -> Report:
    """Converts a checkpoint to a Keras file or an object-based checkpoint, or back to v1.

    The source is a v1 checkpoint; or what Keras 2 saved with an OptimizerV2, if the model is of
    Keras 3 and was compiled with an optimizer that `to_keras` made from this OptimizerV2.

    `arguments` are those of `legacy-opt convert`, and `name_map` that of `load_v1_checkpoint`; or
    `GUESS`, which guesses it from the shapes in the v1 checkpoint: the source, or `like`. The notes
    of the report have the guessed name map. State that does not fit raises a CheckpointMismatch.
    """
    if arguments.to == "keras":
        _check_source(arguments.source)
        made = _made(arguments.model)
        if is_from_optimizer_v2(made.optimizer):
            return _save(made, arguments, _load_optimizer_v2(made, arguments, name_map))
        chosen = _ChosenMap(name_map, arguments.source, made)
        report = _save(made, arguments, _load_v1(made, arguments, chosen))
    else:
        made = _made(arguments.model)
        _load(arguments.source, made)
        chosen = _ChosenMap(name_map, arguments.like, made)
        report = _save_v1(made, arguments, chosen)
    return chosen.noted(report)


class _Made(NamedTuple):
    """What the user's function has made."""

    model: KerasModel
    optimizer: Optional[KerasOptimizer]


class _ChosenMap:
    """The user's `name_map`, or a guessed one if the user passes `GUESS`.

    `advice` is a sentence for errors, which says how to map further names.
    """

    def __init__(self, name_map: Any, v1_path: str, made: _Made) -> None:
        self.name_map, self._notes = name_map, ()
        self.advice = "Map names with --name-map (a file, or guess)"
        if name_map == GUESS:
            self.name_map, unclear = guess_name_map(v1_path, *made)
            self._notes = (f"the name map, guessed by shapes and dtypes: {as_text(self.name_map)}",)
            result = "is not enough" if self.name_map else "finds nothing"
            why = " (several variables could be meant)" if unclear else ""
            self.advice = f"--name-map guess {result}{why}: map names with --name-map FILE.json"

    def noted(self, report: Report) -> Report:
        """Returns a report with the guessed name map among its notes."""
        return report._replace(notes=report.notes + self._notes)


def _check_source(path: str) -> None:
    """Raises errors for a missing or damaged source before the slow construction of the model."""
    if file_endings.ending_of(path, file_endings.KERAS) and os.path.isfile(path):
        keras_2_state.saved_state(path)
    else:
        open_checkpoint(paths.in_saved_model(path))


def _load_optimizer_v2(made: _Made, arguments: Namespace, name_map: Any) -> Report:
    for option, value in (("--partial", arguments.partial), ("--ignore", arguments.ignore)):
        if value:
            raise ValueError(f"{option} has no meaning: an OptimizerV2 is loaded completely.")
    if name_map == GUESS:
        raise ValueError(
            "--name-map guess is for v1 checkpoints. Without --name-map, the error message has a "
            "guess for a file: --name-map FILE.json."
        )
    try:
        return load_optimizer_v2(arguments.source, *made, name_map)
    except CheckpointMismatch as mismatch:
        raise CheckpointMismatch(
            f"{arguments.source!r} does not fit the model of {arguments.model} and its "
            "OptimizerV2. Map names of variables with --name-map FILE.json.",
            mismatch.report,
        ) from mismatch


def _load_v1(made: _Made, arguments: Namespace, chosen: _ChosenMap) -> Report:
    strict, ignore = not arguments.partial, arguments.ignore or ()
    try:
        return load_v1_checkpoint(arguments.source, *made, chosen.name_map, strict, ignore)
    except CheckpointMismatch as mismatch:
        if arguments.partial or mismatch.report.complete:  # the names fit, but a value does not
            raise
        # The original message names arguments of `load_v1_checkpoint`; this message names the
        # command's options.
        raise CheckpointMismatch(
            f"{arguments.source!r} does not fit the model of {arguments.model}. {chosen.advice}, "
            "allow leftovers in the checkpoint with --ignore REGEX, or load what fits "
            f"({counted(len(mismatch.report.transferred), 'tensor')}) with --partial.",
            chosen.noted(mismatch.report),
        ) from mismatch


def _save_v1(made: _Made, arguments: Namespace, chosen: _ChosenMap) -> Report:
    path, like, overwrite = arguments.destination, arguments.like, arguments.overwrite
    try:
        with contextlib.ExitStack() as stack:
            if arguments.dry_run:
                folder = stack.enter_context(tempfile.TemporaryDirectory())
                path = os.path.join(folder, "model.ckpt")
            return save_v1_checkpoint(path, *made, chosen.name_map, like, overwrite)
    except CheckpointMismatch as mismatch:
        if mismatch.report.complete:
            raise
        raise CheckpointMismatch(
            f"{arguments.like!r}, passed as --like, lacks some variables of the model of "
            f"{arguments.model} or of its optimizer. {chosen.advice}.",
            chosen.noted(mismatch.report),
        ) from mismatch


def _made(name: str) -> _Made:
    """Calls the user's function, and returns what it has made."""
    function = user_objects.load(name)
    is_called = callable(function) and not _is_model(function)
    result = user_objects.call(name, function) if is_called else function
    if _is_model(result):
        # The bridged optimizer may be inside a LossScaleOptimizer.
        optimizer = getattr(result, "optimizer", None)
        return _Made(result, getattr(optimizer, "inner_optimizer", optimizer))
    if isinstance(result, tuple) and len(result) == 2 and hasattr(result[0], "trainable_variables"):
        return _Made(*result)
    raise ValueError(
        f"{name!r} must return a Keras model, compiled with to_keras(…), or a pair (model, "
        f"optimizer); it returned {type(result).__name__}."
    )


def _is_model(item: Any) -> bool:
    is_like_a_model = hasattr(item, "trainable_variables") and hasattr(item, "get_layer")
    return is_like_a_model and not isinstance(item, type)


def _objects(made: _Made) -> tf.train.Checkpoint:
    saved = {name: each for name, each in made._asdict().items() if each is not None}
    return tf.train.Checkpoint(**saved)


def _save(made: _Made, arguments: Namespace, report: Report) -> Report:
    """Saves a Keras file or a checkpoint, completely or not at all.

    If Keras does not save the optimizer's state, the report lists it as a leftover. Then, without
    --partial, a CheckpointMismatch is raised.
    """
    path = arguments.destination
    if not path.endswith(file_endings.KERAS):
        if not arguments.dry_run:
            object_checkpoint.save(_objects(made), path, arguments.overwrite)
        return report
    target = os.path.realpath(path)  # a symbolic link stays
    with WorkingFolder(target) as working:
        # Check again, because the file may have been created after the first check.
        special_files.refuse_existing(path, arguments.overwrite)
        written = os.path.join(working.path, os.path.basename(path))
        if path.endswith((".weights.h5", ".weights.hdf5")):
            made.model.save_weights(written)
        else:
            made.model.save(written)
        has_state = made.optimizer is None or keras_files.holds_optimizer(written)
        if not has_state:
            ending = os.path.splitext(path)[1]
            why = f"this Keras does not save the optimizer's state in {ending} files"
            lost = Leftover("the optimizer's state", None, None, why)
            report = report._replace(left_in_checkpoint=(*report.left_in_checkpoint, lost))
        fits = has_state or arguments.partial
        if fits and not arguments.dry_run:
            durable_files.rename(written, target)
    if not fits:
        raise CheckpointMismatch(
            f"Keras does not save the optimizer's state in {path!r}. Use another file extension "
            "for DST, or pass --partial to write everything else.",
            report,
        )
    return report


def _load(path: str, made: _Made) -> None:
    """Loads a Keras file, or a tf.train.Checkpoint, into the model and the optimizer."""
    if path.endswith(file_endings.KERAS):
        paths.refuse_missing(path)
        _load_file(path, *made)
        return
    checkpoint = open_checkpoint(path)
    if checkpoint.object_graph is None:
        raise CheckpointError(
            f"{checkpoint.path!r} is a name-based v1 checkpoint already. Omit --model, or pass "
            "--to keras to convert it to Keras."
        )
    _build(*made)
    _restore(checkpoint, made)


def _build(model: KerasModel, optimizer: Optional[KerasOptimizer]) -> None:
    """Creates the optimizer's variables before loading, so that missing values are detected."""
    if optimizer is not None:
        versions.create_optimizer_weights(optimizer, model.trainable_variables)


def _restore(checkpoint: Checkpoint, made: _Made) -> None:
    """Restores a checkpoint, and checks that it has all variables of model and optimizer."""
    keys = checkpoint.object_graph.variables.values()
    has_model = any(key.startswith("model/") for key in keys)
    if has_model or any(map(versions.is_keras_3_variable, made.model.weights)):
        objects = _objects(made) if has_model else tf.train.Checkpoint(made.model)
        # `restore` would expect a save_counter, which a checkpoint made by `write` does not have.
        read = getattr(objects, "read", objects.restore)  # old versions have no `read`
        status = read(checkpoint.path)
    else:  # written by `save_weights`
        status = made.model.load_weights(checkpoint.path)
    try:
        status.assert_existing_objects_matched()
    except AssertionError as error:
        raise CheckpointError(
            f"{checkpoint.path!r} lacks some variables of the model that --model returns: {error}"
        ) from error
    checkpoint.check_unchanged()
    if versions.for_a_session():
        status.run_restore_ops(versions.keras_2().backend.get_session())


def _load_file(path: str, model: KerasModel, optimizer: Optional[KerasOptimizer]) -> None:
    """Loads a Keras file into the model. Does not create the model that the file describes."""
    watch = Watch([path])
    try:
        import h5py

        keras_files.check_size(path, model)
        if optimizer is not None and not keras_files.holds_optimizer(path):
            raise CheckpointError(
                f"{path!r} contains no state of an optimizer, but the model of --model is compiled "
                "with an optimizer. For the weights alone, let the function return (model, None)."
            )
        _build(model, optimizer)
        model.load_weights(path)
        is_h5 = optimizer is not None and h5py.is_hdf5(path)
        file = keras_files.model_in_h5(path) if is_h5 else None
        if file is not None and file.state:
            if file.optimizer in ("", type(optimizer).__name__):
                optimizer.set_weights(list(keras_files.read_h5(path, file.state.values())))
            else:  # the order of the weights may be another
                _load_by_name(path, file, model, optimizer)
        elif optimizer is not None and not _is_compiled_with(model, optimizer):
            raise CheckpointError(
                f"{path!r}: Keras loads the state of an optimizer from a file of this kind "
                "only if the model is compiled with this optimizer."
            )
        changes = watch.changes()
    except (CheckpointError, CheckpointMismatch):
        raise
    except Exception as error:  # zipfile, HDF5 and Keras raise errors of many classes
        changes = watch.changes()
        if changes is None:
            text = messages.text_of(error) or type(error).__name__
            raise CheckpointError(f"{path!r} cannot be loaded by Keras: {text}") from error
    if changes is not None:
        raise CheckpointError(changes + " Try again.")


def _load_by_name(
    path: str, file: keras_files.ModelInH5, model: KerasModel, optimizer: KerasOptimizer
) -> None:
    """Loads the state of an optimizer that `to_keras` has not made, after the model's weights."""
    betas = {name: file.settings.get(name) for name in ("beta_1", "beta_2")}
    betas = {name: np.float32(x) for name, x in betas.items() if type(x) is float and 0 <= x < 1}
    pairs = keras_2_state.state_in_h5(path, file)
    slots = {pair: key for pair, key in pairs.items() if pair[0]}
    others = {name: key for (variable, name), key in pairs.items() if not variable}
    unassigned = {name: key for name, key in others.items() if file.infos[key].shape}
    scalars = {name: others[name] for name in set(others) - set(unassigned)}
    step = next((file.infos[scalars[name]] for name in STEP_NAMES if name in scalars), None)
    if step is None or not is_integer(step.dtype):
        raise CheckpointError(f"{path!r}: the optimizer's state has no number of steps.")
    scalars.update({name: name for name in ("decay", *betas)})
    saved = SavedOptimizer("", SLOT_VARIABLES, slots, scalars, unassigned, file.optimizer)

    def read(key: str) -> np.ndarray:
        return betas[key] if key in betas else next(keras_files.read_h5(path, [key]))

    graph = SimpleNamespace(variables=file.weights)
    checkpoint = SimpleNamespace(path=path, tensors=file.infos, object_graph=graph, read=read)
    conversion_from_objects.refuse(checkpoint, saved, optimizer_name="")
    # Written in hexadecimal digits, any name of a variable is valid in a graph.
    state = KerasState(model, optimizer, lambda name: name.encode().hex())
    names = {id(state.variable_of(x)): x.name for x in state.tensors if x.kind == VARIABLE}
    # Keras has loaded the weights in the order of the file, whatever their names are.
    parts = [(each.trainable_weights, each.non_trainable_weights) for each in model.layers]
    weights = [weight for part in (*parts, (model.weights,)) for each in part for weight in each]
    by_position = dict(zip(file.weights, map(names.get, dict.fromkeys(map(id, weights)))))
    conversion = OptimizerConversion(checkpoint, saved, by_position, optimizer)
    moves = {move.target: move for move in conversion.moves}
    needed = [each for each in state.tensors if each.kind != VARIABLE]
    missing = [leftover(x.label, x, "it is not in the file") for x in needed if x.name not in moves]
    if conversion.left or missing:
        raise CheckpointMismatch(
            f"{path!r} contains the state of {file.optimizer}, which does not fit this optimizer. "
            "Where it was written, load the model, write tf.train.Checkpoint(model=model, "
            "optimizer=model.optimizer), and convert this with --optimizer.",
            Report((), tuple(conversion.left), tuple(missing)),
        )
    for each in needed:
        move = moves[each.name]
        value = (move.make or np.asarray)(*map(read, move.sources))
        state.assign(each, np.asarray(value, each.dtype))


def _is_compiled_with(model: KerasModel, optimizer: KerasOptimizer) -> bool:
    model_optimizer = getattr(model, "optimizer", None)
    return optimizer in (model_optimizer, getattr(model_optimizer, "inner_optimizer", None))

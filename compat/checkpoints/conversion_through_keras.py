"""Converts v1 checkpoints to Keras files or object-based checkpoints, and back.

The state is loaded into a Keras model, which the user's code builds, and saved from this model.
"""

import contextlib
import os

import tensorflow as tf

from legacy_opt import versions

from .. import file_endings, messages, special_files, user_objects
from ..checkpoint_files import CheckpointError, keras_files, open_checkpoint
from ..checkpoint_files.file_watch import Watch
from ..checkpoint_files.working_folder import WorkingFolder
from ..plain_text import counted
from .name_maps import GUESS, as_text
from .report import CheckpointMismatch, Leftover
from .v1_checkpoint import guess_name_map, load_v1_checkpoint, save_v1_checkpoint


def convert(arguments, name_map):
    """Converts a v1 checkpoint to a Keras file or an object-based checkpoint, or back.

    Args:
      arguments: the arguments of `legacy-opt convert`: `source`, `destination`, `to`, `model`,
        `like`, `ignore`, `partial`, `overwrite`.
      name_map: see `load_v1_checkpoint`; or `GUESS`, which guesses it from the shapes in the v1
        checkpoint: the source, or `like`.

    Returns:
      A `Report`, whose notes have the guessed name map.

    Raises:
      CheckpointError: the source is missing or damaged, or the destination is an existing v1
        checkpoint.
      CheckpointMismatch: some of the state does not fit.
      ImportError: the user's function cannot be imported, or raises an error.
      ValueError: the user's function does not return a built Keras model, or the destination is an
        existing Keras file or object-based checkpoint.
    """
    if arguments.to == "keras":
        open_checkpoint(arguments.source)  # raises errors before the slow construction of the model
        model, optimizer = _model(arguments.model)
        guess = _Guess(name_map, arguments.source, model, optimizer)
        report = _load_v1(model, optimizer, arguments, guess)
        report = _save(model, optimizer, arguments, report)
    else:
        model, optimizer = _model(arguments.model)
        _load(arguments.source, model, optimizer)
        guess = _Guess(name_map, arguments.like, model, optimizer)
        report = _save_v1(model, optimizer, arguments, guess)
    return guess.noted(report)


class _Guess:
    """A name map, guessed if it is `GUESS`.

    Attributes:
      name_map: the name map to use.
      advice: a sentence for errors: how to map further names.
    """

    def __init__(self, name_map, v1_checkpoint, model, optimizer):
        self.name_map, self._notes = name_map, ()
        self.advice = "Map names with --name-map (a file, or guess)"
        if name_map == GUESS:
            self.name_map, unclear = guess_name_map(v1_checkpoint, model, optimizer)
            text = f"the name map, guessed by shapes and dtypes: {as_text(self.name_map)}"
            self._notes = (text,)
            result = "is not enough" if self.name_map else "finds nothing"
            why = " (several variables could be meant)" if unclear else ""
            self.advice = f"--name-map guess {result}{why}: map names with --name-map FILE.json"

    def noted(self, report):
        """Returns a report with the guessed name map among its notes."""
        return report._replace(notes=report.notes + self._notes)


def _load_v1(model, optimizer, arguments, guess):
    try:
        return load_v1_checkpoint(
            arguments.source,
            model,
            optimizer,
            guess.name_map,
            strict=not arguments.partial,
            ignore=arguments.ignore or (),
        )
    except CheckpointMismatch as mismatch:
        if arguments.partial or mismatch.report.complete:  # the names fit, but a value does not
            raise
        # The original message names arguments of `load_v1_checkpoint`; this message names the
        # command's options.
        transferred = len(mismatch.report.transferred)
        raise CheckpointMismatch(
            f"{arguments.source!r} does not fit the model of {arguments.model}. {guess.advice}, "
            "allow leftovers in the checkpoint with --ignore REGEX, or load what fits "
            f"({counted(transferred, 'tensor')}) with --partial.",
            guess.noted(mismatch.report),
        ) from mismatch


def _save_v1(model, optimizer, arguments, guess):
    try:
        return save_v1_checkpoint(
            arguments.destination,
            model,
            optimizer,
            guess.name_map,
            like=arguments.like,
            overwrite=arguments.overwrite,
        )
    except CheckpointMismatch as mismatch:
        if mismatch.report.complete:
            raise
        raise CheckpointMismatch(
            f"{arguments.like!r}, passed as --like, lacks some variables of the model of "
            f"{arguments.model} or of its optimizer. {guess.advice}.",
            guess.noted(mismatch.report),
        ) from mismatch


def _model(name):
    """Calls the user's function. Returns a pair of the model, and the optimizer or None."""
    function = user_objects.load(name)
    is_called = callable(function) and not _is_model(function)
    result = user_objects.call(name, function) if is_called else function
    if _is_model(result):
        # The bridged optimizer may be inside a LossScaleOptimizer.
        optimizer = getattr(result, "optimizer", None)
        return result, getattr(optimizer, "inner_optimizer", optimizer)
    if isinstance(result, tuple) and len(result) == 2 and hasattr(result[0], "trainable_variables"):
        return result
    raise ValueError(
        f"{name!r} must return a Keras model, compiled with to_keras(…), or a pair (model, "
        f"optimizer); it returned {type(result).__name__}."
    )


def _is_model(item):
    is_like_a_model = hasattr(item, "trainable_variables") and hasattr(item, "get_layer")
    return is_like_a_model and not isinstance(item, type)


# To Keras


def _save(model, optimizer, arguments, report):
    """Saves a Keras file or a checkpoint in a working folder, then renames the files.

    Returns:
      The report. If Keras does not save the optimizer's state, the report lists it as a leftover.

    Raises:
      CheckpointMismatch: Keras does not save the state, and --partial is not given.
    """
    path = arguments.destination
    folder, name = os.path.split(os.path.abspath(path))
    is_written = False
    with WorkingFolder(os.path.join(folder, name)) as working:
        # Check again, because the file may have been created after the first check.
        special_files.refuse_existing(path, arguments.overwrite)
        has_state = _write(os.path.join(working.path, name), model, optimizer)
        if not has_state:
            report = report._replace(left_in_checkpoint=_lost(report, path))
        if has_state or arguments.partial:
            _rename_all(working, folder)
            is_written = True
    if not is_written:
        reason = (
            f"Keras does not save the optimizer's state in {path!r}. Use another file extension "
            "for DST, or pass --partial to write everything else."
        )
        raise CheckpointMismatch(reason, report)
    return report


def _lost(report, path):
    ending = os.path.splitext(path)[1]
    why = f"this Keras does not save the optimizer's state in {ending} files"
    return report.left_in_checkpoint + (Leftover("the optimizer's state", None, None, why),)


def _write(path, model, optimizer):
    """Writes a Keras file or a checkpoint; returns False if it lacks the optimizer's state."""
    if path.endswith((".weights.h5", ".weights.hdf5")):
        model.save_weights(path)
    elif path.endswith(file_endings.KERAS):
        model.save(path)
    else:
        saved = {"model": model} if optimizer is None else {"model": model, "optimizer": optimizer}
        options = {}
        if versions.for_a_session():
            options["session"] = versions.keras_2().backend.get_session()
        # Calls `save`, not `write`: a user's `restore` expects a save_counter, which `write` omits.
        _rename_counted(tf.train.Checkpoint(**saved).save(path, **options), path)
        return True
    return optimizer is None or keras_files.holds_optimizer(path)


def _rename_counted(written, path):
    """Removes the number that `save` has appended to the names of a checkpoint's files.

    Also deletes the file `checkpoint` in their folder.
    """
    folder = os.path.dirname(path)
    for name in os.listdir(folder):
        if name.startswith(os.path.basename(written) + "."):
            ending = name[len(os.path.basename(written)) :]
            os.replace(os.path.join(folder, name), path + ending)
    os.remove(os.path.join(folder, "checkpoint"))


def _rename_all(working, folder):
    """Renames the files to their final names.

    An index is renamed last, because it makes the checkpoint complete.
    """
    names = sorted(working.written(), key=lambda name: (name.endswith(".index"), name))
    with contextlib.suppress(FileNotFoundError):
        if names[-1].endswith(".index"):  # an old index must not describe new data
            os.remove(os.path.join(folder, names[-1]))
    for name in names:
        os.replace(os.path.join(working.path, name), os.path.join(folder, name))


# From Keras


def _load(path, model, optimizer):
    """Loads a Keras file, or a tf.train.Checkpoint, into the model and the optimizer."""
    if path.endswith(file_endings.KERAS):
        special_files.refuse(path)
        if not os.path.isfile(path):
            raise CheckpointError(f"{path!r}: there is no such file.")
        _load_file(path, model, optimizer)
        return
    checkpoint = open_checkpoint(path)
    if checkpoint.object_graph is None:
        raise CheckpointError(
            f"{checkpoint.path!r} is a name-based v1 checkpoint already. Omit --model, or pass "
            "--to keras to convert it to Keras."
        )
    _build(model, optimizer)
    _restore(checkpoint, model, optimizer)


def _build(model, optimizer):
    """Creates the optimizer's variables before loading, so that missing values are detected."""
    if optimizer is not None:
        versions.create_optimizer_weights(optimizer, model.trainable_variables)


def _restore(checkpoint, model, optimizer):
    """Restores a checkpoint, and checks that it has all variables of model and optimizer."""
    if any(key.startswith("model/") for key in checkpoint.object_graph.variables.values()):
        objects = (
            {"model": model} if optimizer is None else {"model": model, "optimizer": optimizer}
        )
        status = _read(tf.train.Checkpoint(**objects), checkpoint.path)
    elif any(map(versions.is_keras_3_variable, model.weights)):
        status = _read(tf.train.Checkpoint(model), checkpoint.path)
    else:  # written by `save_weights`
        status = model.load_weights(checkpoint.path)
    try:
        status.assert_existing_objects_matched()
    except AssertionError as error:
        raise CheckpointError(
            f"{checkpoint.path!r} lacks some variables of the model that --model returns: {error}"
        ) from error
    checkpoint.check_unchanged()
    if versions.for_a_session():
        status.run_restore_ops(versions.keras_2().backend.get_session())


def _read(objects, path):
    # `restore` would expect a save_counter, which a checkpoint made by `write` does not have.
    return getattr(objects, "read", objects.restore)(path)


def _load_file(path, model, optimizer):
    """Loads a Keras file into the model, without creating the model that the file describes."""
    watch = Watch([path])
    try:
        keras_files.check_size(path, model)
        if optimizer is not None and not keras_files.holds_optimizer(path):
            raise CheckpointError(
                f"{path!r} contains no state of an optimizer, but the model of --model is compiled "
                "with an optimizer. For the weights alone, let the function return (model, None)."
            )
        _build(model, optimizer)
        model.load_weights(path)
        state = None if optimizer is None else keras_files.state_in_h5(path)
        if state is not None:
            optimizer.set_weights(state)
        elif optimizer is not None and not _is_compiled_with(model, optimizer):
            raise CheckpointError(
                f"{path!r}: Keras loads the state of an optimizer from a file of this kind "
                "only if the model is compiled with this optimizer."
            )
        changes = watch.changes()
    except CheckpointError:
        raise
    except Exception as error:  # zipfile, HDF5 and Keras raise errors of many classes
        changes = watch.changes()
        if changes is None:
            text = messages.text_of(error) or type(error).__name__
            raise CheckpointError(f"{path!r} cannot be loaded by Keras: {text}") from error
    if changes is not None:
        raise CheckpointError(changes + " Try again.")


def _is_compiled_with(model, optimizer):
    model_optimizer = getattr(model, "optimizer", None)
    return optimizer in (model_optimizer, getattr(model_optimizer, "inner_optimizer", None))

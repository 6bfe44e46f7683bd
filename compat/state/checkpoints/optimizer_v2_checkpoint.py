"""Moves the state of an OptimizerV2 between files of Keras 2 and Keras 3."""

from __future__ import annotations

import re
from typing import Any, Iterator, List, Optional

import tensorflow as tf

from legacy_opt import versions
from legacy_opt.core.types import KerasOptimizer, ModelOrVariables, NameMap, Path

from ... import special_files
from ..checkpoint_contents.keras_2_state import Pair, SavedByKeras2, saved_state
from ..checkpoint_files.paths import as_text
from . import name_maps, object_checkpoint
from .keras_state import reset_derived_state
from .optimizer_v2_state import OptimizerV2State, optimizer_v2_of
from .report import CheckpointMismatch, Leftover, Report, leftover, transfer

_NOT_LOADED = "Hyperparameters, such as the learning rate, are not loaded."
_OF_LOSS_SCALE = "current_loss_scale", "good_steps"  # variables of a LossScaleOptimizer


def load_optimizer_v2(
    path: Path,
    model_or_variables: ModelOrVariables,
    optimizer: KerasOptimizer,
    name_map: Optional[NameMap] = None,
) -> Report:
    """Loads what Keras 2 saved of a model and its OptimizerV2 into a Keras 3 model.

    Variables, slots, `iterations` and other variables of the OptimizerV2 are loaded. Keras 2
    creates the slots of a variable in the first step that has a gradient for it; slots that the
    file does not have yet start with their initial values. The next training steps then give the
    same values, bit for bit, as in tf_keras with the same state and the installed TensorFlow.
    Hyperparameters, such as the learning rate, and a scale of the loss are not loaded: `optimizer`
    keeps its own. It is built if it is not built yet.

    Args:
      path: a checkpoint of tf.train.Checkpoint or `save_weights` (its prefix, or a folder, to load
        the latest checkpoint in it), the folder of a SavedModel, or the .h5 file of a whole model,
        written by tf.keras of TensorFlow 1.15 to 2.15 or by tf_keras. From TensorFlow 2.11 on,
        Keras 2 does not write the state of an OptimizerV2 into .keras files.
      model_or_variables: a built Keras 3 model, a list of variables, or a dict from names in the
        file to variables.
      optimizer: an optimizer that `to_keras` made for Keras 3 from an OptimizerV2 of the class that
        trained in Keras 2.
      name_map: a dict from names in Keras 3 (`variable.path`) to names in the file, such as
        "dense/kernel", or a function from names in Keras 3 to names in the file. A variable that is
        mapped to None is not loaded. Without a map, the names must be equal, or equal without the
        name of the Keras 3 model.

    Returns:
      A `Report` of the tensors that were loaded. Its notes name variables in the file that are
      neither trained nor in the model.

    Raises:
      CheckpointError: the file does not exist, is damaged, contains no state of an OptimizerV2, or
        is overwritten while it is read.
      CheckpointMismatch: the file contains the state of another class or of other variables.
      TypeError: an argument is of the wrong type.
      ValueError: two variables have the same name, or the optimizer trains variables that are not
        among `model_or_variables`.
      In all these cases no value has been changed, with one exception: if the checkpoint is
        overwritten while its tensors are assigned, some tensors have been loaded.
    """
    path = as_text(path, signature="load_optimizer_v2(path, model_or_variables, optimizer)")
    optimizer_v2_of(optimizer)
    saved = saved_state(path)
    state = OptimizerV2State(model_or_variables, optimizer, name_map, saved.names)
    report = _compared(state, saved)
    if not report.complete:
        raise CheckpointMismatch(
            f"{saved.path!r} does not fit the model and its {state.title}, so nothing was loaded. "
            "Map names of variables with name_map.",
            report,
        )
    pairs = [pair for pair in state.tensors if pair in saved.keys]
    for pair, value in zip(pairs, saved.read([saved.keys[pair] for pair in pairs])):
        state.assign(pair, value)
    without_slots = state.without_slots(saved.keys)
    if without_slots:
        state.start_slots(without_slots)
    reset_derived_state(optimizer)
    return report


def save_optimizer_v2(
    path: Path,
    model_or_variables: ModelOrVariables,
    optimizer: KerasOptimizer,
    overwrite: bool = False,
) -> Report:
    """Writes a Keras 3 model and its OptimizerV2 as a checkpoint that Keras 2 can restore.

    With a Keras 2 model of the same layers, compiled with the same OptimizerV2, this restores the
    weights, slots, `iterations` and hyperparameters::

        by_name = {each.name.split(":")[0]: each for each in model.weights}
        saved = tf.train.Checkpoint(variables=by_name, optimizer=model.optimizer)
        saved.restore(path).assert_existing_objects_matched()

    The Keras 2 model then goes on as the Keras 3 model would, bit for bit. `load_optimizer_v2` can
    load the checkpoint, too.

    Args:
      path: the prefix of the new checkpoint, such as "folder/ckpt".
      model_or_variables: a built Keras 3 model, a list of variables, or a dict from names in the
        checkpoint to variables.
      optimizer: an optimizer that `to_keras` made for Keras 3 from an OptimizerV2.
      overwrite: whether a checkpoint at `path` may be replaced.

    Returns:
      A `Report` of the tensors that were written.

    Raises:
      CheckpointError: another process writes the same checkpoint.
      TypeError: an argument is of the wrong type.
      ValueError: `path` exists, two variables have the same name, or the optimizer trains variables
        that are not among `model_or_variables`.
      In all these cases nothing has been written.
    """
    path = as_text(path, signature="save_optimizer_v2(path, model_or_variables, optimizer)")
    optimizer_v2_of(optimizer)
    special_files.refuse_existing(path, overwrite, "overwrite=True")
    state = OptimizerV2State(model_or_variables, optimizer)
    copies, made = state.copied_to_keras_2()
    objects = tf.train.Checkpoint(variables=copies, optimizer=made)
    object_checkpoint.save(objects, path, overwrite)
    written = [
        transfer(state.label(pair), "/".join(filter(None, pair)), each)
        for pair, each in state.tensors.items()
    ]
    batches = state.batches_without_update()
    lost = f"Not written: gradients that Keras 3 has accumulated, number of batches: {batches}."
    notes = (lost,) if batches else ()
    return Report(tuple(written), left_in_checkpoint=(), left_in_model=(), notes=notes)


def _compared(state: OptimizerV2State, saved: SavedByKeras2) -> Report:
    """Returns the `Report` of an `OptimizerV2State` and the `SavedByKeras2` to load into it."""
    transferred, missing, unused = [], [], []
    notes = [_NOT_LOADED]
    without_slots = state.without_slots(saved.keys)
    notes += [f"The file has no slots of {state.label((n, ''))}." for n in sorted(without_slots)]
    for pair, variable in state.tensors.items():
        name, slot = pair
        if slot and name in without_slots:
            continue
        label = state.label(pair)
        why = _misfit(saved, pair, variable)
        if why:
            missing.append(leftover(label, variable, why))
        else:
            transferred.append(transfer(saved.keys[pair], label, variable))
    for pair, key in saved.keys.items():
        name, slot = pair
        if pair in state.tensors:
            continue
        if not slot:
            notes.append(f"The model has no variable for {name} in the file.")
        elif name or slot not in (*state.hyperparameters, *_OF_LOSS_SCALE):
            why = "the model and its OptimizerV2 have no such variable"
            unused.append(leftover(state.label(pair), saved.infos[key], why))
    unused += _of_another_class(state.inner, saved)
    notes += _guess(state, saved)
    return Report(tuple(transferred), tuple(unused), tuple(missing), tuple(notes))


def _misfit(saved: SavedByKeras2, pair: Pair, variable: tf.Variable) -> str:
    """Returns why a tensor of the file cannot be loaded; "" if it can."""
    if pair not in saved.keys:
        return "the file does not contain it"
    info = saved.infos[saved.keys[pair]]
    if info.shape != tuple(variable.shape):
        return f"it has shape {list(info.shape)} in the file"
    return "" if info.dtype == variable.dtype.name else f"it is {info.dtype} in the file"


def _of_another_class(inner: Any, saved: SavedByKeras2) -> Iterator[Leftover]:
    """Yields a `Leftover` if the file names another OptimizerV2."""
    if saved.kind == "class":
        registered = versions.keras_2().utils.get_registered_name(type(inner))
        known = {"", type(inner).__name__, registered.rpartition(">")[2]}
        way_out = ""
    else:
        known = {"", inner._name.rpartition("/")[2]}
        way_out = f". If the class is the same, pass name={saved.optimizer!r} to the OptimizerV2"
    if not known & {saved.optimizer, re.sub(r"_\d+$", "", saved.optimizer)}:
        why = f"the {saved.kind} of the OptimizerV2 is {max(known)}{way_out}"
        yield Leftover(f"state of {saved.optimizer}", None, None, why)


def _guess(state: OptimizerV2State, saved: SavedByKeras2) -> List[str]:
    """Returns a list with a note that suggests a name_map, if there are names to map."""
    infos = {name: saved.infos[saved.keys[name, ""]] for name in saved.names}
    wanted = [name for name, slot in state.tensors if not slot and name not in infos]
    given = [name for name in infos if (name, "") not in state.tensors]
    shapes = [tuple(state.tensors[name, ""].shape) for name in wanted]
    if not wanted or shapes != [infos[name].shape for name in given]:
        return []
    guess = name_maps.as_text({state.label((n, "")): old for n, old in zip(wanted, given)})
    return [f"A guess by order and shapes: name_map={guess}"]

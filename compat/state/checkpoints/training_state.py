"""Reads the state of a training from checkpoints of TensorFlow and files of Keras.

TensorFlow is not necessary for checkpoints of a Saver in V2 format, and for .keras and .weights.h5
files. These files have no names of variables, except those of layers: pass the model for names.
"""

from __future__ import annotations

import collections
import io
import os
import zipfile
from typing import Any, Iterator, Tuple

import numpy as np

from legacy_opt.proofs.states import KERAS, State, empty, state_of, unreadable

from ... import file_endings, special_files
from ..checkpoint_contents import named
from ..checkpoint_contents.items import Item
from ..checkpoint_files.errors import CheckpointError

_SHARED = {"optimizer/vars/0": "iteration", "optimizer/vars/1": "learning_rate"}
_HDF5 = b"\x89HDF\r\n\x1a\n"
# A damaged file may need much memory: see `keras_files`.
_MAX_RATIO, _ALWAYS_ALLOWED = 16, 64 << 20


def read(path: str, is_after: bool, model: Any = None) -> State:
    """Returns the state that a file, or a checkpoint, has.

    Args:
      path: a file of `legacy_opt.proofs.states.state_of`, a file of Keras, or a checkpoint.
      is_after: see `state_of`.
      model: a compiled Keras model, into which a file of Keras is loaded.

    Raises:
      ValueError: there is no such file, or it cannot be read.
    """
    try:
        return _read(path, is_after, model)
    except (ValueError, OSError):  # says what is wrong
        raise
    except Exception as error:  # content of others may cause any error
        raise unreadable(path, error) from error


def _read(path: str, is_after: bool, model: Any) -> State:
    special_files.refuse(path)
    if file_endings.ending_of(path, file_endings.KERAS):
        if model is None:
            return _of_keras_file(path)
        model.load_weights(path)
        return state_of(model)
    return state_of(path, is_after) if os.path.isfile(path) else _of_checkpoint(path)


def _of_checkpoint(path: str) -> State:
    try:
        from ..checkpoint_contents import contents as contents_of
        from ..checkpoint_files.reader import open_checkpoint
    except ImportError:  # without TensorFlow
        from ..checkpoint_files.plain_reader import PlainCheckpoint

        checkpoint = PlainCheckpoint(path)
        contents = named.named_contents(checkpoint.tensors)
    else:
        checkpoint = open_checkpoint(path)
        contents = contents_of(checkpoint)
    state = empty()

    def add(variable: str, slot: str, item: Item) -> None:
        if item.stored.axis is not None and item.dtype != "string":
            state.add(variable, slot, item.stored.read(checkpoint))
        else:  # several tensors that form no array
            for name in item.stored.names if item.dtype != "string" else ():
                state.add(variable, f"{slot} ({name})", checkpoint.read(name))

    for variable, slots in contents.variables:
        add(variable.name, "", variable)
        roles = [slot.role or slot.suffix for slot in slots]
        for role, slot in zip(roles, slots):  # of several optimizers, slots have the same role
            label = f"{role} ({slot.scope}{slot.suffix})"
            add(variable.name, role if roles.count(role) == 1 else label, slot.item)
    for item in (*contents.shared, *contents.other):
        add("", item.name, item)
    if contents.step is not None:
        add("", "global_step", contents.step)
    return state


def _of_keras_file(path: str) -> State:
    state = empty(KERAS)
    with open(path, "rb") as file:
        start = file.read(len(_HDF5))
    content: Any = path
    if start != _HDF5:
        with zipfile.ZipFile(path) as archive:
            info = archive.getinfo("model.weights.h5")
            _check(path, info.file_size)
            content = io.BytesIO(archive.read(info))
    for name, slot, array in _datasets(path, content):
        state.add(name, slot, array)
    return state


def _check(path: str, nbytes: int) -> None:
    if nbytes > max(_MAX_RATIO * os.path.getsize(path), _ALWAYS_ALLOWED):
        raise CheckpointError(f"{path!r} would need {nbytes:,} bytes of memory: it is damaged.")


def _datasets(path: str, content: Any) -> Iterator[Tuple[str, str, np.ndarray]]:
    """Yields (variable, slot, array) for the datasets of an HDF5 file."""
    import h5py

    with h5py.File(content, "r") as file:
        found = {}
        file.visititems(lambda name, x: found.update({name: x} if hasattr(x, "dtype") else {}))
        _check(path, sum(each.size * each.dtype.itemsize for each in found.values()))
        if "optimizer_weights" in file:
            from ..checkpoint_contents.keras_2_state import saved_state

            saved = saved_state(path)
            arrays = zip(saved.keys, saved.read(list(saved.keys.values())))
            yield from ((*key, array) for key, array in arrays)
            return
        labels = {}
        for name in found:
            layer, _, number = name.rpartition("/")
            labels[name] = f"{file[layer].attrs.get('name', layer)}/{number}"
        counts = collections.Counter(labels.values())
        for name, dataset in found.items():
            # Two models in a model may have layers of the same name.
            is_path = name.startswith("optimizer/") or counts[labels[name]] > 1
            if name in _SHARED:
                yield "", _SHARED[name], dataset[()]
            else:
                yield name if is_path else labels[name], "", dataset[()]

"""Reads the state of a training from checkpoints of TensorFlow and files of Keras.

TensorFlow is not necessary for checkpoints of a Saver in V2 format, and for .keras and .weights.h5
files. These files have no names of variables, except those of layers.
"""

from __future__ import annotations

import os
from typing import Any, Iterator, Tuple

from legacy_opt.proofs.states import State, reading, state_of

from ... import file_endings, special_files
from ..checkpoint_contents import contents as contents_of
from ..checkpoint_contents import named
from ..checkpoint_files import hdf5
from ..checkpoint_files.errors import CheckpointError

_SHARED = {"optimizer/vars/0": "iteration", "optimizer/vars/1": "learning_rate"}


def read(path: str, is_after: bool) -> State:
    """Returns the state that a checkpoint, a file of Keras or another of `state_of` has.

    Raises:
      ValueError: there is no such file, or it cannot be read.
    """
    special_files.refuse(path)
    with reading(path, ValueError, OSError):
        if file_endings.ending_of(path, file_endings.KERAS):
            state = State("Keras")
            for name, slot, array in _in_keras_file(path):
                state.add(name, slot, array)
            return state
        return state_of(path, is_after) if os.path.isfile(path) else _of_checkpoint(path)


def _of_checkpoint(path: str) -> State:
    try:
        from ..checkpoint_files.reader import open_checkpoint
    except ImportError:  # without TensorFlow
        from ..checkpoint_files.plain_reader import PlainCheckpoint

        checkpoint = PlainCheckpoint(path)
        contents = named.named_contents(checkpoint.tensors)
    else:
        checkpoint = open_checkpoint(path)
        contents = contents_of(checkpoint)
    items = [("", item.name, item) for item in (*contents.shared, *contents.other)]
    items += [] if contents.step is None else [("", "global_step", contents.step)]
    for variable, slots in contents.variables:
        items.append((variable.name, "", variable))
        roles = [slot.role or slot.suffix for slot in slots]
        for role, slot in zip(roles, slots):  # of several optimizers, slots have the same role
            label = f"{role} ({slot.scope}{slot.suffix})"
            items.append((variable.name, role if roles.count(role) == 1 else label, slot.item))
    state = State("TensorFlow")
    for variable, slot, item in items:
        if item.dtype != "string" and item.stored.axis is not None:
            state.add(variable, slot, item.stored.read(checkpoint))
        elif item.dtype != "string":  # several tensors that form no array
            for name in item.stored.names:
                state.add(variable, f"{slot} ({name})", checkpoint.read(name))
    return state


def _in_keras_file(path: str) -> Iterator[Tuple[str, str, Any]]:
    """Yields (variable, slot, array) for the datasets of a file of Keras."""
    _check(path, hdf5.size_in_archive(path))
    with hdf5.opened(path) as file:
        found = hdf5.datasets_in(path, file)
        _check(path, hdf5.nbytes_of(found))
        if "optimizer_weights" in file:
            from ..checkpoint_contents.keras_2_state import saved_state

            saved = saved_state(path)
            arrays = zip(saved.keys, saved.read(list(saved.keys.values())))
            yield from ((name, slot, array) for (name, slot), array in arrays)
            return
        for name, dataset in found.items():
            is_shared = name in _SHARED
            yield "" if is_shared else name, _SHARED.get(name, ""), dataset[()]


def _check(path: str, nbytes: int) -> None:
    if nbytes > hdf5.most_memory(os.path.getsize(path)):
        raise CheckpointError(f"{path!r} would need {nbytes:,} bytes of memory: it is damaged.")

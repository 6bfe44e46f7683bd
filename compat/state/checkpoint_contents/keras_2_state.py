"""Finds the variables of a model and the state of its OptimizerV2 in a file of Keras 2."""

from __future__ import annotations

import functools
import zipfile
from typing import Callable, Dict, Iterator, List, NamedTuple, Tuple

import numpy as np

from legacy_opt.recorded.neighbours import slot_of_keras

from ... import file_endings
from ..checkpoint_files import keras_files, paths
from ..checkpoint_files.errors import CheckpointError
from ..checkpoint_files.object_graph import SLOT_VARIABLES
from ..checkpoint_files.reader import Checkpoint, open_checkpoint
from ..checkpoint_files.tensor_info import Infos

STEP = "iter"
Pair = Tuple[str, str]  # see `SavedByKeras2.keys`
_WRITTEN_BY = (
    "Keras 2 writes it into a tf.train.Checkpoint(model=…, optimizer=…), a SavedModel, and the .h5 "
    "file of a whole model (model.save), but not into .keras files and files of weights."
)


class SavedByKeras2(NamedTuple):
    """The variables of a model and the state of its OptimizerV2 in a file."""

    path: str  # the file, or the prefix of the checkpoint
    # From pairs to names of tensors. The pair is (variable, "") for a variable, (variable, slot)
    # for a slot, and ("", name) for other variables of the optimizer, such as `STEP`.
    keys: Dict[Pair, str]
    infos: Infos
    optimizer: str  # the name of the optimizer in a checkpoint, its class in an .h5 file, or ""
    kind: str  # what `optimizer` is: "name" or "class"
    # From names of tensors to their values. Raises a CheckpointError before the first value if one
    # of the tensors is damaged.
    read: Callable[[List[str]], Iterator[np.ndarray]]

    @property
    def names(self) -> List[str]:
        """The names of the variables, in the order of the file."""
        return [name for name, slot in self.keys if not slot]


def saved_state(path: str) -> SavedByKeras2:
    """Returns the `SavedByKeras2` of an .h5 file, a checkpoint or a folder of a SavedModel."""
    if not file_endings.ending_of(path, file_endings.KERAS):
        return _in_checkpoint(open_checkpoint(paths.in_saved_model(path)))
    paths.refuse_missing(path)
    return _in_h5(path)


def _in_checkpoint(checkpoint: Checkpoint) -> SavedByKeras2:
    graph = checkpoint.object_graph
    if graph is None:
        raise CheckpointError(
            f"{checkpoint.path!r} is a name-based v1 checkpoint. Load it with load_v1_checkpoint "
            "into an optimizer that to_keras made from the v1 optimizer."
        )
    optimizers = [each for each in graph.optimizers if each.kind == SLOT_VARIABLES]
    if len(optimizers) != 1:
        found = ", ".join(f"{each.path} ({each.kind})" for each in graph.optimizers) or "none"
        raise CheckpointError(
            f"{checkpoint.path!r} must contain one OptimizerV2, but its optimizers are: {found}. "
            + _WRITTEN_BY
        )
    (optimizer,) = optimizers
    keys = {(name, ""): key for name, key in graph.variables.items()}
    keys.update(optimizer.slots)
    others = {**optimizer.variables, **optimizer.unassigned}
    # A wrapped optimizer may have an unused `iter`. The outer `iter` has the shorter path: it wins.
    for path in sorted(others, key=len, reverse=True):
        keys["", path.rpartition("/")[2]] = others[path]

    def read(names: List[str]) -> Iterator[np.ndarray]:
        checkpoint.verify(names)
        return map(checkpoint.read, names)

    return SavedByKeras2(checkpoint.path, keys, checkpoint.tensors, optimizer.name, "name", read)


def state_in_h5(path: str, model: keras_files.ModelInH5) -> Dict[Pair, str]:
    """Returns the `keys` of an optimizer's state. Equal names of slots raise a CheckpointError."""
    keys = {}
    longest_first = sorted(model.weights, key=len, reverse=True)
    for name, key in model.state.items():
        pair = slot_of_keras(name, longest_first)
        if keys.setdefault(pair, key) != key and pair[0]:  # a wrapper may have its own `iter`
            raise CheckpointError(f"{path!r} has two states called {pair[1]!r} of {pair[0]!r}.")
    return keys


def _in_h5(path: str) -> SavedByKeras2:
    # A .keras file is a zip archive, but up to TensorFlow 2.10 an HDF5 file.
    model = None if zipfile.is_zipfile(path) else keras_files.model_in_h5(path)
    if model is None or not model.state:
        raise CheckpointError(f"{path!r} contains no state of an OptimizerV2. {_WRITTEN_BY}")
    keys = {(name, ""): key for name, key in model.weights.items()}
    keys.update(state_in_h5(path, model))
    # `read_h5` reads all tensors at once: if the file is replaced, old and new do not mix.
    read = functools.partial(keras_files.read_h5, path)
    return SavedByKeras2(path, keys, model.infos, model.optimizer, kind="class", read=read)

"""Writes object-based checkpoints under exact names, completely or not at all."""

from __future__ import annotations

import os

import tensorflow as tf

from legacy_opt import versions

from ..checkpoint_files.object_graph import OBJECT_GRAPH
from ..checkpoint_files.reader import open_checkpoint
from ..checkpoint_files.writer import CheckpointWriter


def save(objects: tf.train.Checkpoint, path: str, overwrite: bool) -> None:
    """Writes a tf.train.Checkpoint; `path` is the prefix, to which no number is added.

    The file `checkpoint` beside it does not change. For errors see `CheckpointWriter`.
    """
    options = {}
    if versions.for_a_session():
        options["session"] = versions.keras_2().backend.get_session()
    with CheckpointWriter(path, overwrite, is_latest=False) as writer:
        folder = os.path.join(writer.working.path, "objects")
        os.mkdir(folder)
        # Calls `save`, not `write`: a user's `restore` expects a save_counter, which `write` omits.
        source = open_checkpoint(objects.save(os.path.join(folder, "all"), **options))
        for name in (*source.tensors, OBJECT_GRAPH):
            writer.copy(name, source)

"""Recognises the variables and slots in a checkpoint.

In a name-based checkpoint, which a Saver writes, variables and slots are recognised by the names,
shapes and dtypes of the tensors. In an object-based checkpoint, which `tf.train.Checkpoint` writes,
they are recognised by the object graph.

Modules that need TensorFlow are imported when they are first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..checkpoint_files.reader import Checkpoint
    from .items import Contents

__all__ = ["contents"]


def contents(checkpoint: Checkpoint) -> Contents:
    """Returns the `items.Contents` of a `Checkpoint`; reads no tensor except the object graph."""
    from . import named, object_based

    if checkpoint.object_graph is not None:
        return object_based.contents(checkpoint.tensors, checkpoint.object_graph)
    return named.named_contents(checkpoint.tensors)

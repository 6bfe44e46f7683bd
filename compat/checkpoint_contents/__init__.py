"""Recognises the variables and slots in a checkpoint.

Name-based checkpoints (of a Saver) are recognised by the names, shapes and dtypes of their tensors.
Object-based checkpoints (of `tf.train.Checkpoint`) are recognised by their object graph.
"""

from . import named, object_based
from .items import Contents

__all__ = ["Contents", "contents"]


def contents(checkpoint):
    """Finds the variables, slots and optimizers in a checkpoint, without reading its tensors.

    Args:
      checkpoint: a `Checkpoint`, the result of `open_checkpoint`.

    Returns:
      `Contents`.
    """
    if checkpoint.object_graph is not None:
        return object_based.contents(checkpoint.tensors, checkpoint.object_graph)
    return named.named_contents(checkpoint.tensors)

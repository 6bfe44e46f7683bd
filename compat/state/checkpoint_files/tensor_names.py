"""Checks names of tensors in a checkpoint."""

from __future__ import annotations

from typing import Any, Optional

OBJECT_GRAPH = "_CHECKPOINTABLE_OBJECT_GRAPH"


def problem(name: Any) -> Optional[str]:
    """Returns why a name is not allowed, such as "is empty"; None if it is allowed.

    TensorFlow aborts the process if a tensor's name is "", because "" is the key of the index's
    header. TensorFlow loses tensors whose names begin with NUL, because it takes such a name for
    the key of one part of a partitioned variable.
    """
    if not isinstance(name, str):
        return "is not a string"
    if not name:
        return "is empty"
    if name.startswith("\0"):
        return "begins with a NUL character"
    if name == OBJECT_GRAPH:
        return "is reserved for the graph of a tf.train.Checkpoint"
    try:
        name.encode("utf-8")
    except UnicodeEncodeError:
        return "contains characters that UTF-8 does not have"
    return None

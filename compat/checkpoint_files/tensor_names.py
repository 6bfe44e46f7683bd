"""Which names tensors of a checkpoint can have."""

OBJECT_GRAPH = "_CHECKPOINTABLE_OBJECT_GRAPH"


def problem(name):
    """Returns why a tensor cannot have a name, a clause without its subject; None if it can.

    TensorFlow aborts the process at the name "", which its index keeps for a header; and it loses
    tensors whose names begin like the keys of parts.
    """
    if not isinstance(name, str):
        return "is no string"
    if not name:
        return "is empty"
    if name.startswith("\0"):
        return "begins with a NUL character"
    if name == OBJECT_GRAPH:
        return "is reserved for the graph of a tf.train.Checkpoint"
    try:
        name.encode("utf-8")
    except UnicodeEncodeError:
        return "holds characters that UTF-8 does not have"
    return None

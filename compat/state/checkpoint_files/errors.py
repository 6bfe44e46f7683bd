"""The error of everything that reads or writes checkpoint files."""

AGAIN = "Copy the checkpoint again from where it was written."


class CheckpointError(ValueError):
    """A checkpoint is missing, truncated or corrupt, or a file is not a checkpoint.

    Example::

        try:
            legacy_opt.compat.load_v1_checkpoint("v1/ckpt", [tf.Variable(1.0)], None)
        except legacy_opt.compat.CheckpointError as error:
            print(error)  # 'v1/ckpt': there is no such checkpoint. The folder 'v1' does not exist.
    """


def check_data_file(checkpoint, name, size, needed):
    """Raises a CheckpointError if a data file is missing (its `size` is None) or too small."""
    if size is None:
        raise CheckpointError(
            f"{checkpoint!r} is incomplete: the data file {name!r} is missing. {AGAIN}"
        )
    if size < needed:
        raise CheckpointError(
            f"{checkpoint!r} is truncated: the data file {name!r} has {size} bytes, and the index "
            f"needs {needed}. {AGAIN}"
        )

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

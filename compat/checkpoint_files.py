"""Checkpoints as files: what others use of reading and of writing them.

Nothing here knows models or optimizers, and nothing needs a graph or a Session of the caller's.
"""

from legacy_opt.compat.checkpoint_paths import CheckpointError
from legacy_opt.compat.checkpoint_reader import Checkpoint, TensorInfo, open_checkpoint
from legacy_opt.compat.checkpoint_writer import CheckpointWriter

__all__ = ["Checkpoint", "CheckpointError", "CheckpointWriter", "TensorInfo", "open_checkpoint"]

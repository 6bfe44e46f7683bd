"""Checkpoints as files: what others use of reading and of writing them.

Nothing here knows models or optimizers, and nothing needs a graph or a Session of the caller's.
"""

from .paths import CheckpointError
from .reader import Checkpoint, TensorInfo, open_checkpoint
from .writer import CheckpointWriter

__all__ = ["Checkpoint", "CheckpointError", "CheckpointWriter", "TensorInfo", "open_checkpoint"]

"""Reads and writes checkpoint files.

The package imports neither Keras nor optimizers. Callers need neither a graph nor a Session.
"""

from .paths import CheckpointError
from .reader import Checkpoint, TensorInfo, open_checkpoint
from .writer import CheckpointWriter

__all__ = ["Checkpoint", "CheckpointError", "CheckpointWriter", "TensorInfo", "open_checkpoint"]

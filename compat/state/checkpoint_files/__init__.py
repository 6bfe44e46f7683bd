"""Reads and writes checkpoint files.

The package imports neither Keras nor optimizers. Callers need neither a graph nor a Session. Names
are imported when they are first used, because `plain_reader` works without TensorFlow.
"""

import importlib as _importlib
from typing import TYPE_CHECKING as _FOR_TOOLS

if _FOR_TOOLS:
    from .errors import CheckpointError
    from .reader import Checkpoint, TensorInfo, open_checkpoint
    from .writer import CheckpointWriter

_HOMES = {
    "Checkpoint": "reader",
    "CheckpointError": "errors",
    "CheckpointWriter": "writer",
    "TensorInfo": "reader",
    "open_checkpoint": "reader",
}
__all__ = ["Checkpoint", "CheckpointError", "CheckpointWriter", "TensorInfo", "open_checkpoint"]


def __getattr__(name):
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(_importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)

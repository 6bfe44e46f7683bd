"""Searches the call stack for callers in TensorFlow."""

from __future__ import annotations

import sys


def writing_saved_model() -> bool:
    """Whether TensorFlow's SavedModel writer is on the call stack.

    TensorFlow does not pass the file format to an optimizer in another way.
    """
    frame = sys._getframe(1)
    while frame is not None:
        if frame.f_globals.get("__name__", "").endswith(".python.saved_model.save"):
            return True
        frame = frame.f_back
    return False


def called_by_checkpoint() -> bool:
    """Whether TensorFlow's object-based checkpoint code called the function that calls this one."""
    module = sys._getframe(2).f_globals.get("__name__", "")
    return ".python.training.tracking." in module or ".python.checkpoint." in module

"""Who calls, where no argument says so."""

import sys


def writing_saved_model():
    """Whether TensorFlow is writing a SavedModel, and its saving code is among the callers.

    No version tells an optimizer for what kind of file it is asked for its slots.
    """
    frame = sys._getframe(1)
    while frame is not None:
        if frame.f_globals.get("__name__", "").endswith(".python.saved_model.save"):
            return True
        frame = frame.f_back
    return False


def asked_by_a_checkpoint():
    """Whether the caller was called by the code that writes object-based checkpoints."""
    asking = sys._getframe(2).f_globals.get("__name__", "")
    return ".python.training.tracking." in asking or ".python.checkpoint." in asking

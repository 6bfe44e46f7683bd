"""Issues warnings that point at a line of the user's code; defines the warning classes."""

import sys
import warnings


class GlobalStepWarning(UserWarning):
    """An optimizer depends on the global step, but does not increment it."""


class DifferenceFromOriginalWarning(UserWarning):
    """An optimizer computes something else than the original optimizer of the same name."""


class UseLockingWarning(UserWarning):
    """`use_locking=True` has no effect: only fused and native kernels lock, and none is used."""


class NativeKernelWarning(UserWarning):
    """An optimizer with `native="auto"` runs without a compiled kernel."""


class RepartitionWarning(UserWarning):
    """Training can continue from a checkpoint only with the same partitions of a variable."""


# The packages whose frames are not the user's own code.
_NOT_THE_USERS = ("contextlib", "keras", "legacy_opt", "tensorflow", "tensorflow_core", "tf_keras")


def users_frame():
    """Returns the innermost stack frame outside this package, TensorFlow and Keras, or None."""
    frame = sys._getframe(1)
    while frame is not None:
        package = frame.f_globals.get("__name__", "").split(".")[0]
        if package not in _NOT_THE_USERS:
            return frame
        frame = frame.f_back
    return None


def warn(message, category):
    """Issues a warning that points at the user's line, the line of `users_frame`."""
    level, frame, users = 2, sys._getframe(1), users_frame()
    while frame is not None and frame is not users:
        level, frame = level + 1, frame.f_back
    warnings.warn(message, category, stacklevel=level)

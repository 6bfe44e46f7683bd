"""The warnings that an optimizer gives, at the line of the user's code that it is about."""

import sys
import warnings


class GlobalStepWarning(UserWarning):
    """An optimizer that depends on the global step was given none to advance."""


class UseLockingWarning(UserWarning):
    """`use_locking=True` cannot be kept: the update runs without a kernel that locks."""


class RepartitionWarning(UserWarning):
    """A checkpoint of a partitioned variable will go on rightly with the same partitions alone."""


# The packages whose frames are not the user's own code.
_NOT_THE_USERS = ("contextlib", "keras", "legacy_opt", "tensorflow", "tensorflow_core", "tf_keras")


def users_frame():
    """Returns the frame of the user's own code that led here, or None.

    It is the innermost one outside this package, TensorFlow and Keras.
    """
    frame = sys._getframe(1)
    while frame is not None:
        package = frame.f_globals.get("__name__", "").split(".")[0]
        if package not in _NOT_THE_USERS:
            return frame
        frame = frame.f_back
    return None


def warn(message, category):
    """Warns at the user's own line: see `users_frame`."""
    level, frame, users = 2, sys._getframe(1), users_frame()
    while frame is not None and frame is not users:
        level, frame = level + 1, frame.f_back
    warnings.warn(message, category, stacklevel=level)

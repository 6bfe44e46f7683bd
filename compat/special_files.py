"""Paths of users where there is something else than what is to be read, or written.

Opening a FIFO blocks, and a device has no end.
"""

import os
import stat

_KINDS = (
    (stat.S_ISFIFO, "a FIFO (named pipe)"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a character device"),
    (stat.S_ISBLK, "a block device"),
)


class SpecialFileError(OSError, ValueError):
    """A path leads to neither a regular file nor a folder."""


def kind(path):
    """Returns what a path leads to, as "a FIFO (named pipe)"; None for files, folders, nothing."""
    try:
        mode = os.stat(path).st_mode
    except (OSError, ValueError):  # nothing there, or a path that only TensorFlow can open
        return None
    return next((name for is_kind, name in _KINDS if is_kind(mode)), None)


def refuse(*paths):
    """Raises a SpecialFileError if one of the paths leads to neither a file nor a folder."""
    for path in paths:
        found = kind(path)
        if found is not None:
            raise SpecialFileError(f"{path!r} is {found}, and not a regular file.")


def refuse_existing(path, overwrite):
    """Raises a ValueError if there is something where a file, or a checkpoint, is to be written.

    Args:
      path: the file, or the prefix of the checkpoint.
      overwrite: whether a file that is there may be replaced.
    """
    refuse(path, path + ".index")
    there = [each for each in (path, path + ".index") if os.path.lexists(each)]
    if there and not overwrite:
        raise ValueError(f"{there[0]!r} is there already. Pass --overwrite to replace it.")
    if os.path.isdir(path):
        raise ValueError(f"{path!r} is a folder. Name what to write in it.")

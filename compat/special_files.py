"""Raises errors for paths to FIFOs, sockets and devices, and for files that are too large.

Otherwise the program could hang: opening a FIFO blocks, and reading a device may never end. A file
with holes may be far larger than the disk.
"""

from __future__ import annotations

import os
import stat
from typing import Optional, Union

MOST_OF_TEXT = 16 << 20  # bytes of a text, such as a name map or a program
_KINDS = (
    (stat.S_ISFIFO, "a FIFO (named pipe)"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a character device"),
    (stat.S_ISBLK, "a block device"),
)


class SpecialFileError(OSError, ValueError):
    """A path leads to a FIFO, a socket or a device, or to a file that is too large."""


def kind(path: Union[str, os.PathLike]) -> Optional[str]:
    """Returns the kind of a special file, such as "a FIFO (named pipe)".

    Returns None for a regular file, a folder and a path that does not exist.
    """
    try:
        mode = os.stat(path).st_mode
    except (OSError, ValueError):  # there is no file, or only TensorFlow can open the path
        return None
    return next((name for is_kind, name in _KINDS if is_kind(mode)), None)


def refuse(*paths: Union[str, os.PathLike], most: Optional[int] = None):
    """Raises a SpecialFileError if a path leads to a special file, or to more than `most` bytes."""
    for path in paths:
        found = kind(path)
        if found is not None:
            raise SpecialFileError(f"{path!r} is {found}, and not a regular file.")
        if most is not None and os.path.isfile(path) and os.path.getsize(path) > most:
            raise SpecialFileError(f"{path!r} has more than {most >> 20} MiB: it is damaged.")


def refuse_existing(path: str, overwrite: bool, option: str = "--overwrite"):
    """Raises a ValueError if a file, or a checkpoint with this prefix, cannot be written.

    The message names the `option` that replaces an existing file.
    """
    refuse(path, path + ".index")
    is_folder = os.path.isdir(path)
    if is_folder or not os.path.basename(path):
        problem = "is a folder" if is_folder else "has no file name"
        raise ValueError(f"{path!r} {problem}. Add the name of the file to write.")
    existing = [each for each in (path, path + ".index") if os.path.lexists(each)]
    if existing and not overwrite:
        raise ValueError(f"{existing[0]!r} exists already. Pass {option} to replace it.")

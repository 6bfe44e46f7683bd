"""Detects files that are replaced, overwritten or deleted while they are read."""

from __future__ import annotations

import os
from typing import Iterable, Optional, Tuple

import tensorflow as tf


def stamp(path: str) -> Optional[Tuple[int, int, Optional[int]]]:
    """Returns a file's size, modification time and inode; None if the file does not exist."""
    try:
        if "://" in path:
            status = tf.io.gfile.stat(path)
            return status.length, status.mtime_nsec, None  # TensorFlow gives no inode
        status = os.stat(path)
        return status.st_size, status.st_mtime_ns, status.st_ino
    except (OSError, tf.errors.OpError):
        return None


class Watch:
    """Compares files with their `stamp` when this object was created."""

    def __init__(self, paths: Iterable[str]) -> None:
        self.stamps = {path: stamp(path) for path in paths}

    def changes(self) -> Optional[str]:
        """Returns a sentence about the first file that has changed; None if no file has changed."""
        for path, before in self.stamps.items():
            now = stamp(path)
            if before is None or now is None:
                return f"{path!r} was deleted while it was read."
            if now[:2] != before[:2]:  # the inode may change at any time on some file systems
                return f"{path!r} was overwritten while it was read."
        return None

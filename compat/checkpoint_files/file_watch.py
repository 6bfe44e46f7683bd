"""Notices that files are replaced, written or deleted while they are read."""

import os

import tensorflow as tf


def stamp(path):
    """Returns a file's size, time of change and inode; None if it is not there."""
    try:
        if "://" in path:
            found = tf.io.gfile.stat(path)
            return found.length, found.mtime_nsec, None
        found = os.stat(path)
        return found.st_size, found.st_mtime_ns, found.st_ino
    except (OSError, tf.errors.OpError):
        return None


class Watch:
    """Remembers the states of files.

    Args:
      paths: the files, which are there.

    Attributes:
      stamps: a dict from each path to its `stamp`.
    """

    def __init__(self, paths):
        self.stamps = {path: stamp(path) for path in paths}

    def changes(self):
        """Returns a sentence on a file that is not what it was; None if all are."""
        for path, before in self.stamps.items():
            now = stamp(path)
            if before is None or now is None:
                return f"{path!r} was deleted while it was read."
            if now[:2] != before[:2]:  # some file systems give a file new inodes as they please
                return f"{path!r} was written anew while it was read."
        return None

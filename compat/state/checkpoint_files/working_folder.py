"""Provides a hidden folder in which one writer at a time writes files before it renames them."""

from __future__ import annotations

import contextlib
import os
from typing import Any, Set, TextIO

import tensorflow as tf

from .errors import CheckpointError

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None

_LOCK = ".lock"


class WorkingFolder:
    """A context manager for the folder `.NAME.writing` beside the file to be written, NAME.

    A locked file in the folder keeps other threads and processes out. The operating system releases
    the lock when the process ends. Files that a killed process left in the folder are removed.
    There is no lock on Windows, on file systems without locks, or on file systems that only
    TensorFlow can open (`gs://…`).

    Missing parent folders of the `target` are created, and removed at the end if they are still
    empty. If another writer uses the folder, `wait` says whether to wait until it is done, instead
    of raising a CheckpointError. `left_behind` says whether a killed process had left files there.
    """

    def __init__(self, target: str, wait: bool = False) -> None:
        self._target = target
        self._wait = wait
        self._parent, name = os.path.split(target)
        self.path = os.path.join(self._parent, f".{name}.writing")
        self.left_behind = False
        self._is_local = "://" not in target
        self._lock = None
        self._made_folders = []

    def __enter__(self) -> WorkingFolder:
        folder = self._parent
        while folder and not tf.io.gfile.exists(folder):
            self._made_folders.append(folder)
            folder = os.path.dirname(folder)
        try:
            self._take()
            self.left_behind = self._empty()
        except BaseException:
            self._leave()
            raise
        return self

    def _take(self) -> None:
        while self._lock is None:
            tf.io.gfile.makedirs(self.path)
            if fcntl is None or not self._is_local:
                return
            path = os.path.join(self.path, _LOCK)
            with contextlib.suppress(FileNotFoundError), contextlib.ExitStack() as stack:
                lock = stack.enter_context(open(path, "a"))
                self._await(lock)
                # Another writer may have removed the lock file and the folder in the meantime.
                if os.path.samestat(os.fstat(lock.fileno()), os.stat(path)):
                    stack.pop_all()
                    self._lock = lock

    def _await(self, lock: TextIO) -> None:
        flags = fcntl.LOCK_EX if self._wait else fcntl.LOCK_EX | fcntl.LOCK_NB
        try:
            fcntl.flock(lock, flags)
        except BlockingIOError:
            raise CheckpointError(
                f"{self._target!r} is being written by another process or thread. Wait until "
                "it is done, or choose another name."
            ) from None
        except OSError:  # this file system has no locks
            pass

    def written(self) -> Set[str]:
        """Returns the names of the files and folders that have been written in this folder."""
        return {name.rstrip("/") for name in tf.io.gfile.listdir(self.path)} - {_LOCK}

    def _empty(self) -> bool:
        """Removes all files except the lock, and returns whether there were such files."""
        names = self.written()
        for path in (os.path.join(self.path, name) for name in names):
            if tf.io.gfile.isdir(path):
                tf.io.gfile.rmtree(path)
            else:
                tf.io.gfile.remove(path)
        return bool(names)

    def __exit__(self, kind: Any, error: Any, traceback: Any) -> None:
        try:
            self._empty()
        finally:
            if self._is_local:
                # The lock file is removed last, because afterwards another writer may enter.
                with contextlib.suppress(OSError):
                    if self._lock is not None:
                        os.remove(self._lock.name)
                    os.rmdir(self.path)
            else:
                tf.io.gfile.rmtree(self.path)
            self._leave()

    def _leave(self) -> None:
        """Releases the lock, and removes the folders that were created on entering, if empty."""
        if self._lock is not None:
            self._lock.close()
        self._lock = None
        for folder in self._made_folders:
            if self._is_local:
                with contextlib.suppress(OSError):
                    os.rmdir(folder)
            elif not tf.io.gfile.listdir(folder):
                tf.io.gfile.rmtree(folder)

"""Writes files that are complete after a crash, a kill or a loss of power."""

from __future__ import annotations

import contextlib
import errno
import glob
import os
import secrets
from pathlib import Path
from typing import BinaryIO, Iterator, Optional, Union

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None

PathLike = Union[str, os.PathLike]


@contextlib.contextmanager
def replaced(path: PathLike) -> Iterator[Path]:
    """Scope with the path of an empty file, which is renamed to `path` at the end.

    A crash at any moment leaves the old file or the new file; after the scope, the new file is on
    the disk. An error removes the temporary file, and the next writer of `path` removes those that
    killed processes have left. A symbolic link stays: the file that it names is replaced.

    A running writer, of any thread, process or container, has locked its temporary file. Where
    there are no locks (Windows, some network file systems), what a killed process leaves stays.
    """
    path = Path(os.path.realpath(str(path)))
    for left in path.parent.glob(_temporary_name(glob.escape(path.name), "[0-9a-f]" * 16)):
        with contextlib.suppress(OSError), left.open("r+b") as file:
            if _lock(file):
                left.unlink()
    file = _locked_file(path)
    temporary = Path(file.name)
    try:
        if fcntl is None:
            file.close()  # Windows does not rename an open file
        yield temporary
        rename(temporary, path)
    finally:
        file.close()
        with contextlib.suppress(FileNotFoundError):
            temporary.unlink()


def rename(source: PathLike, target: PathLike) -> None:
    """Renames a file after its content has reached the disk, and waits until its name has, too."""
    flush(source)
    os.replace(str(source), str(target))
    flush(os.path.dirname(os.path.abspath(str(target))))


def flush(path: PathLike) -> None:
    """Waits until a file's content, or a folder's list of names, is on the disk."""
    is_folder = os.path.isdir(str(path))
    if is_folder and os.name == "nt":  # Windows cannot open a folder
        return
    descriptor = os.open(str(path), os.O_RDONLY if is_folder else os.O_RDWR)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if not is_folder or error.errno != errno.EINVAL:  # some file systems flush no folders
            raise
    finally:
        os.close(descriptor)


def _temporary_name(name: str, digits: str) -> str:
    return f".writing-{digits}-{name}"  # the suffix stays: some libraries choose a format by it


def _locked_file(path: Path) -> BinaryIO:
    """Returns a new temporary file for `path`, locked where there are locks."""
    while True:
        temporary = path.with_name(_temporary_name(path.name, secrets.token_hex(8)))
        try:
            file = temporary.open("x+b")
        except OSError as error:  # the user knows `path`
            raise OSError(error.errno, error.strerror, str(path)) from None
        if _lock(file) is not False and temporary.exists():
            return file
        file.close()  # another writer took it for a file of a killed process


def _lock(file: BinaryIO) -> Optional[bool]:
    """Locks a file. Returns whether it could, or None if there are no locks here."""
    if fcntl is None:
        return None
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return None
    return True

"""Recognises kinds of files by the endings of their names, in upper or lower case."""

from __future__ import annotations

from typing import Iterable

KERAS = (".keras", ".h5", ".hdf5")
NOTEBOOK = (".ipynb",)
PYTHON = (".py",)
INDEX = ".index"  # of a checkpoint in the Saver's V2 format


def ending_of(path: str, endings: Iterable[str]) -> str:
    """Returns the ending of a path if it is one of `endings` (in lower case), or ""."""
    return next((each for each in endings if path.lower().endswith(each)), "")


def prefix_of(path: str) -> str:
    """Returns the prefix of a checkpoint; `path` is the prefix, or the path of the index."""
    return path[: -len(INDEX)] if path.endswith(INDEX) else path

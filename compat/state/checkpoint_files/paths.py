"""Finds the checkpoint that a path refers to. If there is none, an error says why."""

from __future__ import annotations

import os
import re
import reprlib
from typing import Any, List, Optional, Pattern, Tuple

import tensorflow as tf

from ... import special_files
from ...file_endings import INDEX, prefix_of
from .errors import CheckpointError
from .index import is_table

V1, V2 = "V1", "V2"
_SAVED_MODEL = ("saved_model.pb", "saved_model.pbtxt")

_DATA_FILE = re.compile(r"(.*)\.data-\d{5}-of-\d{5}$")
_V1_SHARD = re.compile(r"(.*)-\d{5}(-of-\d{5})$")
_V1_PATTERN = re.compile(r"(.*)-\?{5}(-of-\d{5})$")  # the path that the Saver returns


def refuse_special(*paths: str, most: Optional[int] = None) -> None:
    """Raises a CheckpointError for FIFOs, sockets, devices and too large files: see `refuse`."""
    try:
        special_files.refuse(*paths, most=most)
    except special_files.SpecialFileError as error:
        raise CheckpointError(str(error)) from error


def refuse_missing(path: str) -> None:
    """Raises a CheckpointError if a path does not lead to a regular file."""
    refuse_special(path)
    if not os.path.isfile(path):
        raise CheckpointError(f"{path!r}: there is no such file.")


def reason(error: BaseException) -> str:
    """Returns the line of a TensorFlow error's message that says what is wrong."""
    text = str(getattr(error, "message", None) or error).strip() or type(error).__name__
    # If the message names an operation ("[[…"), the reason directly precedes the name, and
    # earlier lines say where the operation was created. Otherwise the first line is the reason.
    before, _, where = text.partition("[[")
    lines = before.strip().splitlines()
    return lines[-1] if where else lines[0]


def as_text(path: Any, argument: str = "path", signature: str = "") -> str:
    """Returns a path as a string. Raises a TypeError if it is not a path.

    The message names the caller's `argument`. It also shows the caller's `signature`, if given, so
    that users notice swapped arguments.
    """
    try:
        return os.fsdecode(path)
    except TypeError:
        note = f" Pass {signature}." if signature else ""
        raise TypeError(
            f"{argument} must be the path of a checkpoint, a string or os.PathLike, got "
            f"{reprlib.repr(path)} of type {type(path).__name__}.{note}"
        ) from None


def locate(path: Any) -> Tuple[str, str]:
    """Finds the checkpoint that a path refers to, or raises a CheckpointError with what is there.

    `path` is the prefix of a checkpoint, its `.index` file, a file in V1 format, or a folder, which
    refers to the latest checkpoint in it. Returns the prefix (in V1 format the path of the file, or
    the pattern of several files), and V1 or V2.
    """
    path = as_text(path)
    prefix = prefix_of(path)
    if is_file(prefix + INDEX):
        return prefix, V2
    refuse_special(path, prefix + INDEX)
    refuse_special(os.path.join(path, "checkpoint"), most=special_files.MOST_OF_TEXT)
    if tf.io.gfile.isdir(path):
        return _latest(path)
    if is_file(path):
        return _in_one_file(path)
    shards = v1_shards(_V1_PATTERN.sub(r"\1", path))
    patterns = set(map(_pattern, shards))
    # The path must be a pattern, or the prefix of exactly one pattern.
    if path in patterns:
        return path, V1
    if len(patterns) == 1:
        return patterns.pop(), V1
    raise CheckpointError(f"{path!r}: there is no such checkpoint.{_what_is_there(path)}")


def is_file(path: str) -> bool:
    """Returns whether a path leads to a regular file."""
    if not tf.io.gfile.exists(path) or tf.io.gfile.isdir(path):
        return False
    return special_files.kind(path) is None


def data_files(prefix: str) -> List[str]:
    """Returns the data files of a checkpoint (V2 format), even if its index is missing."""
    return _files_beside(prefix, _DATA_FILE)


def v1_shards(prefix: str) -> List[str]:
    """Returns the files of a checkpoint in V1 format that was saved in several files."""
    return _files_beside(prefix, _V1_SHARD)


def files_of(prefix: str) -> List[str]:
    """Returns the files of a checkpoint in V1 or V2 format; [] if it does not exist."""
    files = [prefix + INDEX] if is_file(prefix + INDEX) else []
    if is_file(prefix):
        _, end = _start_and_end(prefix)
        files += [prefix] if is_table(end) else []
    return files + data_files(prefix) + v1_shards(prefix)


def _files_beside(prefix: str, pattern: Pattern[str]) -> List[str]:
    folder, name = os.path.split(prefix)
    matches = ((each, pattern.match(each)) for each in _file_names(folder))
    return [os.path.join(folder, each) for each, match in matches if match and match[1] == name]


def _file_names(folder: str) -> List[str]:
    folder = folder or os.curdir
    if not tf.io.gfile.isdir(folder):
        return []
    return sorted(name.rstrip("/") for name in tf.io.gfile.listdir(folder))


def prefixes(folder: str) -> List[str]:
    """Returns the names of the checkpoints (V2 format) in a folder."""
    return [name[: -len(INDEX)] for name in _file_names(folder) if name.endswith(INDEX)]


def _latest(folder: str) -> Tuple[str, str]:
    """Finds the checkpoint that a folder's `checkpoint` file names."""
    try:
        latest = tf.train.latest_checkpoint(folder)
    except (ValueError, tf.errors.OpError):
        latest = None
    if latest is not None:
        return locate(latest)
    if _is_saved_model(folder):
        raise CheckpointError(
            f"{folder!r} is a SavedModel. Name the checkpoint of its variables: "
            f"{in_saved_model(folder)!r}"
        )
    state = tf.train.get_checkpoint_state(folder)
    problem = "no `checkpoint` file in it names the latest checkpoint."
    if state is not None and state.model_checkpoint_path:
        name = state.model_checkpoint_path
        problem = f"its `checkpoint` file names {name!r}, which does not exist."
    raise CheckpointError(f"{folder!r} is a folder, and {problem}{_checkpoints_to_choose(folder)}")


def in_saved_model(path: str) -> str:
    """Returns the path of the checkpoint in a SavedModel. Returns other paths unchanged."""
    return os.path.join(path, "variables", "variables") if _is_saved_model(path) else path


def _is_saved_model(folder: str) -> bool:
    return not set(_SAVED_MODEL).isdisjoint(_file_names(folder))


def _checkpoints_to_choose(folder: str, subject: str = "It") -> str:
    names = prefixes(folder)
    if not names:
        return f" {subject} contains no checkpoint in V2 format."
    shown = [os.path.join(folder, name) for name in names[:4]]
    return f" Name one of these: {', '.join(shown)}{', …' if len(names) > 4 else ''}"


def _in_one_file(path: str) -> Tuple[str, str]:
    """Returns the result of `locate` for a file, which must be a checkpoint in V1 format."""
    match = _DATA_FILE.match(path)
    if match:
        index = match[1] + INDEX
        note = "" if is_file(index) else f" (whose index, {index!r}, is missing)"
        raise CheckpointError(
            f"{path!r} is one data file of a checkpoint. Name the checkpoint by its prefix: "
            f"{match[1]!r}{note}"
        )
    start, end = _start_and_end(path)
    if is_table(end):
        return _pattern(path), V1
    raise CheckpointError(f"{path!r} is not a checkpoint: it {_looks_like(path, start)}")


def _pattern(path: str) -> str:
    """Returns the pattern of a checkpoint's files in V1 format; `path` if this is the only file."""
    return _V1_SHARD.sub(r"\1-?????\2", path)


def _start_and_end(path: str) -> Tuple[bytes, bytes]:
    with tf.io.gfile.GFile(path, "rb") as file:
        start = file.read(1024)
        file.seek(max(0, file.size() - 48))  # the footer of a table
        return start, file.read()


def _looks_like(path: str, start: bytes) -> str:
    """Returns the end of a sentence: the kind of a file, and often what to do instead."""
    folder, name = os.path.split(path)
    if not start:
        return "is empty."
    if start.startswith(b"\x89HDF\r\n\x1a\n"):
        return (
            "is an HDF5 file (.h5), a format in which Keras saves models and weights. Load "
            f"weights by: model.load_weights({path!r}), and a model by: {_load_model(path)}"
        )
    if start.startswith(b"PK\x03\x04"):
        return (
            "is a zip archive (.keras?), a format in which Keras saves models. Load it by: "
            f"{_load_model(path)}"
        )
    if name == "checkpoint":
        return f"only names checkpoints. Name its folder: {folder or os.curdir!r}"
    if name.endswith(".meta"):
        return f"is the graph of a checkpoint. Name the checkpoint: {path[: -len('.meta')]!r}"
    if name in _SAVED_MODEL:
        return (
            "belongs to a SavedModel. Name the checkpoint of its variables: "
            f"{os.path.join(folder, 'variables', 'variables')!r}"
        )
    if _is_text(start):
        return "is a text file. Name a checkpoint's prefix, or the folder that it is in."
    return "is of an unknown kind, or truncated. Name a checkpoint's prefix."


def _load_model(path: str) -> str:
    """Returns code that loads a model, also with an optimizer that `to_keras` made."""
    return (
        "import legacy_opt, tensorflow as tf; model = tf.keras.models.load_model("
        f"{path!r}, custom_objects=legacy_opt.compat.custom_objects())"
    )


def _is_text(start: bytes) -> bool:
    if b"\0" in start:
        return False
    # A character has up to 4 bytes, and the last one may be cut off, here or by `[:-4]`.
    try:
        (start[:-4] or start).decode("utf-8")
    except UnicodeDecodeError as error:
        return error.start > len(start) - 8
    return True


def _what_is_there(path: str) -> str:
    folder = os.path.dirname(path)
    if data_files(path):
        return f" Its data files are there, but its index, {path + INDEX!r}, is missing."
    if v1_shards(path):
        return " There are several checkpoints in V1 format with that prefix."
    if not tf.io.gfile.isdir(folder or os.curdir):
        return f" The folder {folder!r} does not exist."
    return _checkpoints_to_choose(folder, subject="Its folder")

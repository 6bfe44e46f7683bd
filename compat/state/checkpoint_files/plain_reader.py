"""Reads checkpoints of a Saver (V2 format) in local files with NumPy alone, tensor by tensor."""

from __future__ import annotations

import ast
import contextlib
import os
import re
from typing import Any, Optional, Tuple

import numpy as np

from ... import special_files
from ...file_endings import INDEX, prefix_of
from .errors import AGAIN, CheckpointError
from .index import MOST_BYTES, parse_index
from .stored_data import DTYPES, DataFiles
from .tensor_info import unknown_dtype
from .tensor_names import OBJECT_GRAPH

_LATEST = re.compile(r'^model_checkpoint_path: (".*")$', re.MULTILINE)


class PlainCheckpoint:
    """A checkpoint to read from.

    `path` is the prefix of a checkpoint, its `.index` file, or a folder (its latest checkpoint).
    The attribute `path` is the prefix, and `tensors` has the `TensorInfo` of each name. A missing,
    truncated or corrupt checkpoint, or one of another kind, raises a CheckpointError.
    """

    def __init__(self, path: Any) -> None:
        self.path = _prefix(os.fsdecode(path))
        try:
            special_files.refuse(self.path + INDEX, most=MOST_BYTES)
            with open(self.path + INDEX, "rb") as file:
                index = parse_index(file.read())
        except OSError as error:
            raise CheckpointError(
                f"{self.path!r}: there is no checkpoint in V2 format: {error.strerror or error}"
            ) from error
        except ValueError as error:
            raise CheckpointError(f"{self.path + INDEX!r} is corrupt: {error}") from error
        if OBJECT_GRAPH in index.entries:
            raise CheckpointError(
                f"{self.path!r} was written by tf.train.Checkpoint. Convert it to a checkpoint of "
                "a Saver first: legacy-opt convert SRC DST --to v1"
            )
        self._stored = index.stored
        self._files = DataFiles(index.data_files(self.path))
        self.tensors = index.tensors(self.path, _size_of, _dtype_of)
        for name, info in self.tensors.items():
            if name not in self._stored:
                raise CheckpointError(
                    f"{self.path!r} is incomplete: parts of {name!r} are missing."
                )
            if info.is_readable and info.missing:
                raise CheckpointError(
                    f"{self.path!r} has only some parts of {name!r}. A Saver writes such slots of "
                    "partitioned variables if their optimizer is in a scope. Load the checkpoint "
                    "with load_v1_checkpoint, and write another with save_v1_checkpoint."
                )

    def read(self, name: str) -> np.ndarray:
        """Reads a tensor, and joins its parts. Needs at most twice the tensor's memory."""
        info = self.tensors[name]
        if not info.is_readable:
            raise CheckpointError(f"{self.path!r}: NumPy does not have the dtype of {name!r}.")
        try:
            return self._files.read(info, self._stored[name])
        except OSError as error:
            raise CheckpointError(f"{self.path!r} cannot be read: {error}") from error
        except ValueError as error:
            raise CheckpointError(
                f"{self.path!r} is corrupt: the checksum of the tensor {name!r} is wrong. {AGAIN}"
            ) from error


def _size_of(path: str) -> Optional[int]:
    special_files.refuse(path)
    with contextlib.suppress(OSError):
        return os.stat(path).st_size
    return None


def _dtype_of(number: int) -> Tuple[str, int]:
    if number not in DTYPES:
        return unknown_dtype(number), 0
    name = DTYPES[number]
    return name, np.dtype(name).itemsize


def _prefix(path: str) -> str:
    """Returns the prefix of the checkpoint `path`, or of the latest checkpoint in this folder."""
    if not os.path.isdir(path):
        return prefix_of(path)
    state = os.path.join(path, "checkpoint")
    try:
        special_files.refuse(state, most=special_files.MOST_OF_TEXT)
        with open(state, encoding="utf-8") as file:
            name = ast.literal_eval(_LATEST.search(file.read()).group(1))
    except (OSError, ValueError, SyntaxError, AttributeError) as error:  # `group` of no match
        raise CheckpointError(
            f"{path!r} is a folder, and no `checkpoint` file in it names the latest checkpoint."
        ) from error
    return os.path.join(path, name)

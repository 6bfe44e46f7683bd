"""Reads checkpoints of TensorFlow 1 and 2, tensor by tensor.

TensorFlow's CheckpointReader is not used for data, because it keeps a second copy of each tensor in
memory and cannot read single slices of partitioned variables in V1 format. What `stored_data` does
not read either, a temporary graph reads with RestoreV2, the operation that Saver uses.
"""

from __future__ import annotations

import contextlib
import hashlib
from typing import Any, Dict, Iterable, List, Optional, Sequence, Tuple

import numpy as np
import tensorflow as tf
from google.protobuf.message import DecodeError

from legacy_opt import versions
from legacy_opt.core.array_parts import Part

from ... import arrays
from . import paths, stored_data, v1_files
from .errors import AGAIN, CheckpointError
from .file_watch import Watch, stamp
from .index import MOST_BYTES, parse_index
from .object_graph import OBJECT_GRAPH, ObjectGraph, parse_object_graph
from .paths import V1, V2, reason
from .tensor_info import TensorInfo, unknown_dtype


def open_checkpoint(path: Any) -> Checkpoint:
    """Returns the Checkpoint of a path (see `paths.locate`), without reading its data."""
    return Checkpoint(*paths.locate(path))


class Checkpoint:
    """A checkpoint to read from, created by `open_checkpoint`.

    `path` is the prefix; in V1 format, the file or the pattern of the files. `tensors` has the
    `TensorInfo` of each name, without the object graph.
    """

    def __init__(self, path: str, format: str) -> None:
        self.path = path
        self.format = format
        self._watch = Watch([self._listing] if format == V2 else self._v1_files())
        reader, index = None, b""
        if format == V1:
            self._check_v1_files(with_data=False)
        try:
            if format == V1:
                reader = tf.compat.v1.train.NewCheckpointReader(path)
            else:  # with some shapes, TensorFlow's reader would abort the process
                paths.refuse_special(self._listing, most=MOST_BYTES)
                index = _content(self._listing)
        except (tf.errors.OpError, IndexError, RuntimeError, ValueError) as error:
            self._refuse_change()
            raise CheckpointError(
                f"{self._listing!r} is corrupt, or not a checkpoint: {reason(error)}"
            ) from error
        self._digest = hashlib.sha256(index).digest()
        self._data_files = stored_data.DataFiles([], _opened)
        self._is_checked = False  # whether all data of files in V1 format are
        self._stored = {}
        infos = _infos_v1(reader) if format == V1 else self._infos_v2(index)
        self._infos = dict(sorted(infos.items()))
        self.tensors = {name: info for name, info in self._infos.items() if name != OBJECT_GRAPH}
        self._object_graph = None

    @property
    def _listing(self) -> str:
        """The path of the index; in V1 format, of the file, or the pattern of the files."""
        return self.path if self.format == V1 else self.path + paths.INDEX

    def _v1_files(self) -> List[str]:
        files = tf.io.gfile.glob(self.path) if "?" in self.path else [self.path]
        paths.refuse_special(*files)
        return files

    def _check_v1_files(self, with_data: bool) -> None:
        for path in self._v1_files():
            try:
                v1_files.check(path, with_data)
            except (OSError, ValueError, DecodeError) as error:
                self._refuse_change()
                raise CheckpointError(f"{path!r} is corrupt: {error}") from error

    def _infos_v2(self, content: bytes) -> Dict[str, TensorInfo]:
        try:
            index = parse_index(content)
        except ValueError as error:
            raise CheckpointError(f"{self._listing!r} is corrupt: {error}") from error
        self._stored = index.stored
        self._data_files = stored_data.DataFiles(index.data_files(self.path), _opened)
        try:
            infos = index.tensors(self.path, _size_of, _dtype_of)
        except CheckpointError:
            self._refuse_change()
            raise
        self._watch = Watch([self._listing, *self._data_files.paths])
        return infos

    def check_unchanged(self) -> None:
        """Raises a CheckpointError if the checkpoint has changed since it was opened."""
        if self.format == V1:
            self._refuse_change()
        elif self._is_another_index():
            raise _changed(self._watch.changes() or f"{self._listing!r} was overwritten.")

    def _is_another_index(self) -> bool:
        """Returns whether the index, which contains the checksums of all data, has changed."""
        now = stamp(self._listing)
        if now is not None and now == self._watch.stamps[self._listing]:
            return False
        try:
            if hashlib.sha256(_content(self._listing)).digest() != self._digest:
                return True
        except tf.errors.OpError:
            return True
        self._watch.stamps[self._listing] = now
        return False

    def _refuse_change(self) -> None:
        changes = self._watch.changes()
        if changes is not None:
            raise _changed(changes)

    def info(self, name: str) -> TensorInfo:
        """Returns the TensorInfo of a tensor to read; a CheckpointError if there is none."""
        if self.format == V1 and not self._is_checked:
            self._check_v1_files(with_data=True)
            self._is_checked = True
        if name not in self._infos:
            raise CheckpointError(f"{self.path!r} contains no tensor {name!r}.")
        return self._infos[name]

    def read(self, name: str, part: Optional[Part] = None) -> np.ndarray:
        """Returns a tensor, or a part of it (shape, offset in the tensor), as a NumPy array.

        Raises a CheckpointError if there is no such tensor, its data are damaged, the installed
        TensorFlow lacks its dtype, or the checkpoint has been overwritten since it was opened.
        """
        info = self.info(name)
        if not info.is_readable:
            raise CheckpointError(
                f"{self.path!r}: TensorFlow {versions.tensorflow_version()} cannot read the "
                f"tensor {name!r}, whose dtype ({info.dtype}) it does not have."
            )
        value = self._stored_value(name, info, part)
        if value is None:
            value = self._restored_value(name, info, part)
        self.check_unchanged()
        return value

    def _stored_value(
        self, name: str, info: TensorInfo, part: Optional[Part]
    ) -> Optional[np.ndarray]:
        """Reads a tensor or a saved part without RestoreV2, which is slow; None if it cannot."""
        places = self._stored.get(name)
        if places is None or not stored_data.has_dtype(info):
            return None
        if part in info.parts:
            places, info = [places[info.parts.index(part)]], info._replace(shape=part[0], parts=())
        elif part is not None or info.missing:
            return None
        with contextlib.suppress(OSError, ValueError, MemoryError, tf.errors.OpError):
            return self._data_files.read(info, places)
        return None  # RestoreV2 raises the error

    def _restored_value(self, name: str, info: TensorInfo, part: Optional[Part]) -> np.ndarray:
        spec = "" if part is None else slice_spec(info.shape, *part)
        try:
            with tf.Graph().as_default(), session() as sess:
                return as_array(sess.run(restored(self.path, [name], [info.dtype], [spec])[0]))
        except tf.errors.OpError as error:
            self._refuse_change()
            raise CheckpointError(
                f"{self.path!r} is corrupt: the tensor {name!r} cannot be read: "
                f"{reason(error).rstrip('.')}. {AGAIN}"
            ) from error

    def verify(self, names: Iterable[str]) -> None:
        """Verifies the checksums of tensors without decoding the data of the tensors.

        The data are read in small chunks. Strings and tensors in V1 format cannot be verified in
        this way, so TensorFlow decodes them. For errors see `read`.
        """
        for name in names:
            if not self._matches_checksum(name):
                self.read(name)  # raises an error if TensorFlow cannot read the tensor
        self.check_unchanged()

    def _matches_checksum(self, name: str) -> bool:
        info = self.info(name)
        stored = self._stored.get(name)
        if stored is None or info.missing or not info.is_readable:
            return False
        try:
            return all(map(self._data_files.is_intact, stored))
        except (OSError, tf.errors.OpError):
            return False

    @property
    def object_graph(self) -> Optional[ObjectGraph]:
        """The ObjectGraph of an object-based checkpoint; None for a name-based checkpoint."""
        if OBJECT_GRAPH not in self._infos or self._object_graph is not None:
            return self._object_graph
        try:
            self._object_graph = parse_object_graph(self.read(OBJECT_GRAPH).item())
            return self._object_graph
        except ValueError as error:
            raise CheckpointError(
                f"{self.path!r} is corrupt: its object graph cannot be read: {error}"
            ) from error


def _content(path: str) -> bytes:
    with tf.io.gfile.GFile(path, "rb") as file:
        return file.read()


def _opened(path: str) -> Any:
    # Local files are not read with GFile, because it takes three times as long as `open`.
    return tf.io.gfile.GFile(path, "rb") if "://" in path else stored_data.opened(path)


def _changed(what: str) -> CheckpointError:
    return CheckpointError(
        f"{what} Try again; if that does not help, copy the checkpoint to a folder where nothing "
        "changes it."
    )


def _infos_v1(reader: Any) -> Dict[str, TensorInfo]:
    infos = {}
    dtypes = reader.get_variable_to_dtype_map()
    for name, shape in reader.get_variable_to_shape_map().items():
        dtype, width = _dtype_of(dtypes[name])
        infos[name] = TensorInfo(dtype, tuple(shape), arrays.count(shape) * width)
    return infos


def _size_of(path: str) -> Optional[int]:
    paths.refuse_special(path)
    return tf.io.gfile.stat(path).length if tf.io.gfile.exists(path) else None


def _dtype_of(number: Any) -> Tuple[str, int]:
    """Returns the name of a dtype, and the size of an element; see `Index.tensors`."""
    try:
        dtype = tf.as_dtype(number).base_dtype
    except (TypeError, KeyError, ValueError):
        return unknown_dtype(number), 0
    size = 0 if dtype in (tf.string, tf.variant, tf.resource) else dtype.size
    return dtype.name, size


def nbytes_of(dtype: str, shape: Sequence[int]) -> int:
    """Returns the size of a tensor in memory; 0 for strings."""
    return 0 if dtype == "string" else arrays.count(shape) * tf.as_dtype(dtype).size


def as_array(value: Any) -> np.ndarray:
    """Returns a NumPy array; for a string, of objects, because NumPy's strings drop final NULs."""
    return np.array(value, dtype=object) if isinstance(value, (bytes, str)) else np.asarray(value)


def session() -> Any:
    """Returns a Session without GPUs for the default graph."""
    return tf.compat.v1.Session(config=tf.compat.v1.ConfigProto(device_count={"GPU": 0}))


def slice_spec(full_shape: Sequence[int], shape: Sequence[int], offset: Sequence[int]) -> str:
    """Returns the string that describes a slice of a tensor in RestoreV2's `shape_and_slices`."""
    extents = ":".join(f"{start},{size}" for start, size in zip(offset, shape))
    return " ".join([str(int(size)) for size in full_shape] + [extents])


def restored(
    path: str, names: Sequence[str], dtypes: Sequence[str], specs: Sequence[str]
) -> List[tf.Tensor]:
    """Adds a RestoreV2 operation, which reads tensors from a V1 or V2 checkpoint.

    Each of the `specs` is the result of `slice_spec`, or "" for a whole tensor.
    """
    types = [tf.as_dtype(each) for each in dtypes]
    return tf.raw_ops.RestoreV2(
        prefix=path, tensor_names=names, shape_and_slices=specs, dtypes=types
    )

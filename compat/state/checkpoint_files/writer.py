"""Writes a checkpoint tensor by tensor. The checkpoint appears complete or not at all."""

from __future__ import annotations

import contextlib
import os
import time
from typing import Any, Dict, Iterator, List, NamedTuple, Optional

import numpy as np
import tensorflow as tf

from legacy_opt import durable_files

from ...file_endings import prefix_of
from . import paths as checkpoint_paths
from . import reader, tensor_names
from .errors import CheckpointError
from .index import parse_index
from .paths import reason
from .tensor_info import Place
from .working_folder import WorkingFolder

v1 = tf.compat.v1

# Smaller tensors share data files of up to this size. Each other tensor has its own data file.
SHARD_BYTES = 64 << 20
_STATE_FILE = "checkpoint"


class CheckpointWriter:
    """Writes a checkpoint in V2 format, which `tf.compat.v1.train.Saver` can restore.

    This is a context manager. The complete checkpoint appears when the `with` block ends without an
    exception. Until then, its files are in a hidden folder beside `path`. After an exception, the
    writer removes that folder; if the process is killed, the next writer removes it. Only one
    thread or process at a time can write to the same `path` (`WorkingFolder` says where there is
    no lock). At most one large tensor and 64 MB of small tensors are in memory at a time; strings
    copied from parts or from a checkpoint in V1 format are not counted, because their size is
    unknown. At the end, if `is_latest`, the `checkpoint` file beside `path` names the new
    checkpoint as the latest, as after `Saver.save`.

    An existing checkpoint stays readable until the new checkpoint replaces it. The name of a data
    file contains the number of data files. If the old index has the same number, the writer splits
    the last new data file, so that the new files have other names. It cannot split a file with a
    single tensor; then no checkpoint exists while the files are renamed.

    Raises a CheckpointError on entering, if `path` cannot be written; and on leaving, if writing
    failed, no tensor was added, or a checkpoint from which tensors were copied has changed.
    """

    def __init__(self, path: Any, overwrite: bool = False, is_latest: bool = True) -> None:
        self.path = prefix_of(checkpoint_paths.as_text(path))
        self._folder, self._name = os.path.split(self.path)
        self.working = WorkingFolder(self.path)
        self._overwrite, self._is_latest = overwrite, is_latest
        self._specs = {}  # {name: the specs of the parts, or "" if the tensor is whole}
        self._pending, self._pending_bytes = [], 0  # small tensors, which will share a data file
        self._shards = []  # prefixes of checkpoints with one data file each
        self._sources = {}  # {id: checkpoint from which tensors are copied}

    def __enter__(self) -> CheckpointWriter:
        self._check_path()
        with self._errors("cannot be written"):
            self.working.__enter__()
            with contextlib.ExitStack() as stack:
                stack.callback(self._clean_up)
                self._refuse_existing()
                stack.pop_all()
        return self

    @contextlib.contextmanager
    def _errors(self, what: str) -> Iterator[None]:
        try:
            yield
        except (tf.errors.OpError, OSError) as failure:
            raise CheckpointError(f"{self.path!r} {what}: {reason(failure)}") from failure

    def _check_path(self) -> None:
        if set(self.path) & set("*?[]"):
            raise CheckpointError(
                f"{self.path!r}: TensorFlow treats a path with *, ?, [ or ] as a pattern, and "
                "could not read the checkpoint. Choose another name."
            )
        if not self._name or tf.io.gfile.isdir(self.path):
            raise CheckpointError(
                f"{self.path!r} is a folder. Name the checkpoint in it: "
                f"{os.path.join(self.path, 'model.ckpt')!r}"
            )
        state = os.path.join(self._folder, _STATE_FILE)
        checkpoint_paths.refuse_special(self.path, self.path + checkpoint_paths.INDEX, state)
        if tf.io.gfile.isdir(state):
            raise CheckpointError(
                f"{state!r} is a folder, but TensorFlow writes the name of the latest checkpoint "
                f"to a file with this name. Choose another folder for {self._name!r}."
            )

    def _refuse_existing(self) -> None:
        if self._overwrite:
            return
        existing = checkpoint_paths.files_of(self.path)
        if self.working.left_behind and self.path + checkpoint_paths.INDEX not in existing:
            return  # a killed writer had published these data files, but not the index
        if existing:
            raise CheckpointError(
                f"{self.path!r} exists already: {existing[0]}. Choose another name, or pass "
                "overwrite=True."
            )

    def __exit__(self, kind: Any, error: Any, traceback: Any) -> None:
        try:
            if kind is None:
                with self._errors("could not be written"):
                    self._finish()
        finally:
            self._clean_up()

    def _clean_up(self) -> None:
        self.working.__exit__(None, None, None)

    def add(self, name: str, array: Any, part: Optional[Place] = None) -> None:
        """Writes a tensor, or one part of a larger tensor; then `part` is its `Place`."""
        array = reader.as_array(array)
        dtype = "string" if array.dtype.kind in "OSU" else tf.as_dtype(array.dtype).name
        nbytes = _nbytes(array)
        if nbytes < SHARD_BYTES:
            array = array.copy()  # the caller may change its array before the copy is written
        spec = "" if part is None else reader.slice_spec(part[0], array.shape, part[1])
        self._write(_ToWrite(name, spec, dtype, nbytes, array=array))

    def copy(
        self,
        name: str,
        checkpoint: reader.Checkpoint,
        source_name: Optional[str] = None,
        part: Optional[Place] = None,
    ) -> None:
        """Copies a tensor of another checkpoint; its name there is `source_name`, or else `name`.

        If the tensor becomes a part of a bigger tensor, `part` is a pair as for `add`. Otherwise
        the copy is saved in the same parts as the tensor. The errors are those of `add`, and of
        reading the tensor.
        """
        source_name = name if source_name is None else source_name
        self._sources[id(checkpoint)] = checkpoint
        info = checkpoint.info(source_name)
        if not info.is_readable:
            checkpoint.read(source_name)  # raises a CheckpointError
        source = _ToWrite(name, "", info.dtype, info.nbytes, checkpoint, source_name)
        if part is not None:
            spec = reader.slice_spec(part[0], info.shape, part[1])
            self._write(source._replace(spec=spec))
            return
        if not info.parts:
            self._write(source)
        for shape, offset in info.parts:
            spec = reader.slice_spec(info.shape, shape, offset)
            nbytes = reader.nbytes_of(info.dtype, shape)
            self._write(source._replace(spec=spec, source_spec=spec, nbytes=nbytes))

    def _write(self, item: _ToWrite) -> None:
        problem = tensor_names.problem(item.name)
        # A copied object graph may keep its reserved name.
        if problem is not None and item.name != item.source_name:
            raise CheckpointError(
                f"{self.path!r}: {item.name!r} cannot be a tensor's name: it {problem}."
            )
        specs = self._specs.setdefault(item.name, set())
        # A whole tensor has the spec "".
        if item.spec in specs or "" in specs or (specs and not item.spec):
            raise CheckpointError(f"{self.path!r}: the tensor {item.name!r} is written twice.")
        specs.add(item.spec)
        if item.nbytes >= SHARD_BYTES:
            self._save_shard([item])
            return
        if self._pending_bytes + item.nbytes > SHARD_BYTES:
            self._flush()
        self._pending.append(item)
        self._pending_bytes += item.nbytes

    def _flush(self) -> None:
        if self._pending:
            self._save_shard(self._pending)
        self._pending, self._pending_bytes = [], 0

    def _save_shard(self, items: List[_ToWrite]) -> None:
        prefix = os.path.join(self.working.path, f"shard-{len(self._shards)}", "part")
        try:
            _save(prefix, items)
        except tf.errors.OpError as error:
            for item in items:
                if item.checkpoint is not None and item.source_name is not None:
                    item.checkpoint.read(item.source_name)  # raises if its data are damaged
            raise CheckpointError(f"{self.path!r} could not be written: {reason(error)}") from error
        self._shards.append(prefix)

    def _finish(self) -> None:
        if not self._specs:
            raise CheckpointError(f"{self.path!r}: there is nothing to write.")
        self._flush_under_new_names()
        for checkpoint in self._sources.values():
            checkpoint.check_unchanged()
        merged = os.path.join(self.working.path, self._name)
        _merge(self._shards, merged)
        self._publish(merged)
        if self._is_latest:
            _name_as_latest(self._folder, self._name)

    def _flush_under_new_names(self) -> None:
        """Writes the pending tensors to as many data files as make their names new, if possible.

        If new data files had the names of old data files, the old index would describe new data for
        a moment. Files that the old index does not describe, of a killed writer, do not matter.
        """
        has_old_names = _shard_count(self.path) == len(self._shards) + 1
        if has_old_names and len(self._pending) > 1:
            self._save_shard([self._pending.pop()])
        self._flush()

    def _publish(self, merged: str) -> None:
        """Renames the data files, then the index, to their final names. Then removes old files."""
        sources = checkpoint_paths.data_files(merged)
        new_files = [self.path + each[len(merged) :] for each in sources]
        old_files = checkpoint_paths.files_of(self.path)
        index = self.path + checkpoint_paths.INDEX
        if _shard_count(self.path) in (len(sources), None):
            tf.io.gfile.remove(index)  # the old index must not describe new data
            if _is_local(index):
                durable_files.flush(os.path.dirname(os.path.abspath(index)))
        for source, target in zip(sources, new_files):
            _rename(source, target)
        _rename(merged + checkpoint_paths.INDEX, index)
        for old in set(old_files) - set(new_files) - {index}:
            tf.io.gfile.remove(old)


class _ToWrite(NamedTuple):
    """A tensor, or a part of a tensor, to be written. The specs of a whole tensor are ""."""

    name: str
    spec: str
    dtype: str
    nbytes: int
    checkpoint: Optional[reader.Checkpoint] = None
    source_name: Optional[str] = None
    source_spec: str = ""
    array: Optional[np.ndarray] = None


def _save(prefix: str, items: List[_ToWrite]) -> None:
    """Saves tensors as a checkpoint with one data file."""
    with tf.Graph().as_default(), reader.session() as session:
        feeds = {}
        tensors = _restored(items)
        for number, item in enumerate(items):
            if item.array is not None:
                tensors[number] = v1.placeholder(tf.as_dtype(item.dtype), item.array.shape)
                feeds[tensors[number]] = item.array
        save = tf.raw_ops.SaveV2(
            prefix=prefix,
            tensor_names=[item.name for item in items],
            shape_and_slices=[item.spec for item in items],
            tensors=[tensors[number] for number in range(len(items))],
        )
        session.run(save, feeds)


def _merge(shards: List[str], merged: str) -> None:
    """Merges checkpoints into one checkpoint. Renames the data files instead of copying them."""
    with tf.Graph().as_default(), reader.session() as session:
        merge = tf.raw_ops.MergeV2Checkpoints(
            checkpoint_prefixes=shards, destination_prefix=merged, delete_old_dirs=False
        )
        session.run(merge)


def _restored(items: List[_ToWrite]) -> Dict[int, tf.Tensor]:
    """Returns a dict from the positions of the items to be copied to tensors that read them."""
    groups, tensors = {}, {}
    for number, item in enumerate(items):
        if item.checkpoint is not None:
            groups.setdefault(item.checkpoint.path, {})[number] = item
    for path, group in groups.items():
        restored = reader.restored(
            path,
            [item.source_name for item in group.values()],
            [item.dtype for item in group.values()],
            [item.source_spec for item in group.values()],
        )
        tensors.update(zip(group, restored))
    return tensors


def _nbytes(array: np.ndarray) -> int:
    """Returns the size of an array, including the strings to which an array of objects refers."""
    if array.dtype != object:
        return array.nbytes
    return array.nbytes + sum(len(each) for each in array.flat if isinstance(each, (bytes, str)))


def _shard_count(prefix: str) -> Optional[int]:
    """Returns the number of data files that an index names; 0 if there is no index."""
    path = prefix + checkpoint_paths.INDEX
    if not checkpoint_paths.is_file(path):
        return 0
    with contextlib.suppress(ValueError), tf.io.gfile.GFile(path, "rb") as file:
        return len(parse_index(file.read()).data_bytes)
    return None  # the index is damaged


def _rename(source: str, target: str) -> None:
    """Renames a file. If the file system is local, a crash leaves the old or the whole new file."""
    if _is_local(target):
        durable_files.rename(source, target)
    else:
        tf.io.gfile.rename(source, target, overwrite=True)


def _is_local(path: str) -> bool:
    return "://" not in path  # otherwise only TensorFlow can open it


def _name_as_latest(folder: str, name: str) -> None:
    """Adds a checkpoint to the `checkpoint` file of its folder, as the latest checkpoint."""
    folder = folder or os.curdir
    file_name = os.path.join(folder, _STATE_FILE)
    with WorkingFolder(file_name, wait=True) as working:  # other writers may write the file, too
        new_file = os.path.join(working.path, _STATE_FILE)
        with tf.io.gfile.GFile(new_file, "w") as file:
            file.write(str(_state_with(folder, name)))
        _rename(new_file, file_name)


def _state_with(folder: str, name: str) -> Any:
    """Returns the new content of the `checkpoint` file, with `name` as the latest checkpoint."""
    prefix = os.path.join(folder, "")
    paths, times = [], []
    try:
        state = tf.train.get_checkpoint_state(folder)
    except ValueError:  # the file names no checkpoint
        state = None
    if state is not None:
        paths, times = state.all_model_checkpoint_paths, state.all_model_checkpoint_timestamps
        paths = [path[len(prefix) :] if path.startswith(prefix) else path for path in paths]
    # Some programs write this file without timestamps.
    stamps: Dict[str, Optional[float]] = dict(zip(paths, list(times) or [None] * len(paths)))
    stamps.pop(name, None)
    has_times = bool(stamps) and None not in stamps.values()
    stamps[name] = time.time() if has_times else None
    return v1.train.generate_checkpoint_state_proto(
        os.sep,  # with a relative folder, this function would change relative paths
        name,
        all_model_checkpoint_paths=list(stamps),
        all_model_checkpoint_timestamps=list(stamps.values()) if has_times else None,
    )

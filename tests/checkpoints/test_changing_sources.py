"""Tests of the error that is raised if a checkpoint is overwritten or deleted while it is read."""

import os
import shutil

import numpy as np
import pytest
import tensorflow as tf

from legacy_opt.compat import load_v1_checkpoint, to_keras
from legacy_opt.compat.state.checkpoint_files import writer as checkpoint_writer
from legacy_opt.compat.state.checkpoint_files.errors import CheckpointError
from legacy_opt.compat.state.checkpoint_files.reader import Checkpoint, open_checkpoint
from legacy_opt.compat.state.checkpoint_files.writer import CheckpointWriter
from legacy_opt.compat.state.checkpoints import conversion_by_name
from tests.support.checkpoints.checkpoint_arrays import (
    assert_holds,
    files_in,
    save_with_tensorflow,
    write,
)

v1 = tf.compat.v1
FORMATS = pytest.mark.parametrize("version", [v1.train.SaverDef.V1, v1.train.SaverDef.V2])
OLD, NEW = ({name: np.full([9], value) for name in "abc"} for value in (1.0, 2.0))


@FORMATS
def test_reading_after_the_checkpoint_was_overwritten(tmp_path, version):
    save_with_tensorflow(tmp_path / "model", OLD, version=version)
    checkpoint = open_checkpoint(tmp_path / "model")
    assert np.array_equal(checkpoint.read("a"), OLD["a"])
    os.utime(str(tmp_path / "checkpoint"))
    save_with_tensorflow(tmp_path / "model", NEW, version=version)
    with pytest.raises(CheckpointError, match="was overwritten"):
        checkpoint.read("b")
    assert np.array_equal(open_checkpoint(tmp_path / "model").read("b"), NEW["b"])


@FORMATS
def test_reading_after_the_checkpoint_was_deleted(tmp_path, version):
    save_with_tensorflow(tmp_path / "model", OLD, version=version)
    checkpoint = open_checkpoint(tmp_path / "model")
    for path in tmp_path.glob("model*"):
        path.unlink()
    with pytest.raises(CheckpointError, match="was deleted while it was read") as caught:
        checkpoint.read("b")
    assert "corrupt" not in str(caught.value)


def test_data_that_are_deleted_or_replaced_before_the_index(tmp_path):
    write(tmp_path / "model", OLD)
    write(tmp_path / "other", NEW)
    data = "model.data-00000-of-00001"
    checkpoint = open_checkpoint(tmp_path / "model")
    os.utime(str(tmp_path / "other.data-00000-of-00001"), (1, 1))
    os.replace(str(tmp_path / "other.data-00000-of-00001"), str(tmp_path / data))
    with pytest.raises(CheckpointError, match=f"{data}' was overwritten"):
        checkpoint.read("a")
    (tmp_path / data).unlink()
    with pytest.raises(CheckpointError, match=f"{data}' was deleted"):
        checkpoint.read("a")


def test_files_replaced_by_equal_copies_are_no_change(tmp_path):
    write(tmp_path / "model", OLD)
    checkpoint = open_checkpoint(tmp_path / "model")
    for path in tmp_path.glob("model*"):
        shutil.copy(str(path), str(tmp_path / "copy"))
        os.replace(str(tmp_path / "copy"), str(path))
        os.utime(str(path), (1, 1))
    assert np.array_equal(checkpoint.read("b"), OLD["b"])
    with CheckpointWriter(tmp_path / "new") as writer:
        writer.copy("b", checkpoint)
    assert_holds(tmp_path / "new", {"b": OLD["b"]})


@pytest.mark.parametrize("change", ["overwritten", "deleted"])
def test_the_source_changes_during_a_conversion(tmp_path, screen, monkeypatch, change):
    """The source changes after the tensor "a" was written.

    With SHARD_BYTES = 1, the writer writes each tensor immediately instead of buffering it.
    """
    monkeypatch.setattr(checkpoint_writer, "SHARD_BYTES", 1)
    (tmp_path / "old").mkdir()
    source = tmp_path / "old" / "model"
    write(source, OLD)
    move = conversion_by_name.Move.write

    def and_then(self, checkpoint, writer):
        move(self, checkpoint, writer)
        if self.target == "a" and change == "overwritten":
            write(source, NEW, overwrite=True)
        elif self.target == "a":
            shutil.rmtree(str(tmp_path / "old"))

    monkeypatch.setattr(conversion_by_name.Move, "write", and_then)
    message = screen.refused("convert", source, tmp_path / "new" / "model")
    assert {"overwritten": "was overwritten", "deleted": "was deleted"}[change] in message
    assert "corrupt" not in message and "model.index" in message
    assert not (tmp_path / "new").exists()


def test_the_source_of_copies_changes_before_they_are_written(tmp_path):
    write(tmp_path / "model", OLD)
    checkpoint = open_checkpoint(tmp_path / "model")
    with pytest.raises(CheckpointError, match="was overwritten"), CheckpointWriter(
        tmp_path / "new"
    ) as writer:
        writer.copy("a", checkpoint)
        write(tmp_path / "model", NEW, overwrite=True)
    assert not [name for name in files_in(tmp_path) if name.startswith(("new", "."))]


def test_the_checkpoint_changes_during_loading(tmp_path, monkeypatch):
    """The checkpoint is overwritten after it was verified and its first tensor was read."""
    write(tmp_path / "model", dict(OLD, global_step=np.int64(1)))
    variables = [tf.compat.v2.Variable(np.zeros([9]), name=name) for name in "abc"]
    optimizer = to_keras(v1.train.GradientDescentOptimizer(0.1))
    read, names = Checkpoint.read, []

    def and_then(self, name, *part):
        value = read(self, name, *part)
        names.append(name)
        if len(names) == 1:
            write(tmp_path / "model", dict(NEW, global_step=np.int64(2)), overwrite=True)
        return value

    monkeypatch.setattr(Checkpoint, "read", and_then)
    with pytest.raises(CheckpointError, match="overwritten.*1 of 4 tensors had been loaded"):
        load_v1_checkpoint(tmp_path / "model", variables, optimizer)

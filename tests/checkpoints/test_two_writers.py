"""Tests that only one of several simultaneous writers of a checkpoint succeeds."""

import threading
import time

import numpy as np
import pytest
import tensorflow as tf

from legacy_opt.compat.state.checkpoint_files import writer as checkpoint_writer
from legacy_opt.compat.state.checkpoint_files.errors import CheckpointError
from legacy_opt.compat.state.checkpoint_files.writer import CheckpointWriter
from tests.support.checkpoints.checkpoint_arrays import ARRAYS, assert_holds, files_in, write
from tests.support.processes import programs
from tests.support.shared_by_threads import THREADS, each_number

FILES = ["checkpoint", "model.data-00000-of-00001", "model.index"]
PROGRAM = """
import sys
import numpy as np
from legacy_opt.compat.state.checkpoint_files.writer import CheckpointWriter
with CheckpointWriter(sys.argv[1]) as writer:
    writer.add("x", np.float32(1))
    print("writing", flush=True)
    while not __import__("os").path.exists(sys.argv[2]):
        __import__("time").sleep(0.05)
    writer.add("y", np.float32(2))
"""


@pytest.mark.parametrize("overwrite", [False, True])
def test_the_second_is_refused_and_the_first_completes(tmp_path, overwrite):
    with CheckpointWriter(tmp_path / "model") as writer:
        writer.add("x", np.float32(1))
        with pytest.raises(CheckpointError, match="'.*model' is being written by another"):
            write(tmp_path / "model", ARRAYS, overwrite=overwrite)
        writer.add("y", np.float32(2))
    assert_holds(tmp_path / "model", {"x": np.float32(1), "y": np.float32(2)})
    assert files_in(tmp_path) == FILES


def test_one_after_the_other(tmp_path):
    write(tmp_path / "new" / "model", {"x": np.float32(1)})
    with pytest.raises(CheckpointError, match="exists already"):
        write(tmp_path / "new" / "model", ARRAYS)
    write(tmp_path / "new" / "model", {"y": np.float32(1)}, overwrite=True)
    assert files_in(tmp_path / "new") == FILES


def test_a_refused_writer_keeps_the_folder_of_the_other(tmp_path):
    with CheckpointWriter(tmp_path / "new" / "model") as writer:
        writer.add("x", np.float32(1))
        with pytest.raises(CheckpointError):
            write(tmp_path / "new" / "model", ARRAYS)
        write(tmp_path / "new" / "other", ARRAYS)
    assert_holds(tmp_path / "new" / "model", {"x": np.float32(1)})
    assert_holds(tmp_path / "new" / "other", ARRAYS)


def test_many_threads(tmp_path, monkeypatch):
    """One of the threads succeeds, and all tensors of the checkpoint come from this thread."""
    monkeypatch.setattr(checkpoint_writer, "SHARD_BYTES", 1)
    start, written, refused = threading.Barrier(THREADS), [], []

    def run(number):
        try:
            with CheckpointWriter(tmp_path / "model", overwrite=True) as writer:
                start.wait(timeout=60)
                for name in "abcd":
                    writer.add(name, np.full([100], number))
            written.append(number)
        except CheckpointError as error:
            start.wait(timeout=60)
            refused.append(str(error))

    each_number(run, at_once=True)
    assert len(written) == 1 and len(refused) == THREADS - 1
    assert all("is being written by another process or thread" in each for each in refused)
    assert_holds(tmp_path / "model", {name: np.full([100], written[0]) for name in "abcd"})
    assert not [name for name in files_in(tmp_path) if "writing" in name]


def test_two_processes(tmp_path):
    go_on = tmp_path / "go on"
    with programs.forked("-c", PROGRAM, tmp_path / "model", go_on) as program:
        programs.wait_until(lambda: program.texts()[0] == "writing\n", seconds=60)
        with pytest.raises(CheckpointError, match="is being written by another process"):
            write(tmp_path / "model", ARRAYS, overwrite=True)
        go_on.write_text("")
        program.process.join(60)
        assert program.code == 0
    assert_holds(tmp_path / "model", {"x": np.float32(1), "y": np.float32(2)})


def test_the_checkpoint_file_names_the_checkpoints_of_all_threads(tmp_path, monkeypatch):
    read = tf.train.get_checkpoint_state

    def slowly(folder):
        state = read(folder)
        time.sleep(0.3)
        return state

    monkeypatch.setattr(tf.train, "get_checkpoint_state", slowly)
    each_number(lambda number: write(tmp_path / f"model-{number}", ARRAYS), at_once=True)
    found = read(str(tmp_path)).all_model_checkpoint_paths
    assert sorted(found) == [str(tmp_path / f"model-{number}") for number in range(THREADS)]
    assert not [name for name in files_in(tmp_path) if "writing" in name]

"""Tests of CheckpointWriter: TensorFlow can read its checkpoints, and none is ever incomplete."""

import os
import signal
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

from legacy_opt.compat.state.checkpoint_files import writer as checkpoint_writer
from legacy_opt.compat.state.checkpoint_files.errors import CheckpointError
from legacy_opt.compat.state.checkpoint_files.reader import open_checkpoint
from legacy_opt.compat.state.checkpoint_files.writer import CheckpointWriter
from tests.support.checkpoints.checkpoint_arrays import (
    ARRAYS,
    RECORDED,
    assert_holds,
    files_in,
    message_of,
    save_with_tensorflow,
    write,
)
from tests.tools import record_data

v1 = tf.compat.v1


class TestWriting:
    def test_every_type_and_what_the_saver_restores(self, tmp_path):
        write(tmp_path / "model", ARRAYS)
        assert_holds(tmp_path / "model", ARRAYS)
        with tf.Graph().as_default(), v1.Session() as sess:
            variables = {
                name: v1.get_variable(
                    name, value.shape, tf.as_dtype(value.dtype), v1.zeros_initializer()
                )
                for name, value in ARRAYS.items()
                if value.dtype != object
            }
            v1.train.Saver().restore(sess, str(tmp_path / "model"))
            for name, value in sess.run(variables).items():
                assert np.array_equal(value, ARRAYS[name])

    def test_zeros_at_the_end_of_a_string(self, tmp_path):
        write(tmp_path / "model", {"x": b"one\0"})
        assert open_checkpoint(tmp_path / "model").read("x").item() == b"one\0"

    @pytest.mark.in_turn(name=RECORDED, limit=[1, 64 << 20, 100])
    def test_copies(self, tmp_path, monkeypatch, name, limit):
        """The copy has the values of the source. Training continues from it as in TF 1.15."""
        monkeypatch.setattr(checkpoint_writer, "SHARD_BYTES", limit)
        recorded = record_data.load(name)
        source = open_checkpoint(recorded.prefix)
        with CheckpointWriter(tmp_path / "model") as writer:
            for each in source.tensors:
                writer.copy(each, source)
        assert_holds(tmp_path / "model", recorded.saved)
        tensors = open_checkpoint(tmp_path / "model").tensors
        assert {n: i.parts for n, i in tensors.items()} == {
            n: i.parts for n, i in source.tensors.items()
        }
        assert (len(list(tmp_path.glob("*.data*"))) == 1) == (limit > 1000)
        if name != "optimize_loss_tf115":
            self.go_on(tmp_path / "model", name.replace("_v1_format", ""), recorded)

    def go_on(self, prefix, name, recorded):
        with tf.Graph().as_default(), v1.Session() as sess:
            graph = record_data.build(name)
            v1.train.Saver().restore(sess, str(prefix))
            for batch in recorded.batches:
                record_data.train(graph, sess, batch)
            for key, value in record_data.read_all(sess).items():
                # In each of 5 training steps, the rounding of TensorFlow versions differs by one or
                # two units in the last place, that is, by up to 10 units in total. The bound is 20
                # units.
                units = 20 * np.finfo(np.float32).eps * (value.dtype.kind == "f")
                bound = units * np.max(np.abs(recorded.later[key]))
                assert np.max(np.abs(value - recorded.later[key])) <= bound, key

    def test_long_strings_are_large_tensors(self, tmp_path, monkeypatch):
        monkeypatch.setattr(checkpoint_writer, "SHARD_BYTES", 100)
        arrays = {"a": 60, "b": 60, "c": 200}
        arrays = {name: np.array([b"x" * size], object) for name, size in arrays.items()}
        arrays["d"] = np.float32(1)
        write(tmp_path / "model", arrays)
        assert len(list(tmp_path.glob("*.data*"))) == 3  # a; b and d; c
        assert_holds(tmp_path / "model", arrays)

    def test_parts_and_other_names(self, tmp_path):
        write(tmp_path / "source", {"low": np.zeros([1, 2], np.float32)})
        with CheckpointWriter(tmp_path / "model") as writer:
            writer.add("x", np.ones([2, 2], np.float32), part=((3, 2), (0, 0)))
            source = open_checkpoint(tmp_path / "source")
            writer.copy("x", source, "low", part=((3, 2), (2, 0)))
            writer.copy("y", source, source_name="low")
        assert_holds(
            tmp_path / "model",
            {"x": np.float32([[1, 1], [1, 1], [0, 0]]), "y": np.zeros([1, 2], np.float32)},
        )
        with tf.Graph().as_default(), v1.Session() as sess:
            x = v1.get_variable("x", [3, 2], partitioner=v1.fixed_size_partitioner(2))
            v1.train.Saver().restore(sess, str(tmp_path / "model"))
            assert np.array_equal(sess.run(list(x))[1], [[0, 0]])

    def test_the_checkpoint_file(self, tmp_path):
        save_with_tensorflow(tmp_path / "model-1", {"x": np.float32(1)})
        write(tmp_path / "model-2", {"x": np.float32(2)})
        assert tf.train.latest_checkpoint(str(tmp_path)) == str(tmp_path / "model-2")
        write(tmp_path / "model-1", {"x": np.float32(3)}, overwrite=True)
        state = tf.train.get_checkpoint_state(str(tmp_path))
        assert list(state.all_model_checkpoint_paths) == [
            str(tmp_path / "model-2"),
            str(tmp_path / "model-1"),
        ]
        text = (tmp_path / "checkpoint").read_text()
        assert str(tmp_path) not in text
        assert "timestamps" not in text  # Saver.save writes no timestamps

    def test_the_checkpoint_file_with_times(self, tmp_path):
        manager = tf.train.CheckpointManager(
            tf.train.Checkpoint(x=tf.Variable(1.0)), str(tmp_path), 3
        )
        saved = manager.save()
        write(tmp_path / "model", {"x": np.float32(2)})
        state = tf.train.get_checkpoint_state(str(tmp_path))
        assert list(state.all_model_checkpoint_paths) == [saved, str(tmp_path / "model")]
        first, second = state.all_model_checkpoint_timestamps
        assert first < second

    def test_in_the_working_directory(self, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        write("model", ARRAYS)
        assert_holds("model", ARRAYS)
        assert tf.train.latest_checkpoint(".") == os.path.join(".", "model")
        assert files_in(tmp_path) == ["checkpoint", "model.data-00000-of-00001", "model.index"]

    def test_the_file_names_are_those_of_the_saver(self, tmp_path):
        write(tmp_path / "a" / "b" / "model.ckpt-7", ARRAYS)
        names = ["checkpoint", "model.ckpt-7.data-00000-of-00001", "model.ckpt-7.index"]
        assert files_in(tmp_path / "a" / "b") == names

    def test_an_existing_checkpoint_stays_unless_overwritten(self, tmp_path):
        write(tmp_path / "model", {"x": np.float32(1)})
        before = files_in(tmp_path)
        with pytest.raises(CheckpointError, match="exists already"):
            write(tmp_path / "model", {"x": np.float32(2)})
        with pytest.raises(CheckpointError, match="is a folder"):
            write(tmp_path, {"x": np.float32(2)})
        part = ((4,), (0,))
        for first, second in [(None, None), (part, part), (None, part), (part, None)]:
            with pytest.raises(CheckpointError, match="written twice"), CheckpointWriter(
                tmp_path / "new" / "model"
            ) as writer:
                writer.add("x", np.float32([2, 3]), part=first)
                writer.add("x", np.float32([2, 3]), part=second)
        with pytest.raises(CheckpointError, match="nothing to write"):
            write(tmp_path / "new" / "model", {})
        for error in ZeroDivisionError, KeyboardInterrupt:
            with pytest.raises(error), CheckpointWriter(
                tmp_path / "model", overwrite=True
            ) as writer:
                writer.add("x", np.float32(2))
                raise error
        assert files_in(tmp_path) == before
        assert_holds(tmp_path / "model", {"x": np.float32(1)})

    @pytest.mark.parametrize("version", [v1.train.SaverDef.V1, v1.train.SaverDef.V2])
    @pytest.mark.parametrize("sharded", [False, True])
    def test_overwriting_removes_all_old_files(self, tmp_path, version, sharded):
        save_with_tensorflow(tmp_path / "model", {"old": np.ones(3)}, sharded, version)
        with pytest.raises(CheckpointError, match="exists already"):
            write(tmp_path / "model", {"x": np.float32(1), "y": np.float32(2)})
        write(tmp_path / "model", {"x": np.float32(1), "y": np.float32(2)}, overwrite=True)
        assert_holds(tmp_path / "model", {"x": np.float32(1), "y": np.float32(2)})
        assert len(files_in(tmp_path)) <= 4

    def test_a_checkpoint_copied_onto_itself(self, tmp_path):
        write(tmp_path / "model", ARRAYS)
        source = open_checkpoint(tmp_path / "model")
        with CheckpointWriter(tmp_path / "model", overwrite=True) as writer:
            for name in source.tensors:
                writer.copy(name, source)
        assert_holds(tmp_path / "model", ARRAYS)

    def test_other_files_are_not_touched(self, tmp_path):
        (tmp_path / "model").write_text("notes")
        write(tmp_path / "model", ARRAYS, overwrite=True)
        assert (tmp_path / "model").read_text() == "notes"
        assert_holds(tmp_path / "model", ARRAYS)


class Killed(BaseException):
    """Simulates the end of the process."""


class TestBeingKilled:
    @pytest.mark.in_turn(overwrite=[False, True], limit=[64 << 20, 50])
    def test_at_every_change_of_the_files(self, tmp_path, monkeypatch, overwrite, limit):
        """A killed writer never leaves an incomplete checkpoint.

        It leaves the old checkpoint or the new checkpoint. If there was no old checkpoint, it may
        also leave no checkpoint.
        """
        new = {"big": np.arange(9.0), "bigger": np.arange(12.0), "rate": 0.5, "step": np.int64(7)}
        old = dict(new, step=np.int64(8))
        monkeypatch.setattr(checkpoint_writer, "SHARD_BYTES", limit)
        seen = []
        for instant in range(100):
            folder = tmp_path / str(instant)
            folder.mkdir()
            if overwrite:
                write(folder / "model", old)
            if not self.killed_at(instant, folder / "model", new, overwrite):
                break
            seen.append(self.found(folder / "model", old, new))
            write(folder / "model", new, overwrite=seen[-1] is not None)
            assert_holds(folder / "model", new)
            assert not [name for name in files_in(folder) if ".writing" in name]
        else:
            pytest.fail("the writer changed its files at least 100 times")
        assert seen == sorted(seen, key=["old", None, "new"].index)
        assert set(seen) == ({"old", "new"} if overwrite else {None, "new"})

    def killed_at(self, instant, prefix, arrays, overwrite):
        changes = []

        def or_die(change):
            def changing(*args, **kwargs):
                if len(changes) == instant:
                    raise Killed
                changes.append(change)
                return change(*args, **kwargs)

            return changing

        with pytest.MonkeyPatch.context() as patch:
            for module, name in (os, "replace"), (tf.io.gfile, "remove"):
                patch.setattr(module, name, or_die(getattr(module, name)))
            patch.setattr(CheckpointWriter, "_clean_up", lambda writer: None)
            try:
                write(prefix, arrays, overwrite=overwrite)
            except Killed:
                return True
        return False

    def found(self, prefix, old, new):
        try:
            step = open_checkpoint(prefix).read("step")
        except CheckpointError:
            return None
        assert_holds(prefix, old if step == old["step"] else new)
        return "old" if step == old["step"] else "new"

    def test_a_single_tensor_is_never_mixed(self, tmp_path):
        old, new = {"step": np.int64(8)}, {"step": np.int64(9)}
        for instant in range(100):
            write(tmp_path / "model", old, overwrite=True)
            if not self.killed_at(instant, tmp_path / "model", new, overwrite=True):
                break
            self.found(tmp_path / "model", old, new)
        assert instant > 2

    @pytest.mark.in_turn(published=[1, 2])
    def test_twice(self, tmp_path, published):
        """The old checkpoint stays readable, although a killed writer left other data files."""
        new = {"a": np.arange(9.0), "step": np.int64(7)}
        old = dict(new, step=np.int64(8))
        seen = []
        for instant in range(100):
            prefix = tmp_path / str(instant) / "model"
            write(prefix, old)
            assert self.killed_at(published, prefix, new, overwrite=True)
            assert any("-of-00002" in name for name in files_in(prefix.parent))
            if not self.killed_at(instant, prefix, new, overwrite=True):
                break
            seen.append(self.found(prefix, old, new))
        assert set(seen) == {"old", "new"}

    def test_a_process_that_is_killed(self, tmp_path):
        """The process is killed after it has written data to its working folder."""
        script = (
            "import sys, time, numpy as np\n"
            "from legacy_opt.compat.state.checkpoint_files.writer import CheckpointWriter\n"
            "with CheckpointWriter(sys.argv[1]) as writer:\n"
            "    writer.add('x', np.ones([17 << 20], np.float32))\n"
            "    print('writing', flush=True)\n"
            "    time.sleep(600)\n"
        )
        prefix = tmp_path / "model"
        process = subprocess.Popen(
            [sys.executable, "-c", script, str(prefix)], stdout=subprocess.PIPE
        )
        assert process.stdout.readline() == b"writing\n"
        process.send_signal(signal.SIGKILL)
        process.communicate()
        (working,) = tmp_path.iterdir()
        assert sum(path.stat().st_size for path in working.rglob("*")) > 64 << 20
        message_of(prefix)
        write(prefix, ARRAYS)
        assert_holds(prefix, ARRAYS)
        assert files_in(tmp_path) == ["checkpoint", "model.data-00000-of-00001", "model.index"]


MEMORY_SCRIPT = """
import resource, sys
import numpy as np
import tensorflow as tf
from legacy_opt.compat.state.checkpoint_files.reader import open_checkpoint
from legacy_opt.compat.state.checkpoint_files.writer import CheckpointWriter

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024

source, target = sys.argv[1:]
with CheckpointWriter(target + "-small") as writer:  # loads and initializes TensorFlow
    writer.add("x", np.ones(3))
before = peak()
if source == "none":
    with CheckpointWriter(target) as writer:
        for number in range(40):
            writer.add("x%d" % number, np.full([30 << 18], number, np.float32))
else:
    checkpoint = open_checkpoint(source)
    with CheckpointWriter(target) as writer:
        for name in checkpoint.tensors:
            writer.copy(name, checkpoint)
print(peak() - before)
"""


@pytest.mark.full
def test_copying_streams(tmp_path):
    """Copying 40 tensors of 30 MB takes less than half of the memory of all tensors.

    A copy holds two tensors at a time. TensorFlow before 2.15 keeps some of the memory of others:
    up to 450 MB were seen, also with 20 tensors.
    """

    def run(source, target):
        command = [sys.executable, "-c", MEMORY_SCRIPT, str(source), str(tmp_path / target)]
        return int(subprocess.check_output(command).split()[-1])

    run("none", "source")
    assert run(tmp_path / "source", "copy") < 600
    checkpoint = open_checkpoint(tmp_path / "copy")
    assert len(checkpoint.tensors) == 40 and np.all(checkpoint.read("x13") == 13)

"""Checkpoints as files: reading what TensorFlow wrote, writing what TensorFlow reads."""

import os
import shutil
import signal
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from legacy_opt.compat import checkpoint_index, checkpoint_reader, checkpoint_writer
from legacy_opt.compat.checkpoint_files import CheckpointError, CheckpointWriter, open_checkpoint
from tests import record_data

v1 = tf.compat.v1

DATA = Path(record_data.DATA)
RECORDED = ("adam_tf115", "adam_tf115_v1_format", "optimize_loss_tf115", "partitioned_tf115")
ARRAYS = {
    "a/bool": np.array([True, False]),
    "a/double": np.linspace(0, 1, 6).reshape(2, 3),
    "a/half": np.array(1.5, np.float16),
    "bytes": np.array([b"one\0", b""], dtype=object),
    "complex": np.array([1 + 2j], np.complex64),
    "empty": np.zeros([0, 3], np.float32),
    "int8": np.arange(-3, 3, dtype=np.int8),
    "step": np.array(7, np.int64),
}


def save_with_tensorflow(prefix, arrays, sharded=False, version=v1.train.SaverDef.V2):
    """Saves variables of these values with TensorFlow's Saver."""
    with tf.Graph().as_default(), v1.Session() as sess:
        devices = ["/cpu:0"] * len(arrays)
        for device, (name, value) in zip(devices, sorted(arrays.items())):
            with tf.device(device):
                v1.get_variable(name, initializer=value, use_resource=False)
        sess.run(v1.global_variables_initializer())
        saver = v1.train.Saver(sharded=sharded, write_version=version, save_relative_paths=True)
        return saver.save(sess, str(prefix), write_meta_graph=False)


def write(prefix, arrays, **options):
    with CheckpointWriter(prefix, **options) as writer:
        for name, value in arrays.items():
            writer.add(name, value)


def assert_holds(path, arrays):
    checkpoint = open_checkpoint(path)
    assert list(checkpoint.tensors) == sorted(arrays)
    for name, value in arrays.items():
        value = np.asarray(value)
        info, found = checkpoint.tensors[name], checkpoint.read(name)
        assert info.shape == value.shape
        assert info.dtype == (tf.string if value.dtype == object else tf.as_dtype(value.dtype))
        assert found.dtype == value.dtype and np.array_equal(found, value), name


def message_of(path):
    with pytest.raises(CheckpointError) as caught:
        open_checkpoint(path)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def files_in(folder):
    return sorted(str(path.relative_to(str(folder))) for path in Path(str(folder)).rglob("*"))


class TestReading:
    @pytest.mark.parametrize("name", RECORDED)
    def test_what_1_15_recorded(self, name):
        recorded = record_data.load(name)
        assert_holds(recorded.prefix, recorded.saved)
        checkpoint = open_checkpoint(recorded.prefix)
        assert checkpoint.format == ("V1" if "v1_format" in name else "V2")
        assert checkpoint.path == recorded.prefix
        assert checkpoint.object_graph is None

    def test_parts(self):
        tensors = open_checkpoint(DATA / "partitioned_tf115").tensors
        parts = (((3, 4), (0, 0)), ((2, 4), (3, 0)), ((2, 4), (5, 0)))
        for name, info in tensors.items():
            assert info.parts == (parts if name.startswith("embeddings") else ())
        assert tensors["embeddings"].nbytes == 7 * 4 * 4

    @pytest.mark.parametrize("way", ["prefix", "index", "folder", "relative"])
    def test_paths(self, tmp_path, way, monkeypatch):
        save_with_tensorflow(tmp_path / "model-1", {"x": np.float32(1)})
        save_with_tensorflow(tmp_path / "model-2", {"x": np.float32(2)})
        path = {
            "prefix": str(tmp_path / "model-2"),
            "index": tmp_path / "model-2.index",
            "folder": tmp_path,
            "relative": "model-2",
        }[way]
        monkeypatch.chdir(tmp_path)
        checkpoint = open_checkpoint(path)
        assert Path(checkpoint.path).name == "model-2" and checkpoint.read("x") == 2

    @pytest.mark.parametrize("sharded", [False, True])
    @pytest.mark.parametrize("version", [v1.train.SaverDef.V1, v1.train.SaverDef.V2])
    def test_what_this_tensorflow_saves(self, tmp_path, sharded, version):
        arrays = {name: value for name, value in ARRAYS.items() if value.dtype != np.float16}
        saved = save_with_tensorflow(tmp_path / "model", arrays, sharded, version)
        assert_holds(tmp_path / "model", arrays)
        assert_holds(tmp_path, arrays)
        assert open_checkpoint(tmp_path / "model").path == saved

    def test_a_partitioned_variable_in_v1_format(self, tmp_path):
        with tf.Graph().as_default(), v1.Session() as sess:
            graph = record_data.build("partitioned_tf115")
            sess.run(v1.global_variables_initializer())
            saver = v1.train.Saver(write_version=v1.train.SaverDef.V1)
            saver.save(sess, str(tmp_path / "model"), write_meta_graph=False)
            parts = sess.run(graph.variables["embeddings"])
        checkpoint = open_checkpoint(tmp_path / "model")
        assert np.array_equal(checkpoint.read("embeddings"), np.concatenate(parts))

    def test_many_tensors(self, tmp_path):
        """The index has many blocks then, and TensorFlow's own reader is the witness."""
        arrays = {"layer_%d/%s" % (i % 7, i): np.full([i % 5], i, np.int32) for i in range(1000)}
        write(tmp_path / "model", arrays)
        reader = tf.train.load_checkpoint(str(tmp_path / "model"))
        tensors = open_checkpoint(tmp_path / "model").tensors
        assert {n: list(i.shape) for n, i in tensors.items()} == reader.get_variable_to_shape_map()
        assert {n: i.dtype for n, i in tensors.items()} == reader.get_variable_to_dtype_map()
        assert len(list(tmp_path.glob("*.data*"))) == 1

    def test_bfloat16_and_no_such_tensor(self, tmp_path):
        value = np.array([1, 2], tf.bfloat16.as_numpy_dtype)
        write(tmp_path / "model", {"x": value})
        checkpoint = open_checkpoint(tmp_path / "model")
        assert checkpoint.tensors["x"].dtype == tf.bfloat16
        assert np.array_equal(checkpoint.read("x").astype(np.float32), [1, 2])
        with pytest.raises(CheckpointError, match="holds no tensor 'y'"):
            checkpoint.read("y")

    def test_a_type_of_the_future(self, tmp_path):
        write(tmp_path / "model", {"x": np.arange(3, dtype=np.int8), "y": np.float32(1)})
        patch_index(tmp_path / "model.index", b"\x08\x06", b"\x08\x63")
        checkpoint = open_checkpoint(tmp_path / "model")
        assert checkpoint.tensors["x"].dtype.name == "type 99"
        assert checkpoint.tensors["x"].shape == (3,)
        assert checkpoint.read("y") == 1
        with pytest.raises(CheckpointError, match=r"cannot read the tensor 'x'.*type 99"):
            checkpoint.read("x")
        with pytest.raises(CheckpointError, match="type 99"), CheckpointWriter(
            tmp_path / "copy"
        ) as writer:
            writer.copy("x", checkpoint)


def patch_index(path, old, new):
    """Replaces bytes of the first block of an index, and corrects its checksum."""
    content = path.read_bytes()
    start = content.index(old)
    content = content[:start] + new + content[start + len(old) :]
    offset, size = only_block(content)
    block = content[offset : offset + size + 1]
    crc = crc32c(block)
    masked = ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF
    end = offset + size + 1
    path.write_bytes(content[:end] + masked.to_bytes(4, "little") + content[end + 4 :])


def only_block(content):
    """Returns where the only block of a small index is, and its size."""
    _, position = checkpoint_index._block_handle(content, len(content) - 48)
    handle, _ = checkpoint_index._block_handle(content, position)
    ((_, value),) = checkpoint_index._block_records(content, handle)
    return checkpoint_index._block_handle(value, 0)[0]


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


class TestWhatIsWrong:
    def test_missing(self, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        save_with_tensorflow(tmp_path / "model-2", {"x": np.float32(2)})
        assert "Name one of these: model-2" in message_of("model-3")
        assert str(tmp_path / "model-2") in message_of(tmp_path / "model-3")
        assert "folder 'nowhere' does not exist" in message_of("nowhere/model")
        (tmp_path / "empty").mkdir()
        assert "It holds no checkpoint" in message_of("empty")
        assert "Its folder holds no checkpoint" in message_of("empty/model")

    def test_a_folder_without_the_checkpoint_that_it_names(self, tmp_path):
        save_with_tensorflow(tmp_path / "model-1", {"x": np.float32(1)})
        save_with_tensorflow(tmp_path / "model-2", {"x": np.float32(2)})
        (tmp_path / "model-2.index").unlink()
        message = message_of(tmp_path)
        assert "names %r, which is not there" % str(tmp_path / "model-2") in message
        assert "Name one of these: %s" % (tmp_path / "model-1") in message
        assert "its index, %r, is missing" % str(tmp_path / "model-2.index") in message_of(
            tmp_path / "model-2"
        )
        (tmp_path / "checkpoint").unlink()
        assert "no `checkpoint` file" in message_of(tmp_path)

    def test_other_files(self, tmp_path):
        (tmp_path / "model.h5").write_bytes(b"\x89HDF\r\n\x1a\n" + bytes(100))
        with zipfile.ZipFile(str(tmp_path / "model.keras"), "w") as file:
            file.writestr("config.json", "{}")
        (tmp_path / "notes").write_text("Überall Umlaute: " + "ä" * 2000, encoding="utf-8")
        (tmp_path / "nothing").write_bytes(b"")
        (tmp_path / "noise").write_bytes(bytes(range(256)) * 10)
        (tmp_path / "model.meta").write_bytes(b"\n\0\1\2")
        for name, expected in {
            "model.h5": "HDF5",
            "model.keras": "keras.models.load_model",
            "notes": "text file",
            "nothing": "is empty",
            "noise": "of another kind, or its end is missing",
            "model.meta": "Name the checkpoint: %r" % str(tmp_path / "model"),
        }.items():
            assert expected in message_of(tmp_path / name), name
        shard = DATA / "adam_tf115.data-00000-of-00001"
        assert "its prefix: %r" % str(DATA / "adam_tf115") in message_of(shard)
        state = DATA / "adagrad-decay-1.15" / "checkpoint"
        assert "Name its folder: %r" % str(state.parent) in message_of(state)

    def test_a_saved_model(self, tmp_path):
        module = tf.Module()
        module.x = tf.Variable(1.0)
        tf.saved_model.save(module, str(tmp_path / "saved"))
        variables = str(tmp_path / "saved" / "variables" / "variables")
        assert variables in message_of(tmp_path / "saved")
        assert variables in message_of(tmp_path / "saved" / "saved_model.pb")
        assert open_checkpoint(variables).read("x/.ATTRIBUTES/VARIABLE_VALUE") == 1

    def test_truncated_data(self, tmp_path):
        message = message_of(DATA / "truncated")
        assert "is truncated" in message and "266 bytes, and the index needs 532" in message
        shard = copy_recorded("adam_tf115", tmp_path)
        shard.write_bytes(shard.read_bytes()[:-1])
        assert "531 bytes, and the index needs 532" in message_of(tmp_path / "adam_tf115")

    def test_a_missing_data_file(self, tmp_path, monkeypatch):
        monkeypatch.setattr(checkpoint_writer, "SHARD_BYTES", 1)
        write(tmp_path / "model", {"x": np.ones(3), "y": np.ones(3)})
        (tmp_path / "model.data-00001-of-00002").unlink()
        assert "model.data-00001-of-00002' is missing" in message_of(tmp_path / "model")

    def test_a_flipped_byte_in_the_data(self, tmp_path):
        shard = copy_recorded("adam_tf115", tmp_path)
        content = bytearray(shard.read_bytes())
        content[-9] ^= 1  # in the last tensor but one, before the 8 bytes of global_step
        shard.write_bytes(bytes(content))
        checkpoint = open_checkpoint(tmp_path / "adam_tf115")
        assert checkpoint.read("global_step") == record_data.STEPS_BEFORE
        with pytest.raises(CheckpointError, match="'embeddings/Adam_1' cannot be read.*hecksum"):
            checkpoint.read("embeddings/Adam_1")
        with pytest.raises(
            CheckpointError, match="'embeddings/Adam_1' cannot be read.*hecksum"
        ), CheckpointWriter(tmp_path / "new" / "model") as writer:
            for name in checkpoint.tensors:
                writer.copy(name, checkpoint)
        assert not (tmp_path / "new").exists()

    @pytest.mark.parametrize("name", ["adam_tf115.index", "adam_tf115_v1_format"])
    @pytest.mark.parametrize("harm", ["cut", "flip", "empty"])
    def test_a_corrupt_table(self, tmp_path, name, harm):
        copy_recorded("adam_tf115", tmp_path)
        content = bytearray((DATA / name).read_bytes())
        content[len(content) // 3] ^= harm == "flip"
        size = {"cut": len(content) // 2, "flip": len(content), "empty": 0}[harm]
        (tmp_path / name).write_bytes(bytes(content[:size]))
        with pytest.raises(CheckpointError) as caught:  # V1 format has its data in the table
            checkpoint = open_checkpoint(tmp_path / name)
            for each in checkpoint.tensors:
                checkpoint.read(each)
        assert "\n" not in str(caught.value) and name.split(".")[0] in str(caught.value)


def copy_recorded(name, folder):
    shutil.copy(str(DATA / (name + ".index")), str(folder))
    return Path(str(shutil.copy(str(DATA / (name + ".data-00000-of-00001")), str(folder))))


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

    @pytest.mark.parametrize("limit", [1, 100, 64 << 20])
    @pytest.mark.parametrize("name", RECORDED)
    def test_copies(self, tmp_path, monkeypatch, name, limit):
        """A copy holds the same, and the graph goes on from it as it did in 1.15."""
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
                # Five steps round differently on another TensorFlow, each by a unit or two.
                units = 20 * np.finfo(np.float32).eps * (value.dtype.kind == "f")
                bound = units * np.max(np.abs(recorded.later[key]))
                assert np.max(np.abs(value - recorded.later[key])) <= bound, key

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
        assert "timestamps" not in text  # as Saver.save

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

    def test_what_is_there_stays(self, tmp_path):
        write(tmp_path / "model", {"x": np.float32(1)})
        before = files_in(tmp_path)
        with pytest.raises(CheckpointError, match="there already"):
            write(tmp_path / "model", {"x": np.float32(2)})
        with pytest.raises(CheckpointError, match="is a folder"):
            write(tmp_path, {"x": np.float32(2)})
        with pytest.raises(CheckpointError, match="written twice"), CheckpointWriter(
            tmp_path / "new" / "model"
        ) as writer:
            writer.add("x", np.float32(2))
            writer.add("x", np.float32(2))
        with pytest.raises(CheckpointError, match="nothing to write"):
            write(tmp_path / "new" / "model", {})
        with pytest.raises(ZeroDivisionError), CheckpointWriter(
            tmp_path / "model", overwrite=True
        ) as writer:
            writer.add("x", np.float32(2))
            raise ZeroDivisionError
        assert files_in(tmp_path) == before
        assert_holds(tmp_path / "model", {"x": np.float32(1)})

    @pytest.mark.parametrize("version", [v1.train.SaverDef.V1, v1.train.SaverDef.V2])
    @pytest.mark.parametrize("sharded", [False, True])
    def test_overwriting_leaves_nothing_of_the_old(self, tmp_path, version, sharded):
        save_with_tensorflow(tmp_path / "model", {"old": np.ones(3)}, sharded, version)
        with pytest.raises(CheckpointError, match="there already"):
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
    """Stands for the end of the process."""


class TestBeingKilled:
    @pytest.mark.parametrize("limit", [50, 64 << 20])
    @pytest.mark.parametrize("overwrite", [False, True])
    def test_at_every_change_of_the_files(self, tmp_path, monkeypatch, overwrite, limit):
        """Whatever the instant, there is the old checkpoint, or the new one, or none, no mixture.

        Where an old one is overwritten there is always one of both.
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
            pytest.fail("it is killed for ever")
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
            for name in ("rename", "remove"):
                patch.setattr(tf.io.gfile, name, or_die(getattr(tf.io.gfile, name)))
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

    def test_for_real(self, tmp_path):
        """The process is killed when its working folder has data."""
        script = (
            "import sys, time, numpy as np\n"
            "from legacy_opt.compat.checkpoint_files import CheckpointWriter\n"
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
from legacy_opt.compat.checkpoint_files import CheckpointWriter, open_checkpoint

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024

source, target = sys.argv[1:]
with CheckpointWriter(target + "-small") as writer:  # TensorFlow is loaded and running then
    writer.add("x", np.ones(3))
before = peak()
if source == "none":
    with CheckpointWriter(target) as writer:
        for number in range(20):
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
    """600 MB in 20 tensors: 30 MB for the largest, and 300 MB besides, are less than half."""

    def run(source, target):
        command = [sys.executable, "-c", MEMORY_SCRIPT, str(source), str(tmp_path / target)]
        return int(subprocess.check_output(command).split()[-1])

    run("none", "source")
    assert run(tmp_path / "source", "copy") <= 30 + 300
    checkpoint = open_checkpoint(tmp_path / "copy")
    assert len(checkpoint.tensors) == 20 and np.all(checkpoint.read("x13") == 13)


def test_the_session_uses_no_gpu():
    with tf.Graph().as_default(), checkpoint_reader.session() as session:
        assert [
            device.device_type for device in session.list_devices() if "GPU" in device.name
        ] == []

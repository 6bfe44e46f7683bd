"""Tests of reading checkpoints, and of errors for damaged files and files of other kinds."""

import contextlib
import zipfile
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.protobuf import tensor_bundle_pb2

from legacy_opt.compat.state.checkpoint_files import index, plain_reader, v1_files
from legacy_opt.compat.state.checkpoint_files import reader as checkpoint_reader
from legacy_opt.compat.state.checkpoint_files import writer as checkpoint_writer
from legacy_opt.compat.state.checkpoint_files.crc32c import masked_crc32c
from legacy_opt.compat.state.checkpoint_files.errors import CheckpointError
from legacy_opt.compat.state.checkpoint_files.reader import open_checkpoint
from legacy_opt.compat.state.checkpoint_files.writer import CheckpointWriter
from tests.support.checkpoints import made_files
from tests.support.checkpoints.checkpoint_arrays import (
    ARRAYS,
    DATA,
    RECORDED,
    assert_holds,
    copy_recorded,
    message_of,
    save_with_tensorflow,
    write,
)
from tests.tools import record_data

v1 = tf.compat.v1


class TestReading:
    @pytest.mark.parametrize("name", RECORDED)
    def test_checkpoints_written_by_1_15(self, name):
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
    def test_checkpoints_written_by_this_tensorflow(self, tmp_path, sharded, version):
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
        """The index has many blocks. The expected values come from TensorFlow's own reader."""
        arrays = {f"layer_{i % 7}/{i}": np.full([i % 5], i, np.int32) for i in range(1000)}
        write(tmp_path / "model", arrays)
        reader = tf.train.load_checkpoint(str(tmp_path / "model"))
        tensors = open_checkpoint(tmp_path / "model").tensors
        assert {n: list(i.shape) for n, i in tensors.items()} == reader.get_variable_to_shape_map()
        dtypes = reader.get_variable_to_dtype_map()
        assert {n: i.dtype for n, i in tensors.items()} == {n: t.name for n, t in dtypes.items()}
        assert len(list(tmp_path.glob("*.data*"))) == 1

    @pytest.mark.parametrize("name", ["partitioned_tf115", "adam_tf115"])
    def test_numbers_are_read_without_a_session_each(self, name, monkeypatch):
        """RestoreV2, to which the values are compared, opens the index again for each tensor."""
        checkpoint = open_checkpoint(DATA / name)
        restored = {
            each: [checkpoint._restored_value(each, info, part) for part in (None, *info.parts)]
            for each, info in checkpoint.tensors.items()
        }
        monkeypatch.setattr(checkpoint_reader, "session", None)
        for each, info in checkpoint.tensors.items():
            for part, expected in zip((None, *info.parts), restored[each]):
                found = checkpoint.read(each, part)
                assert found.dtype == expected.dtype and np.array_equal(found, expected)

    def test_bfloat16_and_no_such_tensor(self, tmp_path):
        value = np.array([1, 2], tf.bfloat16.as_numpy_dtype)
        write(tmp_path / "model", {"x": value})
        checkpoint = open_checkpoint(tmp_path / "model")
        assert checkpoint.tensors["x"].dtype == "bfloat16"
        assert np.array_equal(checkpoint.read("x").astype(np.float32), [1, 2])
        with pytest.raises(CheckpointError, match="contains no tensor 'y'"):
            checkpoint.read("y")

    def test_a_dtype_unknown_to_this_tensorflow(self, tmp_path):
        write(tmp_path / "model", {"x": np.arange(3, dtype=np.int8), "y": np.float32(1)})
        patch_index(tmp_path / "model.index", b"\x08\x06", b"\x08\x63")
        checkpoint = open_checkpoint(tmp_path / "model")
        assert checkpoint.tensors["x"].dtype == "type 99"
        assert checkpoint.tensors["x"].shape == (3,)
        assert checkpoint.read("y") == 1
        with pytest.raises(CheckpointError, match=r"cannot read the tensor 'x'.*type 99"):
            checkpoint.read("x")
        with pytest.raises(CheckpointError, match="type 99"), CheckpointWriter(
            tmp_path / "copy"
        ) as writer:
            writer.copy("x", checkpoint)


def patch_index(path, old, new):
    """Replaces bytes in the only data block of a small index, and updates the block's checksum."""
    content = path.read_bytes()
    start = content.index(old)
    content = content[:start] + new + content[start + len(old) :]
    offset, size = only_block(content)
    block = content[offset : offset + size + 1]
    checksum = masked_crc32c([block]).to_bytes(4, "little")
    end = offset + size + 1
    path.write_bytes(content[:end] + checksum + content[end + 4 :])


def only_block(content):
    """Returns the offset and the size of the only data block of a small index."""
    _, position = index._block_handle(content, len(content) - 48)
    handle, _ = index._block_handle(content, position)
    ((_, value),) = index._block_records(content, handle)
    return index._block_handle(value, 0)[0]


class TestErrors:
    def test_missing(self, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        save_with_tensorflow(tmp_path / "model-2", {"x": np.float32(2)})
        assert "Name one of these: model-2" in message_of("model-3")
        assert str(tmp_path / "model-2") in message_of(tmp_path / "model-3")
        assert "folder 'nowhere' does not exist" in message_of("nowhere/model")
        (tmp_path / "empty").mkdir()
        assert "It contains no checkpoint" in message_of("empty")
        assert "Its folder contains no checkpoint" in message_of("empty/model")

    def test_a_folder_without_the_checkpoint_that_it_names(self, tmp_path):
        save_with_tensorflow(tmp_path / "model-1", {"x": np.float32(1)})
        save_with_tensorflow(tmp_path / "model-2", {"x": np.float32(2)})
        (tmp_path / "model-2.index").unlink()
        message = message_of(tmp_path)
        assert f"names {str(tmp_path / 'model-2')!r}, which does not exist" in message
        assert f"Name one of these: {tmp_path / 'model-1'}" in message
        assert f"its index, {str(tmp_path / 'model-2.index')!r}, is missing" in message_of(
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
            "model.keras": "models.load_model",
            "notes": "text file",
            "nothing": "is empty",
            "noise": "of an unknown kind, or truncated",
            "model.meta": f"Name the checkpoint: {str(tmp_path / 'model')!r}",
        }.items():
            assert expected in message_of(tmp_path / name), name
        shard = DATA / "adam_tf115.data-00000-of-00001"
        assert f"its prefix: {str(DATA / 'adam_tf115')!r}" in message_of(shard)
        state = tmp_path / "checkpoint"
        state.write_text('model_checkpoint_path: "model"\n')
        assert f"Name its folder: {str(state.parent)!r}" in message_of(state)

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
        content[-9] ^= 1  # global_step has the last 8 bytes
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
        # A file in V1 format also contains the data, so the error may occur when tensors are read.
        with pytest.raises(CheckpointError) as caught:
            checkpoint = open_checkpoint(tmp_path / name)
            for each in checkpoint.tensors:
                checkpoint.read(each)
        assert "\n" not in str(caught.value) and name.split(".")[0] in str(caught.value)

    @pytest.mark.parametrize(
        ["changes", "words"],
        [
            # a shape with more elements than int64 counts
            ({"shape": (1 << 32, 1 << 32)}, "the tensor 'x' has 24 bytes, and its shape"),
            ({"shape": (-3,)}, "the tensor 'x' has 24 bytes, and its shape [-3] needs -24"),
            ({"parts": (((3,), (1,)),)}, "the tensor 'x' of the shape [3] does not fit its data"),
            ({"shape": (2,), "parts": (((3,), (0,)),)}, "of the shape [2] does not fit its data"),
        ],
    )
    def test_both_readers_refuse_a_corrupt_index(self, changes, words, tmp_path, monkeypatch):
        write(tmp_path / "model", {"x": np.ones(3)})
        parse_index = index.parse_index

        def changed(content):
            parsed = parse_index(content)
            parsed.entries["x"] = parsed.entries["x"]._replace(**changes)
            return parsed

        for module, opened in (
            (checkpoint_reader, open_checkpoint),
            (plain_reader, plain_reader.PlainCheckpoint),
        ):
            monkeypatch.setattr(module, "parse_index", changed)
            with pytest.raises(CheckpointError) as caught:
                opened(str(tmp_path / "model"))
            assert words in str(caught.value)

    @pytest.mark.parametrize("opened", [open_checkpoint, plain_reader.PlainCheckpoint])
    def test_a_header_of_another_format(self, opened, tmp_path):
        header = tensor_bundle_pb2.BundleHeaderProto(num_shards=1)
        header.version.producer = header.version.min_consumer = 1
        path = made_files.bundle(
            tmp_path / "model", [("x", made_files.entry())], header.SerializeToString()
        )
        assert np.array_equal(opened(path).read("x"), np.zeros(2, np.float32))
        later = tensor_bundle_pb2.BundleHeaderProto(num_shards=1)
        later.version.min_consumer = 2
        other = tensor_bundle_pb2.BundleHeaderProto(num_shards=1, endianness=1)
        for header, words in (later, "a later version"), (other, "the order of bytes of another"):
            made_files.bundle(path, [("x", made_files.entry())], header.SerializeToString())
            with pytest.raises(CheckpointError, match=words):
                opened(path)

    @pytest.mark.parametrize(
        ["shape", "lengths", "count", "words"],
        [
            ((2,), (-1,), 2, ""),
            ((3, 2), (1, -1), 2, ""),  # a slice
            ((-1,), (-1,), 2, "a tensor has the impossible shape [-1]"),
            ((1 << 32, 1 << 32), (-1, -1), 2, "a tensor has the impossible shape"),
            ((2,), (-1,), 1, "the data of a tensor lack values"),
            ((64,), (5,), 4, "the data of a tensor lack values"),
        ],
    )
    def test_a_corrupt_file_in_v1_format(self, shape, lengths, count, words, tmp_path):
        path = tmp_path / "model"
        path.write_bytes(made_files.v1_file("x", shape, lengths, count))
        with contextlib.ExitStack() as stack:
            caught = stack.enter_context(pytest.raises(ValueError)) if words else None
            v1_files.check(str(path), with_data=True)
        assert caught is None or words in str(caught.value)


def test_the_session_uses_no_gpu():
    with tf.Graph().as_default(), checkpoint_reader.session() as session:
        assert [
            device.device_type for device in session.list_devices() if "GPU" in device.name
        ] == []

"""Tests of checksums, and of Checkpoint.verify.

If a checkpoint is intact, `verify` decodes only tensors of strings and tensors in V1 format.
"""

import os

import numpy as np
import pytest
import tensorflow as tf

from legacy_opt.compat.state.checkpoint_files import reader as checkpoint_reader
from legacy_opt.compat.state.checkpoint_files.crc32c import masked_crc32c
from legacy_opt.compat.state.checkpoint_files.errors import CheckpointError
from legacy_opt.compat.state.checkpoint_files.reader import open_checkpoint
from legacy_opt.compat.state.checkpoint_files.writer import CheckpointWriter
from tests.support.checkpoints.checkpoint_arrays import (
    ARRAYS,
    DATA,
    RECORDED,
    save_with_tensorflow,
    write,
)

v1 = tf.compat.v1


def crc32c(data):
    """Computes the checksum bit by bit, according to the definition of CRC-32C."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def unmasked(masked):
    rotated = (masked - 0xA282EAD8) & 0xFFFFFFFF
    return (rotated << 15 | rotated >> 17) & 0xFFFFFFFF


@pytest.fixture
def reads(monkeypatch):
    """Returns a list to which the names of decoded tensors are appended."""
    names, read = [], checkpoint_reader.Checkpoint.read

    def counted(self, name, *part):
        names.append(name)
        return read(self, name, *part)

    monkeypatch.setattr(checkpoint_reader.Checkpoint, "read", counted)
    return names


# Empty data, the usual example for CRCs (b"123456789"), and data from RFC 3720, appendix B.4.
@pytest.mark.parametrize(
    ["data", "expected"],
    [
        (b"", 0),
        (b"123456789", 0xE3069283),
        (bytes(32), 0x8A9136AA),
        (b"\xff" * 32, 0x62A8AB43),
        (bytes(range(32)), 0x46DD794E),
    ],
)
def test_known_checksums(data, expected):
    assert unmasked(masked_crc32c([data])) == expected


# `masked_crc32c` prepends 4 bytes. Then it shortens the data in two stages that do not change the
# checksum: to about 32 * 6777 bytes (`_FAST`), and to 6777 bytes (`_SHORT`). Some of the tested
# lengths are near these limits.
@pytest.mark.parametrize("length", [1, 3, 6772, 6773, 6774, 13070, 32 * 6777 - 4, 32 * 6777 + 1])
def test_long_data_in_chunks(length):
    data = np.random.RandomState(length).bytes(length)
    expected = crc32c(data)
    for size in (length, 1000, length // 2 + 1):
        chunks = [data[begin : begin + size] for begin in range(0, length, size)]
        assert unmasked(masked_crc32c(chunks)) == expected


@pytest.mark.parametrize("name", RECORDED)
def test_recorded_checkpoints_are_intact(name, reads):
    checkpoint = open_checkpoint(DATA / name)
    checkpoint.verify(checkpoint.tensors)
    assert reads == (list(checkpoint.tensors) if "v1_format" in name else [])


def test_only_strings_are_decoded(tmp_path, reads):
    write(tmp_path / "model", dict(ARRAYS, large=np.arange(1 << 19)))
    checkpoint = open_checkpoint(tmp_path / "model")
    checkpoint.verify(checkpoint.tensors)
    assert reads == ["bytes"]


def write_example(folder):
    """Writes a checkpoint in which "b" is saved in two partitions. Returns the data file."""
    with CheckpointWriter(folder / "model") as writer:
        writer.add("a", np.arange(9.0))
        writer.add("b", np.ones([2, 3], np.float32), part=((3, 3), (0, 0)))
        writer.add("b", np.ones([1, 3], np.float32), part=((3, 3), (2, 0)))
        writer.add("c", np.arange(5))
    (data,) = folder.glob("model.data*")
    return data


@pytest.mark.parametrize("position", range(0, 9 * 8 + 9 * 4 + 5 * 8, 7))
def test_a_flipped_bit_is_the_error_that_reading_raises(tmp_path, position):
    data = write_example(tmp_path)
    assert data.stat().st_size == 9 * 8 + 9 * 4 + 5 * 8
    content = bytearray(data.read_bytes())
    content[position] ^= 1
    data.write_bytes(bytes(content))
    checkpoint = open_checkpoint(tmp_path / "model")
    damaged = "a" if position < 72 else "b" if position < 108 else "c"
    for name in "abc":
        if name == damaged:
            with pytest.raises(CheckpointError, match=f"tensor '{name}' cannot be read") as caught:
                checkpoint.verify([name])
            with pytest.raises(CheckpointError) as expected:
                checkpoint.read(name)
            assert str(caught.value) == str(expected.value)
        else:
            checkpoint.verify([name])


@pytest.mark.parametrize("harm", ["missing", "truncated"])
def test_data_that_are_lost_after_opening(tmp_path, harm):
    data = write_example(tmp_path)
    checkpoint = open_checkpoint(tmp_path / "model")
    if harm == "missing":
        data.unlink()
    else:
        os.truncate(str(data), 80)
        checkpoint.verify("a")
    with pytest.raises(CheckpointError, match="was deleted|was overwritten"):
        checkpoint.verify("abc")


def test_a_missing_part(tmp_path):
    with CheckpointWriter(tmp_path / "model") as writer:
        writer.add("x", np.ones([2, 3], np.float32), part=((3, 3), (0, 0)))
    checkpoint = open_checkpoint(tmp_path / "model")
    with pytest.raises(CheckpointError, match="'x'"):
        checkpoint.verify("x")


def test_a_name_with_a_nul(tmp_path, reads):
    with CheckpointWriter(tmp_path / "model") as writer:
        writer.add("x\0y", np.float32([1, 2]), part=((4,), (0,)))
        writer.add("x\0y", np.float32([3, 4]), part=((4,), (2,)))
    open_checkpoint(tmp_path / "model").verify(["x\0y"])
    assert reads == []


def test_v1_format_is_read(tmp_path, reads):
    save_with_tensorflow(tmp_path / "model", {"x": np.ones(3)}, version=v1.train.SaverDef.V1)
    open_checkpoint(tmp_path / "model").verify("x")
    assert reads == ["x"]

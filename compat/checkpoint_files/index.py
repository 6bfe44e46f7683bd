"""Reads the index of a checkpoint (V2 format): which bytes of which data file hold a tensor.

TensorFlow's own reader tells names, dtypes and shapes. It tells neither how a tensor is divided
into parts, nor, before all data are read, whether they are there at all.

The index is a sorted table in the form of LevelDB's files. Its block checksums are not compared
here: TensorFlow's reader does, and is to be asked first.
"""

import struct
from typing import NamedTuple

from google.protobuf.message import DecodeError
from tensorflow.core.protobuf import tensor_bundle_pb2

_FOOTER_BYTES = 48
_MAGIC = struct.pack("<Q", 0xDB4775248B80FB57)
_BLOCK_TRAILER_BYTES = 5  # the kind of compression, and a checksum
_PART_KEY = b"\0"  # what the keys of parts start with, and no tensor's name


class Entry(NamedTuple):
    """What the index tells of a tensor.

    Attributes:
      dtype: the number of its type.
      shape: its shape, of all parts together.
      nbytes: how many bytes of a data file it takes, 0 if it is in parts.
      parts: pairs (shape, offset), one for each part; empty where the tensor is whole.
    """

    dtype: int
    shape: tuple
    nbytes: int
    parts: tuple


class Index(NamedTuple):
    """What an index tells.

    Attributes:
      entries: a dict from name to Entry.
      data_bytes: how many bytes each of the data files must have at least.
    """

    entries: dict
    data_bytes: tuple


def is_table(content):
    """Whether these bytes, or the last of them, end a table."""
    return content[-len(_MAGIC) :] == _MAGIC


def parse_index(content):
    """Parses an index.

    Args:
      content: the bytes of its file.

    Returns:
      An Index.

    Raises:
      ValueError: this is no index, or one in a form that is not known here.
    """
    try:
        return _as_index(list(_records(content)))
    except (IndexError, struct.error, DecodeError) as error:
        raise ValueError(f"this is no index of a checkpoint: {error}") from error


def _as_index(records):
    header, entries, data_bytes = tensor_bundle_pb2.BundleHeaderProto(), {}, {}
    for key, value in records:
        if not key:
            header.MergeFromString(value)
            continue
        entry = tensor_bundle_pb2.BundleEntryProto.FromString(value)
        end = entry.offset + entry.size
        data_bytes[entry.shard_id] = max(end, data_bytes.get(entry.shard_id, 0))
        if not key.startswith(_PART_KEY):
            shape = tuple(dim.size for dim in entry.shape.dim)
            parts = tuple(_as_part(shape, part) for part in entry.slices)
            entries[key.decode("utf-8")] = Entry(entry.dtype, shape, entry.size, parts)
    return Index(entries, tuple(data_bytes.get(shard, 0) for shard in range(header.num_shards)))


def _as_part(full_shape, part):
    """Returns (shape, offset). An extent without a length is the whole dimension."""
    lengths = tuple(
        extent.length if extent.HasField("length") else size
        for extent, size in zip(part.extent, full_shape)
    )
    return lengths, tuple(extent.start for extent in part.extent)


def _records(content):
    """Yields the keys and values of a table."""
    if not is_table(content) or len(content) < _FOOTER_BYTES:
        raise ValueError("this is no table, or its end is missing")
    _, position = _block_handle(content, len(content) - _FOOTER_BYTES)
    handle, _ = _block_handle(content, position)
    for _, value in _block_records(content, handle):
        yield from _block_records(content, _block_handle(value, 0)[0])


def _block_handle(content, position):
    offset, position = _varint(content, position)
    size, position = _varint(content, position)
    return (offset, size), position


def _block_records(content, handle):
    offset, size = handle
    block = content[offset : offset + size]
    if len(content) < offset + size + _BLOCK_TRAILER_BYTES or content[offset + size] != 0:
        raise ValueError("a block is missing, or compressed")
    (restarts,) = struct.unpack("<I", block[-4:])
    position, end, key = 0, len(block) - 4 * (restarts + 1), b""
    while position < end:
        shared, position = _varint(block, position)
        unshared, position = _varint(block, position)
        length, position = _varint(block, position)
        key = key[:shared] + block[position : position + unshared]
        position += unshared
        yield key, block[position : position + length]
        position += length


def _varint(content, position):
    value = shift = 0
    while True:
        byte = content[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7

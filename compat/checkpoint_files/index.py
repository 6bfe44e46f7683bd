"""Parses the index of a checkpoint (V2 format), which locates each tensor in the data files.

TensorFlow's own reader does not suffice, for two reasons. It returns names, dtypes and shapes, but
not the slices (called parts here) in which partitioned variables are saved. And it detects missing
bytes only after it has read all data.

The index is a sorted table in the file format of LevelDB. Its block checksums are not verified
here. TensorFlow's reader verifies them, so open the checkpoint with TensorFlow's reader first.
"""

import collections
import struct
from typing import NamedTuple

from google.protobuf.message import DecodeError
from tensorflow.core.protobuf import tensor_bundle_pb2

_FOOTER_BYTES = 48
_MAGIC = struct.pack("<Q", 0xDB4775248B80FB57)
_BLOCK_TRAILER_BYTES = 5  # the kind of compression, and a checksum
_PART_KEY = b"\0"  # the first byte of a part's key; the key of a whole tensor is its name


class Entry(NamedTuple):
    """A tensor in the index.

    Attributes:
      dtype: the number of the dtype, a `DataType`.
      shape: the shape of the whole tensor, even if it is saved in parts.
      nbytes: the number of the tensor's bytes in a data file; 0 if it is saved in parts.
      parts: a pair (shape of the part, offset of the part in the whole tensor) for each part; empty
        if the tensor is saved whole.
    """

    dtype: int
    shape: tuple
    nbytes: int
    parts: tuple


class StoredBytes(NamedTuple):
    """The location of the bytes of a tensor, or of one part of a tensor.

    Attributes:
      shard: the number of the data file.
      offset: the position of the first byte in the data file.
      nbytes: the number of bytes.
      crc32c: the masked checksum of these bytes. TensorFlow computes the checksums of strings and
        variants in another way.
    """

    shard: int
    offset: int
    nbytes: int
    crc32c: int


class Index(NamedTuple):
    """The parsed index.

    Attributes:
      entries: a dict from name to Entry.
      stored: a dict from name to a list of StoredBytes, one for each part. If a tensor is saved
        whole, the list has one element.
      data_bytes: for each data file, the position after its last tensor, in bytes. If the file is
        smaller, it is incomplete.
    """

    entries: dict
    stored: dict
    data_bytes: tuple


def is_table(content):
    """Returns whether a file ends with the magic number of a LevelDB table.

    Args:
      content: the bytes of the file, or only its last bytes.
    """
    return content[-len(_MAGIC) :] == _MAGIC


def parse_index(content):
    """Parses an index.

    Args:
      content: the bytes of the index file.

    Returns:
      An Index.

    Raises:
      ValueError: the content is not an index, or its format is not supported.
    """
    try:
        return _as_index(list(_records(content)))
    except (IndexError, struct.error, DecodeError) as error:
        raise ValueError(f"this is not the index of a checkpoint: {error}") from error


def _as_index(records):
    header, entries, data_bytes = tensor_bundle_pb2.BundleHeaderProto(), {}, {}
    stored = collections.defaultdict(list)
    for key, value in records:
        if not key:
            header.MergeFromString(value)
            continue
        entry = tensor_bundle_pb2.BundleEntryProto.FromString(value)
        end = entry.offset + entry.size
        data_bytes[entry.shard_id] = max(end, data_bytes.get(entry.shard_id, 0))
        name = _name_of(key)
        if not key.startswith(_PART_KEY):
            shape = tuple(dim.size for dim in entry.shape.dim)
            parts = tuple(_as_part(shape, part) for part in entry.slices)
            entries[name] = Entry(entry.dtype, shape, entry.size, parts)
        if not entry.slices:
            place = StoredBytes(entry.shard_id, entry.offset, entry.size, entry.crc32c)
            stored[name].append(place)
    sizes = tuple(data_bytes.get(shard, 0) for shard in range(header.num_shards))
    return Index(entries, dict(stored), sizes)


def _name_of(key):
    """Returns the name of the tensor with this key; for a part, the name of the whole tensor."""
    if key.startswith(_PART_KEY):  # _PART_KEY, name with escaped NULs, extents
        key = key[1 : key.index(b"\0\1", 1)].replace(b"\0\xff", b"\0")
    return key.decode("utf-8")


def _as_part(full_shape, part):
    """Returns the shape of a part, and the part's offset in the tensor.

    An extent without a length covers a whole dimension.
    """
    lengths = tuple(
        extent.length if extent.HasField("length") else size
        for extent, size in zip(part.extent, full_shape)
    )
    return lengths, tuple(extent.start for extent in part.extent)


def _records(content):
    """Yields the keys and values of a table."""
    if not is_table(content) or len(content) < _FOOTER_BYTES:
        raise ValueError("this is not a table, or its end is missing")
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

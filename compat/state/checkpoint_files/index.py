"""Parses the index of a checkpoint (V2 format), which locates each tensor in the data files.

TensorFlow's own reader does not suffice, for three reasons. It returns names, dtypes and shapes,
but not the slices (called parts here) in which partitioned variables are saved. It detects missing
bytes only after it has read all data. And shapes that cannot be abort the process.

The index is a sorted table in the file format of LevelDB. TensorFlow and protobuf are not needed.
"""

from __future__ import annotations

import struct
from typing import Any, Callable, Dict, Iterable, Iterator, List, NamedTuple, Optional, Tuple

from legacy_opt.core.array_parts import Part, Shape, whole

from ... import arrays
from ...file_endings import INDEX
from .crc32c import masked_crc32c
from .errors import AGAIN, CheckpointError
from .tensor_info import TensorInfo
from .wire_format import Fields, WireError, fields, messages, number, varint

MOST_BYTES = 256 << 20  # of an index, which has about 100 bytes for each tensor
_FOOTER_BYTES = 48
_MAGIC = struct.pack("<Q", 0xDB4775248B80FB57)
_BLOCK_TRAILER_BYTES = 5  # the kind of compression, and a checksum
_MOST_SHARDS = 99_999  # names of data files have five digits
# The numbers of fields in TensorFlow's tensor_bundle.proto, tensor_shape.proto, tensor_slice.proto.
_NUM_SHARDS, _ENDIANNESS, _VERSION, _MIN_CONSUMER = 1, 2, 3, 2  # in the header
_CONSUMER = 1  # the version of the format that this module reads
_DTYPE, _SHAPE, _SHARD, _OFFSET, _SIZE, _CRC32C, _SLICES = range(1, 8)  # in an entry
_DIM, _UNKNOWN_RANK, _DIM_SIZE = 2, 3, 1
_MOST_AXES, _MOST_ELEMENTS = 254, (1 << 63) - 1  # of a tensor in TensorFlow
_EXTENT, _START, _LENGTH = 1, 1, 2
_PART_KEY = b"\0"  # the first byte of a part's key; the key of a whole tensor is its name


class Entry(NamedTuple):
    """A tensor in the index."""

    dtype: int  # the number of the dtype, a `DataType`
    shape: Shape  # of the whole tensor, even if it is saved in parts
    nbytes: int  # the number of the tensor's bytes in a data file; 0 if it is saved in parts
    parts: Tuple[Part, ...]  # the saved parts; empty if the tensor is saved whole


class StoredBytes(NamedTuple):
    """The location of the bytes of a tensor, or of one part of a tensor."""

    shard: int  # the number of the data file
    offset: int  # the position of the first byte in the data file
    nbytes: int  # the number of bytes
    crc32c: int  # masked; TensorFlow computes that of strings and variants in another way


class Index(NamedTuple):
    """The parsed index."""

    entries: Dict[str, Entry]  # by the names of the tensors
    # By name, the places of all parts, in the order of the entry's parts, or of the whole tensor.
    # Tensors of which parts are missing are left out.
    stored: Dict[str, List[StoredBytes]]
    data_bytes: Tuple[int, ...]  # the smallest size of each data file; a smaller one is incomplete

    def data_files(self, prefix: str) -> List[str]:
        """Returns the paths of the data files of the checkpoint with this prefix."""
        count = len(self.data_bytes)
        return [f"{prefix}.data-{shard:05d}-of-{count:05d}" for shard in range(count)]

    def tensors(
        self,
        prefix: str,
        size_of: Callable[[str], Optional[int]],
        dtype_of: Callable[[int], Tuple[str, int]],
    ) -> Dict[str, TensorInfo]:
        """Returns a dict from names to `TensorInfo`. Raises a CheckpointError if files do not fit.

        `size_of` returns the size of a file, or None if it does not exist. `dtype_of` returns the
        name of the dtype with a number (see `TensorInfo`), and the bytes of an element; 0 if these
        vary or are unknown.
        """
        for path, needed in zip(self.data_files(prefix), self.data_bytes):
            size = size_of(path)
            if size is None:
                raise CheckpointError(
                    f"{prefix!r} is incomplete: the data file {path!r} is missing. {AGAIN}"
                )
            if size < needed:
                raise CheckpointError(
                    f"{prefix!r} is truncated: the data file {path!r} has {size} bytes, and the "
                    f"index needs {needed}. {AGAIN}"
                )
        tensors = {}
        for name in sorted(self.entries):
            dtype, width = dtype_of(self.entries[name].dtype)
            problem = self._problem(name, width)
            if problem:
                raise CheckpointError(f"{prefix + INDEX!r} is corrupt: the tensor {problem}.")
            _, shape, nbytes, parts = self.entries[name]
            parts = () if parts == (whole(shape),) else parts
            in_memory = arrays.count(shape) * width or nbytes  # strings have no width
            tensors[name] = TensorInfo(dtype, shape, in_memory, parts)
        return tensors

    def _problem(self, name: str, width: int) -> str:
        """Returns how a tensor does not fit its data; "" if it fits.

        Without this check, TensorFlow would allocate memory for a corrupt shape.
        """
        _, shape, _, parts = self.entries[name]
        parts = parts or (whole(shape),)
        needed = [arrays.count(part_shape) * width for part_shape, _ in parts]
        places = self.stored.get(name, ())
        # The sizes cannot be compared if elements have no fixed width, or if parts are missing.
        stored = [place.nbytes for place in places] if width and places else needed
        if sum(stored) != sum(needed):
            needs = f"its shape {list(shape)} needs {sum(needed)}"
            return f"{name!r} has {sum(stored)} bytes, and {needs}"
        is_covered_once = sum(arrays.count(each) for each, _ in parts) <= arrays.count(shape)
        is_in_files = all(
            0 <= each.shard < len(self.data_bytes) and min(each.offset, each.nbytes) >= 0
            for each in places
        )
        is_inside = all(_is_inside(part, shape) for part in parts)
        if stored == needed and is_covered_once and is_in_files and is_inside:
            return ""
        return f"{name!r} of the shape {list(shape)} does not fit its data"


def is_table(content: bytes) -> bool:
    """Returns whether a file, or only its last bytes, ends with the magic number of a table."""
    return content[-len(_MAGIC) :] == _MAGIC


def parse_index(content: bytes) -> Index:
    """Returns the Index in the bytes of an index file. Other content raises a ValueError."""
    try:
        return _as_index(list(records_of(content)))
    except (IndexError, struct.error, WireError) as error:
        raise ValueError(f"this is not the index of a checkpoint: {error}") from error


def _as_index(records: Iterable[Tuple[bytes, bytes]]) -> Index:
    shards = 0
    entries, data_bytes, places, keys = {}, {}, {}, {}
    last = None
    for key, value in records:
        # Otherwise TensorFlow might find another entry than this module.
        if last is not None and key <= last:
            raise ValueError("its names are not in order")
        last, entry = key, fields(value)
        if not key:  # the header
            shards = number(entry, _NUM_SHARDS)
            _check_header(entry)
            continue
        shard, offset, size = (number(entry, each) for each in (_SHARD, _OFFSET, _SIZE))
        data_bytes[shard] = max(offset + size, data_bytes.get(shard, 0))
        slices = [_extents(each) for each in messages(entry, _SLICES)]
        if not slices:
            places[key] = StoredBytes(shard, offset, size, number(entry, _CRC32C))
        if not key.startswith(_PART_KEY):
            shape = _shape(messages(entry, _SHAPE))
            parts = tuple(_as_part(shape, each) for each in slices)
            name = key.decode("utf-8")
            entries[name] = Entry(number(entry, _DTYPE), shape, size, parts)
            keys[name] = [part_key(key, each) for each in slices] or [key]
    if shards > _MOST_SHARDS:
        raise ValueError(f"{shards} data files are too many")
    stored = {
        name: [places[key] for key in keys_of_parts]
        for name, keys_of_parts in keys.items()
        if all(key in places for key in keys_of_parts)
    }
    return Index(entries, stored, tuple(data_bytes.get(shard, 0) for shard in range(shards)))


def _check_header(header: Fields) -> None:
    if number(header, _ENDIANNESS):
        raise ValueError("its numbers have the order of bytes of another processor")
    if any(number(each, _MIN_CONSUMER) > _CONSUMER for each in messages(header, _VERSION)):
        raise ValueError("a later version of TensorFlow wrote it, in another format")


def _shape(found: List[Fields]) -> Shape:
    """Returns the shape in messages; see `check_shape`."""
    shape = tuple(number(dim, _DIM_SIZE) for each in found for dim in messages(each, _DIM))
    check_shape(shape, not any(number(each, _UNKNOWN_RANK) for each in found))
    return shape


def check_shape(shape: Shape, is_known: bool) -> None:
    """Raises a ValueError for a shape with which TensorFlow would abort the process."""
    is_possible = len(shape) <= _MOST_AXES and min(shape, default=0) >= 0
    if not (is_known and is_possible and arrays.count([x or 1 for x in shape]) <= _MOST_ELEMENTS):
        raise ValueError(f"a tensor has the impossible shape {list(shape)[:9]}")


def _extents(part: Fields) -> List[Tuple[int, int]]:
    """Returns a pair (start, length) for each axis of a part. A length of -1 is the whole axis."""
    extents = messages(part, _EXTENT)
    return [(number(each, _START), number(each, _LENGTH, -1)) for each in extents]


def _as_part(full_shape: Shape, extents: List[Tuple[int, int]]) -> Part:
    """Returns the shape of a part, and the part's offset in the tensor."""
    lengths = tuple(
        size if length == -1 else length for (_, length), size in zip(extents, full_shape)
    )
    return lengths, tuple(start for start, _ in extents)


def _is_inside(part: Part, shape: Shape) -> bool:
    """Returns whether a part (shape, offset) is inside a tensor of a shape."""
    lengths, offset = part
    return len(lengths) == len(offset) == len(shape) and all(
        min(start, length) >= 0 and start + length <= size
        for length, start, size in zip(lengths, offset, shape)
    )


def part_key(name: bytes, extents: List[Tuple[int, int]]) -> bytes:
    """Returns the key of a part: the name with escaped NULs, the rank, and the extents."""
    rank = len(extents)
    encoded_rank = bytes([1, rank]) if rank else b"\0"
    numbers = b"".join(_ordered(each) for extent in extents for each in extent)
    name = name.replace(b"\0", b"\0\xff") + b"\0\1"
    return _PART_KEY + name + encoded_rank + numbers


def _ordered(value: int) -> bytes:
    """Encodes an integer of at least -1, so that the encoded integers sort like the integers."""
    if value < 1 << 6:
        return bytes([0x80 ^ (value & 0xFF)])
    length = (value.bit_length() + 7) // 7
    ones = (1 << length) - 1  # the first bits are a one for each byte, and a zero
    return ((ones << (7 * length)) | value).to_bytes(length, "big")


def records_of(content: Any) -> Iterator[Tuple[bytes, bytes]]:
    """Yields the keys and values of a table."""
    if not is_table(content) or len(content) < _FOOTER_BYTES:
        raise ValueError("this is not a table, or its end is missing")
    # The footer has two handles: of a block of metadata, and of a block with all other handles.
    _, position = _block_handle(content, len(content) - _FOOTER_BYTES)
    handle, _ = _block_handle(content, position)
    for _, value in _block_records(content, handle):
        yield from _block_records(content, _block_handle(value, 0)[0])


def _block_handle(content: bytes, position: int) -> Tuple[Tuple[int, int], int]:
    """Decodes a block's handle, (offset, size); returns it and the position after it."""
    offset, position = varint(content, position)
    size, position = varint(content, position)
    return (offset, size), position


def _block_records(content: bytes, handle: Tuple[int, int]) -> Iterator[Tuple[bytes, bytes]]:
    offset, size = handle
    block = content[offset : offset + size]
    if len(content) < offset + size + _BLOCK_TRAILER_BYTES or content[offset + size] != 0:
        raise ValueError("a block is missing, or compressed")
    (checksum,) = struct.unpack_from("<I", content, offset + size + 1)
    if masked_crc32c([content[offset : offset + size + 1]]) != checksum:
        raise ValueError("the checksum of a block is wrong")
    (restarts,) = struct.unpack("<I", block[-4:])
    end = len(block) - 4 * (restarts + 1)
    position, key = 0, b""
    while position < end:
        shared, position = varint(block, position)  # the number of bytes taken from the last key
        unshared, position = varint(block, position)
        length, position = varint(block, position)
        key = key[:shared] + block[position : position + unshared]
        position += unshared
        yield key, block[position : position + length]
        position += length

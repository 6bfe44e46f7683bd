"""Writes checkpoints entry by entry, also such as TensorFlow would not write."""

import struct

from tensorflow.core.framework import types_pb2
from tensorflow.core.protobuf import tensor_bundle_pb2
from tensorflow.core.util import saved_tensor_slice_pb2

from legacy_opt.compat.state.checkpoint_files.crc32c import masked_crc32c

FLOAT = types_pb2.DT_FLOAT
_RECORDS = 100  # in a block, which TensorFlow searches record by record


def varint(number):
    """Encodes an unsigned integer as protobuf does."""
    encoded = b""
    while number > 127:
        encoded, number = encoded + bytes([number & 127 | 128]), number >> 7
    return encoded + bytes([number])


def table(records):
    """Returns a table, as an index is one, of pairs of bytes. Checksums are right."""
    content = b""

    def add(block):
        nonlocal content
        block += struct.pack("<2I", 0, 1)  # one restart, at the start
        handle = varint(len(content)) + varint(len(block))
        content += block + b"\0" + struct.pack("<I", masked_crc32c([block + b"\0"]))
        return handle

    def block_of(pairs):
        sizes = ((0, len(key), len(value)) for key, value in pairs)
        return b"".join(
            b"".join(map(varint, size)) + key + value for size, (key, value) in zip(sizes, pairs)
        )

    blocks = [records[i : i + _RECORDS] for i in range(0, len(records), _RECORDS)]
    ends = [(block[-1][0], add(block_of(block))) for block in blocks]
    empty = add(b"")
    handles = empty + add(block_of(ends))
    return content + handles.ljust(40, b"\0") + struct.pack("<Q", 0xDB4775248B80FB57)


def entry(shape=(2,), dtype=FLOAT, size=8, **fields):
    """Returns an entry of an index."""
    made = tensor_bundle_pb2.BundleEntryProto(dtype=dtype, size=size, **fields)
    for each in shape or ():
        made.shape.dim.add().size = each
    made.shape.unknown_rank = shape is None
    made.crc32c = masked_crc32c([bytes(8)])
    return made


def sliced(shape, start, length):
    """Returns an entry of a tensor that is saved in one slice."""
    made = entry(shape, size=0)
    made.slices.add().extent.add(start=start, length=length)
    return made


def bundle(path, entries, header=None, data=bytes(64)):
    """Writes a checkpoint with these entries; returns its prefix."""
    head = tensor_bundle_pb2.BundleHeaderProto(num_shards=1)
    head.version.producer = 1
    pairs = [(name.encode(), each.SerializeToString()) for name, each in entries]
    header = head.SerializeToString() if header is None else header
    path.with_name(path.name + ".index").write_bytes(table([(b"", header), *pairs]))
    path.with_name(path.name + ".data-00000-of-00001").write_bytes(data)
    return path


def v1_file(name, shape, lengths, count):
    """Returns a checkpoint in V1 format with one slice from 0 on, which has `count` zeros."""
    meta = saved_tensor_slice_pb2.SavedTensorSlices()
    saved = meta.meta.tensor.add(name=name, type=FLOAT)
    meta.meta.versions.producer = 1
    for each in shape:
        saved.shape.dim.add().size = each
    part = saved.slice.add()
    for each in lengths:
        extent = part.extent.add()
        if each >= 0:
            extent.length = each
    data = saved_tensor_slice_pb2.SavedTensorSlices()
    data.data.name = name
    data.data.slice.CopyFrom(part)
    data.data.data.dtype = FLOAT
    data.data.data.float_val.extend([0.0] * count)
    key = b"\0" + name.encode().replace(b"\0", b"\0\xff") + b"\0\1"  # as OrderedCode writes it
    ends = (128 + each if each < 64 else 127 for each in lengths)  # longer numbers are left out
    key += bytes([1, len(lengths) & 255]) + b"".join(bytes([128, each]) for each in ends)
    return table([(b"", meta.SerializeToString()), (key, data.SerializeToString())])

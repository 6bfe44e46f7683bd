"""Computes CRC-32C, the checksum of the data in a checkpoint (V2 format), with NumPy.

CRC-32C treats a message as a polynomial over GF(2) and divides it by a fixed polynomial. The
remainder is the checksum. Q(x) = x^6777 + x^484 + x^100 + 1 is a multiple of the fixed polynomial.
For every power of two n, Q(x)^n = Q(x^n) is another multiple. Therefore the remainder does not
change if bits are removed from the start of the message and XORed into it 6293 n, 6677 n and 6777 n
bits further on. In this way, XORs of long arrays shorten the message to 6777 n bits. The remainder
of the short message is computed byte by byte with a table.
"""

from __future__ import annotations

from typing import Any, Iterable, List

import numpy as np

_DEGREE, _EXPONENTS = 6777, (484, 100, 0)
# The message is shortened twice. First n is 256, the number of bits of 4 uint64 elements, which is
# fastest. Then n is 8, the number of bits of 1 uint8 element, which leaves few bytes for the table.
# The checksum of 200 MB takes half as long as reading 200 MB with RestoreV2: 0.1 s instead of 0.2 s
# on TensorFlow 2.21, 0.21 s instead of 0.43 s on 1.15.
_FAST, _SHORT = (np.uint64, 4), (np.uint8, 1)
CHUNK_BYTES = 1 << 20  # a chunk fits into the processor's cache
_START = bytes.fromhex("54641f64")  # its remainder is CRC-32C's initial value, 0xFFFFFFFF


def _table() -> List[int]:
    values = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        values = values >> 1 ^ (values & 1) * np.uint32(0x82F63B78)
    return values.tolist()


_TABLE = _table()


def masked_crc32c(chunks: Iterable[bytes]) -> int:
    """Returns the checksum of data, an iterable of bytes, masked as in checkpoints."""
    data = bytearray(_START)
    for chunk in chunks:
        data = _shortened(data + chunk, *_FAST)
    crc = 0
    for byte in _shortened(data, *_SHORT):
        crc = crc >> 8 ^ _TABLE[(crc ^ byte) & 0xFF]
    crc ^= 0xFFFFFFFF
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def _shortened(data: bytearray, dtype: Any, unit: int) -> bytearray:
    """Returns at most about `_DEGREE * unit` elements, which have the same remainder as `data`."""
    width = np.dtype(dtype).itemsize
    removed = len(data) // width - _DEGREE * unit
    if removed <= 0:
        return data
    array = np.frombuffer(data, dtype, len(data) // width)
    shifts = [(_DEGREE - exponent) * unit for exponent in _EXPONENTS]
    # A block is XORed into later elements. A block is never longer than the smallest shift, so it
    # does not overlap these elements.
    for begin in range(0, removed, shifts[0]):
        end = min(begin + shifts[0], removed)
        for shift in shifts:
            array[begin + shift : end + shift] ^= array[begin:end]
    return data[removed * width :]

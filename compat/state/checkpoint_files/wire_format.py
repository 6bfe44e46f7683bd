"""Decodes protobuf messages without protobuf. The caller knows the numbers of the fields."""

from __future__ import annotations

import collections
import struct
from typing import Any, DefaultDict, List, Tuple

Fields = DefaultDict[int, List[Any]]  # {number of a field: its values, in order}


class WireError(ValueError):
    """Some bytes are not a protobuf message."""


def fields(message: bytes) -> Fields:
    """Decodes a message. Raises a WireError if the bytes are not a message.

    Numbers become integers (signed, 64 bits). Strings and messages become bytes.
    """
    found = collections.defaultdict(list)
    position = 0
    try:
        while position < len(message):
            key, position = varint(message, position)  # the field's number, and 3 bits for the kind
            value, position = _value(message, position, kind=key & 7)
            found[key >> 3].append(value)
    except (IndexError, struct.error) as error:
        raise WireError("a message is truncated") from error
    return found


def number(found: Fields, field: int, default: int = 0) -> int:
    """Returns the last number among a field's values. Protobuf ignores other values, too."""
    return next((each for each in reversed(found[field]) if isinstance(each, int)), default)


def messages(found: Fields, field: int) -> List[Fields]:
    """Decodes the messages among a field's values."""
    return [fields(each) for each in found[field] if isinstance(each, bytes)]


def varint(content: bytes, position: int) -> Tuple[int, int]:
    """Decodes an unsigned integer. Returns the integer, and the position after it."""
    value = shift = 0
    while True:
        byte = content[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7


def _value(message: bytes, position: int, kind: int) -> Tuple[Any, int]:
    if kind == 0:
        value, position = varint(message, position)
        value &= (1 << 64) - 1
        return value - (value >> 63 << 64), position  # bit 63 is the sign
    if kind == 1:
        return struct.unpack_from("<q", message, position)[0], position + 8
    if kind == 5:
        return struct.unpack_from("<I", message, position)[0], position + 4
    if kind == 2:
        size, position = varint(message, position)
        if len(message) < position + size:
            raise WireError("a message is truncated")
        return message[position : position + size], position + size
    raise WireError("this is not a message of protobuf")

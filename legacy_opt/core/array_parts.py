"""Parts of arrays, such as the partitions of a variable. TensorFlow is not needed."""

from __future__ import annotations

from typing import Sequence, Tuple

Shape = Tuple[int, ...]
Offset = Tuple[int, ...]  # where a part begins in the whole array
Part = Tuple[Shape, Offset]


def whole(shape: Sequence[int]) -> Part:
    """Returns the part that contains a whole array."""
    return tuple(shape), (0,) * len(shape)


def slices(shape: Sequence[int], offset: Sequence[int]) -> Tuple[slice, ...]:
    """Returns the slices that select a part of an array."""
    return tuple(slice(start, start + size) for size, start in zip(shape, offset))

"""What a checkpoint says about a tensor without its data. TensorFlow is not needed."""

from __future__ import annotations

import re
from typing import Mapping, NamedTuple, Tuple

from legacy_opt.core.array_parts import Offset, Part, Shape

from ... import arrays

Place = Tuple[Shape, Offset]  # the shape of the whole tensor, and the offset of a part in it
_INTEGER = re.compile(r"u?int(8|16|32|64)")
_UNKNOWN = "type "


class TensorInfo(NamedTuple):
    """The dtype, shape and size of a tensor in a checkpoint."""

    # The name, or the result of `unknown_dtype` if the installed TensorFlow, or a reader without
    # TensorFlow, does not have the dtype.
    dtype: str
    shape: Shape
    nbytes: int  # the size in memory; for strings, the size in the file, or 0 if it is unknown
    # The saved parts, such as those of a partitioned variable. Empty if the tensor is saved whole,
    # and in V1 format, whose parts are not parsed.
    parts: Tuple[Part, ...] = ()

    @property
    def missing(self) -> int:
        """The number of elements that no part contains."""
        saved = sum(arrays.count(shape) for shape, _ in self.parts)
        return arrays.count(self.shape) - saved if self.parts else 0

    @property
    def is_readable(self) -> bool:
        """Whether the reader has the dtype."""
        return not self.dtype.startswith(_UNKNOWN)


Infos = Mapping[str, TensorInfo]  # by the names of the tensors


def unknown_dtype(number: int) -> str:
    """Returns a name for a dtype of which only TensorFlow's number is known."""
    return f"{_UNKNOWN}{number}"


def is_integer(dtype: str) -> bool:
    """Returns whether a dtype is an integer dtype."""
    return _INTEGER.fullmatch(dtype) is not None

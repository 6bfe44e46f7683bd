"""Reads the data of tensors in checkpoints (V2 format), and their checksums, with NumPy alone.

For small tensors this is much faster than RestoreV2, which opens the index again for each tensor.
"""

from __future__ import annotations

from typing import Any, Callable, Iterator, NamedTuple, Sequence

import numpy as np

from legacy_opt.core.array_parts import slices

from .crc32c import CHUNK_BYTES, masked_crc32c
from .index import StoredBytes
from .tensor_info import TensorInfo

# The numbers of dtypes in TensorFlow's types.proto, and NumPy's names. NumPy lacks the others.
DTYPES = {
    1: "float32",
    2: "float64",
    3: "int32",
    4: "uint8",
    5: "int16",
    6: "int8",
    8: "complex64",
    9: "int64",
    10: "bool",
    17: "uint16",
    18: "complex128",
    19: "float16",
    22: "uint32",
    23: "uint64",
}
_NAMES = frozenset(DTYPES.values())


def opened(path: str) -> Any:
    """Opens a local file."""
    return open(path, "rb", 0)


class DataFiles(NamedTuple):
    """The data files of a checkpoint."""

    paths: Sequence[str]  # by the numbers of the files
    open: Callable[[str], Any] = opened  # returns a file to read bytes from

    def is_intact(self, place: StoredBytes) -> bool:
        """Returns whether the bytes have their checksum."""
        return masked_crc32c(self._chunks(place)) == place.crc32c

    def read(self, info: TensorInfo, places: Sequence[StoredBytes]) -> np.ndarray:
        """Reads a tensor of one of the `DTYPES` whole, or joins its parts.

        Needs at most twice the tensor's memory. Raises a ValueError for damaged data.
        """
        pieces = (self._array(place, info.dtype) for place in places)
        if not info.parts:
            return next(pieces).reshape(info.shape)
        value = np.zeros(info.shape, info.dtype)
        for (shape, offset), array in zip(info.parts, pieces):
            value[slices(shape, offset)] = array.reshape(shape)
        return value

    def _array(self, place: StoredBytes, dtype: str) -> np.ndarray:
        array = np.empty(place.nbytes, np.uint8)

        def stored() -> Iterator[bytes]:
            begin = 0
            for chunk in self._chunks(place):
                array[begin : begin + len(chunk)] = np.frombuffer(chunk, np.uint8)
                begin += len(chunk)
                yield chunk

        if masked_crc32c(stored()) != place.crc32c:
            raise ValueError("its checksum is wrong")
        return array.view(np.dtype(dtype).newbyteorder("<")).astype(dtype, copy=False)

    def _chunks(self, place: StoredBytes) -> Iterator[bytes]:
        nbytes = place.nbytes
        with self.open(self.paths[place.shard]) as file:
            file.seek(place.offset)
            while nbytes > 0:
                chunk = file.read(min(nbytes, CHUNK_BYTES))
                if not chunk:
                    return
                nbytes -= len(chunk)
                yield chunk


def has_dtype(info: TensorInfo) -> bool:
    """Returns whether NumPy has the dtype of a tensor."""
    return info.dtype in _NAMES

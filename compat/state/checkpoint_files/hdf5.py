"""Finds the datasets of HDF5 files, which may be hostile. TensorFlow is not needed."""

from __future__ import annotations

import io
import zipfile
from typing import Any, Dict

from ... import arrays
from .errors import CheckpointError

_MOST_LEVELS = 100  # of groups in groups: each level costs as much time as there are levels
_MAX_RATIO, _ALWAYS_ALLOWED = 16, 64 << 20


def most_memory(nbytes: int) -> int:
    """Returns how much memory the content of a file may take, which has about `nbytes`.

    The ratio allows for slots, names and compression. 64 MiB are never refused.
    """
    return max(_MAX_RATIO * nbytes, _ALWAYS_ALLOWED)


def opened(path: str) -> Any:
    """Opens a Keras file with h5py. For a .keras archive, opens the HDF5 file in the archive."""
    import h5py

    if not zipfile.is_zipfile(path):
        return h5py.File(path, "r")
    with zipfile.ZipFile(path) as archive:
        return h5py.File(io.BytesIO(archive.read("model.weights.h5")), "r")


def size_in_archive(path: str) -> int:
    """Returns how many bytes the members of a .keras archive take; 0 for other files."""
    if not zipfile.is_zipfile(path):
        return 0
    with zipfile.ZipFile(path) as archive:
        return sum(member.file_size for member in archive.infolist())


def datasets_in(path: str, group: Any) -> Dict[str, Any]:
    """Returns {name: dataset} of a file that h5py has opened, or of a group in it."""
    found = {}

    def add(name: str, item: Any) -> None:
        if name.count("/") > _MOST_LEVELS:
            raise CheckpointError(f"{path!r} is damaged: it has more than {_MOST_LEVELS} levels")
        if getattr(item, "shape", None) is not None:  # neither a group nor an empty dataset
            found[name] = item

    group.visititems(add)
    return found


def nbytes_of(datasets: Dict[str, Any]) -> int:
    """Returns the memory that datasets need (old versions of h5py overflow)."""
    return sum(arrays.count(each.shape) * each.dtype.itemsize for each in datasets.values())

"""Finds the datasets of HDF5 files, which may be hostile. TensorFlow is not needed."""

from __future__ import annotations

from typing import Any, Dict

from ... import arrays
from .errors import CheckpointError

_MOST_LEVELS = 100  # of groups in groups: each level costs as much time as there are levels


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

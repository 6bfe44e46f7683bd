"""Files of Keras (.keras, .h5), asked what they hold before Keras loads them.

A small file may stand for a lot of memory: a zip archive is packed, and an HDF5 dataset that was
never written is full of zeros.
"""

import io
import os
import zipfile

import numpy as np
import tensorflow as tf

from ..plain_text import size
from . import CheckpointError

ENDINGS = (".keras", ".h5", ".hdf5")
_WEIGHTS = "model.weights.h5"
_STATE_IN_H5 = "optimizer_weights"
# How much more than the weights there may be: slots, names, texts; and as much again as is packed.
_TIMES, _BESIDES = 16, 64 << 20


def check_size(path, model):
    """Refuses a file that would take far more memory than a model may need.

    Args:
      path: the file, which may also be none of Keras.
      model: whose weights it is to hold.

    Raises:
      CheckpointError: it would.
    """
    variables = getattr(model, "weights", None) or model.trainable_variables
    needed = sum(_nbytes(variable.shape, variable.dtype) for variable in variables)
    limit = max(_TIMES * max(needed, os.path.getsize(path)), _BESIDES)
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            _check(path, sum(member.file_size for member in archive.infolist()), needed, limit)
    with _opened(path) as content:
        sizes = []
        content.visititems(lambda _, each: sizes.append(_size_of_dataset(each)))
        _check(path, sum(sizes), needed, limit)


def _check(path, found, needed, limit):
    if found > limit:
        raise CheckpointError(
            f"{path!r}, a file of {size(os.path.getsize(path))}, would take {size(found)} of "
            f"memory, and the model's weights have {size(needed)}: it is damaged, or not of "
            "this model."
        )


def _size_of_dataset(each):
    shape = getattr(each, "shape", None)  # a group has none
    return 0 if shape is None else _nbytes(shape, each.dtype)


def _nbytes(shape, dtype):
    width = dtype.itemsize if isinstance(dtype, np.dtype) else tf.as_dtype(dtype).size
    return int(np.prod(tf.TensorShape(shape).as_list(), dtype=np.float64)) * width


def _opened(path):
    """Opens the HDF5 file that a file of Keras is, or holds."""
    import h5py

    if not zipfile.is_zipfile(path):
        return h5py.File(path, "r")
    with zipfile.ZipFile(path) as archive:
        return h5py.File(io.BytesIO(archive.read(_WEIGHTS)), "r")


def holds_optimizer(path):
    """Whether Keras has written an optimizer's variables into a file."""
    import h5py

    found = []
    with _opened(path) as content:
        for name in content:
            if "optimizer" in name and isinstance(content[name], h5py.Group):
                content[name].visititems(
                    lambda _, each: found.append(each) if isinstance(each, h5py.Dataset) else None
                )
    return bool(found)


def state_in_h5(path):
    """Returns the optimizer's arrays in a whole model's .h5 file; None if it is of another kind."""
    import h5py

    if not h5py.is_hdf5(path):
        return None
    with h5py.File(path, "r") as content:
        if _STATE_IN_H5 not in content:
            return None
        group = content[_STATE_IN_H5]
        # Keras cuts a long list of names into several attributes, weight_names0, weight_names1, …
        chunks = [key for key in group.attrs if key.startswith("weight_names")]
        chunks.sort(key=lambda key: int(key[len("weight_names") :] or 0))
        return [np.array(group[name]) for key in chunks for name in group.attrs[key]]

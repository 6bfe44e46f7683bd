"""Checks Keras files (.keras, .h5) before Keras loads them.

A small file may need a lot of memory for two reasons: a zip archive is compressed, and HDF5 returns
zeros for a dataset that was never written.
"""

from __future__ import annotations

import contextlib
import json
import os
from typing import Any, Dict, Iterable, Iterator, List, NamedTuple

import numpy as np
import tensorflow as tf

from ... import arrays
from ...plain_text import size
from . import hdf5
from .errors import CheckpointError
from .tensor_info import TensorInfo

_STATE_IN_H5 = "optimizer_weights"
_LAYERS_IN_H5, _NO_LAYER_IN_H5 = "model_weights", "top_level_model_weights"


def check_size(path: str, model: Any) -> None:
    """Raises a CheckpointError for a file that would take far more memory than the model needs."""
    variables = getattr(model, "weights", None) or model.trainable_variables
    needed = sum(_nbytes(variable.shape, variable.dtype) for variable in variables)
    limit = hdf5.most_memory(max(needed, os.path.getsize(path)))
    _check(path, hdf5.size_in_archive(path), needed, limit)
    with hdf5.opened(path) as content:
        _check(path, hdf5.nbytes_of(hdf5.datasets_in(path, content)), needed, limit)


def _check(path: str, content_size: int, weights_size: int, limit: int) -> None:
    if content_size > limit:
        raise CheckpointError(
            f"{path!r}, a file of {size(os.path.getsize(path))}, would take {size(content_size)} "
            f"of memory, but the model's weights take {size(weights_size)}. The file is damaged, "
            "or it belongs to another model."
        )


def _nbytes(shape: Any, dtype: Any) -> int:
    width = dtype.itemsize if isinstance(dtype, np.dtype) else tf.as_dtype(dtype).size
    return arrays.count(tf.TensorShape(shape).as_list()) * width


def holds_optimizer(path: str) -> bool:
    """Returns whether a Keras file contains the variables of an optimizer."""
    with hdf5.opened(path) as content:
        groups = [content[name] for name in content if "optimizer" in name]
        return any(hasattr(each, "visititems") and hdf5.datasets_in(path, each) for each in groups)


def _listed(group: Any, attribute: str) -> List[str]:
    """Returns a list of names. Keras splits a long list into attributes name0, name1 and so on."""
    chunks = [key for key in group.attrs if key.startswith(attribute)]
    chunks.sort(key=lambda key: int(key[len(attribute) :] or 0))
    names = [name for key in chunks for name in group.attrs[key]]
    return [name.decode() if isinstance(name, bytes) else name for name in names]


class ModelInH5(NamedTuple):
    """The .h5 file of a whole model of Keras 2."""

    weights: Dict[str, str]  # {name of a weight of the model: name of a dataset}
    state: Dict[str, str]  # the same for the optimizer; empty if the file has no such weights
    infos: Dict[str, TensorInfo]  # by the names of the datasets
    optimizer: str  # its class; "" if it is unknown
    settings: Dict[str, Any]  # the arguments of the optimizer and of those in it, unchecked


def model_in_h5(path: str) -> ModelInH5:
    """Returns a ModelInH5, empty for other HDF5 files. A damaged file raises a CheckpointError."""
    with _h5(path) as content:
        weights = {}
        layers = content.get(_LAYERS_IN_H5)
        names = [] if layers is None else [*_listed(layers, "layer_names"), _NO_LAYER_IN_H5]
        for layer in names:
            datasets = _datasets(layers[layer]) if layer in layers else {}
            for name, key in datasets.items():
                first = weights.setdefault(name, key)
                # A layer that two nested models share is in the file twice.
                if first != key and content[first][()].tobytes() != content[key][()].tobytes():
                    raise ValueError(f"two different weights have the name {name!r}")
        state = _datasets(content[_STATE_IN_H5]) if _STATE_IN_H5 in content else {}
        infos = {
            key: TensorInfo(tf.as_dtype(content[key].dtype).name, tuple(content[key].shape), 0)
            for key in [*weights.values(), *state.values()]
        }
        training = json.loads(content.attrs.get("training_config", "{}")) or {}
        saved = training.get("optimizer_config")
        return ModelInH5(weights, state, infos, _class_in(saved), _settings_in(saved))


def read_h5(path: str, keys: Iterable[str]) -> Iterator[np.ndarray]:
    """Returns an iterator of the arrays of datasets. Damaged data raise a CheckpointError."""
    with _h5(path) as content:
        return iter([np.array(content[key]) for key in keys])


@contextlib.contextmanager
def _h5(path: str) -> Iterator[Any]:
    import h5py

    try:
        with h5py.File(path, "r") as content:
            yield content
    except Exception as error:  # HDF5 raises errors of many classes
        raise CheckpointError(f"{path!r} is damaged, or not an HDF5 file: {error}") from error


def _datasets(group: Any) -> Dict[str, str]:
    """Returns a dict from the names of weights, without ":0", to names of datasets."""
    names = _listed(group, "weight_names")
    return {name.rpartition(":")[0] or name: f"{group.name}/{name}" for name in names}


def _class_in(configuration: Any) -> str:
    """Returns the class name in the configuration of an optimizer, or of one that it wraps."""
    if not configuration:
        return ""
    inner = configuration["config"].get("inner_optimizer")
    return _class_in(inner) if inner else configuration["class_name"].rpartition(">")[2]


def _settings_in(configuration: Any) -> Dict[str, Any]:
    if not configuration:
        return {}
    settings = dict(configuration["config"])
    for wrapped in ("inner_optimizer", "optimizer"):  # of Keras, of TensorFlow Addons
        settings.update(_settings_in(settings.get(wrapped)))
    return settings

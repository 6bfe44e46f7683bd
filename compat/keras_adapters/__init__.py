"""Adapters hide the differences between Keras 2 and Keras 3 optimizers behind one interface."""

import contextlib

from legacy_opt import versions

from ..v1_optimizers import graph_names
from . import keras2, keras3
from .base import AWAITS, KerasAdapter

__all__ = ["ADAPTERS", "AWAITS", "KerasAdapter", "adapter_of", "adapter_of_api"]

# Keras' generation (2 or 3) -> adapter. Adapters import Keras only when necessary.
ADAPTERS = {each.generation: each for each in (keras3.Adapter(), keras2.Adapter())}


def adapter_of(optimizer):
    """Returns the `KerasAdapter` of a Keras optimizer; None if it is not a Keras optimizer."""
    if graph_names.is_bridged(optimizer):
        return optimizer._adapter
    for adapter in ADAPTERS.values():
        with contextlib.suppress(ImportError):
            if isinstance(optimizer, adapter.base):
                return adapter
    return None


def adapter_of_api(api="auto"):
    """Returns the `KerasAdapter` of an `api`; "auto" means the generation of `tf.keras`.

    Raises:
      ValueError: there is no such `api`.
    """
    known = {adapter.api: adapter for adapter in ADAPTERS.values()}
    if api == "auto":
        return ADAPTERS[3 if versions.keras_facts()["generation"] == 3 else 2]
    if api not in known:
        names = ", ".join(map(repr, ["auto", *sorted(known, reverse=True)]))
        raise ValueError(f"api must be one of {names}, got {api!r}.")
    return known[api]

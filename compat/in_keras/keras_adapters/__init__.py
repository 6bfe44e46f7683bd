"""Adapters hide the differences between Keras 2 and Keras 3 optimizers behind one interface.

An `api` is the name of an adapter in arguments of public functions such as `to_keras`.
"""

from __future__ import annotations

from typing import Any, Optional

from legacy_opt import versions

from .base import KerasAdapter
from .keras2 import Keras2Adapter
from .keras3 import Keras3Adapter

KERAS_2, KERAS_3 = Keras2Adapter(), Keras3Adapter()  # import Keras only when necessary
_ADAPTERS = {adapter.api: adapter for adapter in (KERAS_2, KERAS_3)}


def adapter_of(optimizer: Any) -> Optional[KerasAdapter]:
    """Returns the `KerasAdapter` of a Keras optimizer or its class; None for all other objects."""
    api = versions.api_of(optimizer)
    return None if api is None else _ADAPTERS[api]


def adapter_of_api(api: str = "auto") -> KerasAdapter:
    """Returns the `KerasAdapter` of an `api`; "auto" means the Keras version of `tf.keras`."""
    if api == "auto":
        return KERAS_3 if versions.keras_facts()["generation"] == 3 else KERAS_2
    if api not in _ADAPTERS:
        names = ", ".join(map(repr, ["auto", *_ADAPTERS]))
        raise ValueError(f"api must be one of {names}, got {api!r}.")
    return _ADAPTERS[api]

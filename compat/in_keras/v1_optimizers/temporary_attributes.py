"""Sets attributes temporarily."""

from __future__ import annotations

import contextlib
from typing import Any, Collection, Dict, Iterator, Mapping

from legacy_opt import versions


@contextlib.contextmanager
def with_attributes(thing: Any, attributes: Mapping[str, Any]) -> Iterator[None]:
    """Sets attributes of an object within this scope, and resets or deletes them afterwards.

    The attributes of Keras' objects are not tracked.
    """
    if not attributes:  # `thing` may be None
        yield
        return
    state = vars(thing)
    before = {name: state[name] for name in attributes if name in state}
    state.update(attributes)
    try:
        yield
    finally:
        state.update(before)
        for name in set(attributes) - set(before):
            del state[name]


def restore(state: Dict[str, Any], before: Mapping[str, Any], rates: Collection[str]):
    """Resets the attributes `rates`, and all attributes that contain tensors of a graph.

    `before` is a dict of the earlier attributes. Attributes that `before` lacks are deleted.
    """
    for key in list(state):
        if key in rates or _holds_symbolic(state[key]):
            if key in before:
                state[key] = before[key]
            else:
                del state[key]


def _holds_symbolic(value: Any) -> bool:
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, (list, tuple)):
        return any(map(_holds_symbolic, value))
    return versions.is_symbolic(value)

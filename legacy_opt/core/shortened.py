"""Shortens the lists in messages."""

from __future__ import annotations

from typing import Any, Callable, Iterable, List


def first_few(items: Iterable[Any], more: Callable[[int], Any]) -> List[Any]:
    """Returns the items; of more than four, the first three and `more(number of the others)`."""
    items = list(items)
    if len(items) <= 4:
        return items
    return [*items[:3], more(len(items) - 3)]


def quoted(names: Iterable[str]) -> str:
    """Returns names for a sentence: "'a', 'b', 'c', and 7 more"."""
    return ", ".join(first_few(map(repr, names), "and {} more".format))

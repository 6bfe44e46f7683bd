"""Shortens the lists in error messages."""

from typing import Iterable, List


def first_few(items: Iterable[str], more: str = "… and {} more") -> List[str]:
    """Returns the items; of more than four, the first three and the number of the others."""
    items = list(items)
    return items if len(items) < 5 else [*items[:3], more.format(len(items) - 3)]


def quoted(names: Iterable[str]) -> str:
    """Returns names for a sentence: "'a', 'b', 'c', and 7 more"."""
    return ", ".join(first_few(map(repr, names), "and {} more"))

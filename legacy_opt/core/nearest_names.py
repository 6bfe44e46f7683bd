"""Suggests a known name in place of a misspelled name, for error messages."""

from __future__ import annotations

import difflib
from typing import Any, Iterable


def did_you_mean(name: Any, known: Iterable[str]) -> str:
    """Returns " Did you mean 'x'?" with the most similar known name, or "" if none is similar."""
    near = difflib.get_close_matches(str(name), known, n=1)
    return f" Did you mean {near[0]!r}?" if near else ""

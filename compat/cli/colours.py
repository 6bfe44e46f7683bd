"""Colours for terminals; files, pipes and logs get plain text."""

from __future__ import annotations

import os
from typing import Optional, TextIO

_CODES = {"bold": 1, "red": 31, "green": 32, "yellow": 33}
# Colours of cells of tables by their text.
OF_CELLS = {"MANUAL": "red", "change": "yellow", "stays": "green"}


def are_wanted(stream: TextIO) -> bool:
    """Whether to print colours to a stream.

    As in other programs, the environment variable NO_COLOR turns colours off
    (https://no-color.org), and FORCE_COLOR turns them on if the stream is not a terminal.
    """
    if os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("FORCE_COLOR"):
        return True
    return stream.isatty() and os.environ.get("TERM") != "dumb" and os.name != "nt"


def painted(text: str, colour: Optional[str], stream: TextIO) -> str:
    """Returns a text with the codes of a colour, or unchanged if the stream gets no colours."""
    if colour is None or not are_wanted(stream):
        return text
    return f"\x1b[{_CODES[colour]}m{text}\x1b[0m"

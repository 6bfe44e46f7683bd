"""Formats numbers and names for printing."""

from __future__ import annotations

from typing import Optional, TextIO


def printable(text: str, stream: Optional[TextIO] = None) -> str:
    """Escapes the unprintable characters of a line like in Python's string literals.

    Names in a checkpoint may contain line breaks and control sequences of terminals. Characters
    that the encoding of `stream` lacks are escaped, too; None means UTF-8.
    """
    encoding = getattr(stream, "encoding", None) or "utf-8"
    text = "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)
    return text.encode(encoding, "backslashreplace").decode(encoding)


def size(count: float) -> str:
    """Returns a number of bytes in decimal units: "800 bytes", "3.5 MB"."""
    if count < 1000:
        return f"{count} bytes"
    for unit in ("kB", "MB", "GB"):
        count /= 1000
        if count < 999.5:  # otherwise three digits would be "1e+03"
            return f"{count:.3g} {unit}"
    return f"{count / 1000:.3g} TB"


def counted(number: int, noun: str) -> str:
    """Returns a number with its noun, singular or plural: "1 tensor", "2 tensors"."""
    return f"{format(number, ',')} {noun}{'' if number == 1 else 's'}"

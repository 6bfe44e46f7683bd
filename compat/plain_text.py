"""Numbers and names as text."""


def printable(text, stream=None):
    """Returns a line with escapes, as in Python's strings, for what is not to be seen as it is.

    A name in a checkpoint may hold line breaks, and what a terminal takes for commands.

    Args:
      text: the line.
      stream: where it is printed; what its encoding does not have is escaped, too.
    """
    encoding = getattr(stream, "encoding", None) or "utf-8"
    text = "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)
    return text.encode(encoding, "backslashreplace").decode(encoding)


def size(count):
    """Returns a number of bytes as people write it."""
    if count < 1000:
        return f"{count} bytes"
    for unit in ("kB", "MB", "GB", "TB"):
        count /= 1000
        if count < 999.5 or unit == "TB":
            return f"{count:.3g} {unit}"
    return None


def counted(number, noun):
    """Returns "1 tensor", "2 tensors"."""
    return f"{format(number, ',')} {noun}{'' if number == 1 else 's'}"

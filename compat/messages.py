"""What the exceptions of other people's code say."""


def text_of(error):
    """Returns what an exception says, "" if that is nothing or cannot be read."""
    try:
        return str(error).strip()
    except Exception:  # its own __str__ raises
        return ""


def with_class(error):
    """Returns the name of an exception's class, and what it says if it says something."""
    text = text_of(error)
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def first_line(error):
    """Returns the first line of what an exception says, or the name of its class."""
    return (text_of(error) or type(error).__name__).split("\n")[0]

"""Formats the messages of exceptions that TensorFlow, Keras or a user's code raises."""

from __future__ import annotations


def text_of(error: BaseException) -> str:
    """Returns an exception's message; "" if the exception's `__str__` raises an error."""
    try:
        return str(error).strip()
    except Exception:  # raised by error.__str__
        return ""


def with_class(error: BaseException) -> str:
    """Returns an exception's class name and message; only the name if the message is empty."""
    text = text_of(error)
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def first_line(error: BaseException) -> str:
    """Returns the first line of an exception's message, without a full stop, or the class name."""
    return (text_of(error) or type(error).__name__).split("\n")[0].rstrip(".")

"""Imports and calls objects that a user names on the command line as module:object."""

from __future__ import annotations

import importlib
import os
import sys
import traceback
from typing import Any, Callable

from legacy_opt.core.nearest_names import did_you_mean

from .. import messages


def load(name: str) -> Any:
    """Imports "package.module:object", also from the current folder. The object may be nested."""
    module_name, _, path = name.partition(":")
    if not (module_name and path):
        raise ImportError(
            f"{name!r} is not of the form module:object, such as training.model:build."
        )
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    item = call(name, importlib.import_module, module_name)
    for attribute in path.split("."):
        if not hasattr(item, attribute):
            hint = did_you_mean(attribute, dir(item))
            raise ImportError(f"{name!r}: there is no {attribute!r} in it.{hint}")
        item = getattr(item, attribute)
    return item


def made(name: str) -> Any:
    """Returns the object called `name`; if it is callable, returns the result of a call."""
    item = load(name)
    return call(name, item) if callable(item) else item


def call(name: str, function: Callable[..., Any], *arguments: Any) -> Any:
    """Calls a function that the user has named, or one that imports the user's module.

    Errors of the function become an ImportError that contains `name`, as the user gave it, and the
    error with its line number.
    """
    try:
        return function(*arguments)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # also SystemExit: some scripts end with sys.exit()
        frames = traceback.extract_tb(error.__traceback__)
        not_of_user = (__file__, importlib.__file__, "<frozen")
        frames = [frame for frame in frames if not frame.filename.startswith(not_of_user)]
        place = ""
        if frames:
            place = f" ({os.path.relpath(frames[-1].filename)}, line {frames[-1].lineno})"
        raise ImportError(
            f"{name!r} cannot be used: {messages.with_class(error)}{place}"
        ) from error

"""Imports and calls objects that a user names on the command line as module:object."""

import importlib
import os
import sys
import traceback

from legacy_opt.core.nearest_names import did_you_mean

from .. import messages


def load(name):
    """Imports an object. The current folder is searched for the module, too.

    Args:
      name: "package.module:object", where the object may be nested, such as "Trainer.build".

    Returns:
      The object.

    Raises:
      ImportError: the module or the object does not exist, or importing the module raises an error.
    """
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


def made(name):
    """Returns the object called `name`; if it is callable, returns the result of a call."""
    item = load(name)
    return call(name, item) if callable(item) else item


def call(name, function, *arguments):
    """Calls a function that the user has named, or one that imports the user's module.

    Args:
      name: the name that the user gave for the function; the error message shows it.
      function: the function.
      *arguments: the arguments of the function.

    Raises:
      ImportError: the function raises an error. The message contains this error and its line
        number.
    """
    try:
        return function(*arguments)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # also SystemExit: some scripts end with sys.exit()
        frames = [f for f in traceback.extract_tb(error.__traceback__) if f.filename != __file__]
        frames = [frame for frame in frames if not frame.filename.startswith("<frozen")]
        frames = [frame for frame in frames if frame.filename != importlib.__file__]
        place = ""
        if frames:
            place = f" ({os.path.relpath(frames[-1].filename)}, line {frames[-1].lineno})"
        text = messages.with_class(error)
        raise ImportError(f"{name!r} cannot be used: {text}{place}") from error

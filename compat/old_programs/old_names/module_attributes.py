"""Lets a module answer to names that it lacks."""

import functools
from types import ModuleType
from typing import Any, Callable

Lookup = Callable[[str], Any]


def intercept(module: ModuleType, find: Callable[[str, Lookup], Any]) -> Callable[[], None]:
    """Gives a module a `__getattr__`, which Python calls for names that the module lacks.

    It calls `find` with the name, and with a function that looks a name up as before, which raises
    an AttributeError if the name is missing. Returns a function that restores the former
    `__getattr__`.
    """
    names = vars(module)
    original = names.get("__getattr__")

    def as_before(name: str) -> Any:
        if original is not None:
            return original(name)
        raise AttributeError(f"module {module.__name__!r} has no attribute {name!r}")

    names["__getattr__"] = lambda name: find(name, as_before)
    if original is None:
        return functools.partial(names.pop, "__getattr__", None)
    return functools.partial(names.update, __getattr__=original)

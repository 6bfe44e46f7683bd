"""Hooks for the imports of TensorFlow and libraries in the modules of users."""

from __future__ import annotations

import builtins
import functools
import sys
import types
from typing import Any, Callable, Mapping, NamedTuple, Optional, Sequence, Tuple

from .. import old_names
from ..source_analysis import script_modules

# Packages whose frames may be between user code and an import or lookup, see `users_frame`.
THROUGH_IMPORTS = ("importlib", "legacy_opt")
THROUGH_TENSORFLOW = (*THROUGH_IMPORTS, "tensorflow", "tensorflow_core")


class Request(NamedTuple):
    """An import: the first four arguments of `__import__`."""

    name: str
    globals: Optional[Mapping[str, Any]]
    locals: Optional[Mapping[str, Any]]
    fromlist: Optional[Sequence[str]]


Import = Callable[[Request], Any]  # returns the module


def add_hook(hook: Callable[[Import, Request], Any]) -> None:
    """Lets a function handle the imports of TensorFlow and of libraries such as NumPy.

    Imports in installed packages do not change. The last hook is called first. Hooks last until the
    process ends. A hook returns the module of a `Request`. The first argument of a hook is a
    function that calls the next hook, or imports as usual.
    """
    if not isinstance(builtins.__import__, _Importer):
        builtins.__import__ = _Importer(builtins.__import__)
    builtins.__import__.first = functools.partial(hook, builtins.__import__.first)


class _Importer:
    """Replaces `builtins.__import__`."""

    def __init__(self, original: Callable[..., Any]) -> None:
        self._original = original
        self.first: Import = lambda request: original(*request)

    def __call__(
        self, name: str, globals: Any = None, locals: Any = None, fromlist: Any = (), level: int = 0
    ) -> Any:
        has_hooks = name.partition(".")[0] == "tensorflow" or old_names.is_of_library(name)
        is_absolute = level == 0
        if has_hooks and is_absolute:
            # A function that calls `__import__` need not pass the globals of its module.
            importing = sys._getframe(1).f_globals if globals is None else globals
            if is_users_own(importing):
                return self.first(Request(name, globals, locals, fromlist))
        return self._original(name, globals, locals, fromlist, level)


def is_users_own(names: Mapping[str, Any]) -> bool:
    """Returns whether a module is user code; `names` are the globals of the module.

    Modules of the standard library, of installed packages and of legacy_opt are not user code.
    """
    if str(names.get("__name__")).partition(".")[0] == "legacy_opt":
        return False
    return "__file__" not in names or script_modules.is_local(names["__file__"])


def users_frame(through: Tuple[str, ...] = THROUGH_TENSORFLOW) -> Optional[types.FrameType]:
    """Returns the frame of the user code that imports or looks up a name; None for other code.

    Frames of the packages `through` may be between the user code and the import or lookup.
    """
    frame = sys._getframe(1)
    while frame is not None and package_of(frame) in through:
        frame = frame.f_back
    return frame if frame is not None and is_users_own(frame.f_globals) else None


def package_of(frame: types.FrameType) -> str:
    """Returns the name of the top-level package whose code a frame runs."""
    return str(frame.f_globals.get("__name__")).partition(".")[0]

"""Finds missing TensorFlow names that a script uses, without running the script."""

from __future__ import annotations

import ast
import builtins
import contextlib
import functools
import importlib
import logging
import sys
import types
import warnings
from typing import Any, Dict, Iterator, List, Mapping, NamedTuple, Optional, Set, Tuple

from ... import plain_text
from .. import old_names
from ..old_names import libraries
from . import scopes
from .uses_of_missing_names import MissingUse, MissingUses


class Missing(NamedTuple):
    """The use of a name that neither TensorFlow nor `compat.patch_tensorflow` provides."""

    path: str  # of the file that uses the name
    line: int  # from 1
    name: str  # in the form of the table `old_names`
    advice: str  # a sentence that says what to do
    full_name: str  # the full dotted name under which the file imports the object
    # Whether every run of the script reaches the use; for an import of a name, whether every run
    # reaches a use of the imported name.
    is_certain: bool
    last_line: int  # at which the expression or statement of the use ends
    is_import: bool  # whether the use is an import that binds a name

    @property
    def text(self) -> str:
        """The message for users, on one line."""
        path, line, name, why = self[:4]
        return plain_text.printable(f"{path}:{line}: {name}: {why}")


def find(
    reached_nodes: Mapping[scopes.Module, Set[ast.AST]], tensorflow: types.ModuleType
) -> List[Missing]:
    """Finds the missing names of TensorFlow in a script and in the local modules that it imports.

    Uses in guarded code (see `uses_of_missing_names`) are left out, and so are uses of names that
    guarded code has imported. The result is sorted. `script_modules.read` returns `reached_nodes`,
    and the script's `import tensorflow` returns the module `tensorflow`.
    """
    names = scopes.NameResolver(list(reached_nodes))

    @functools.lru_cache(maxsize=None)
    def is_missing(name: str) -> bool:
        if old_names.is_of_library(name):
            return _is_missing_in_library(name)
        return look_up(name, tensorflow)[1] is not None

    with without_warnings():
        found = [MissingUses(module, names, is_missing) for module in reached_nodes]
    expected = set().union(*(each.expected for each in found))
    used: Set[str] = set()  # the names that every run uses outside of imports, and their owners
    for each in found:
        for use in each.uses:
            is_reached = use.node in reached_nodes[each.module]
            if is_reached and not (use.imported or use.guards):
                used.update([use.name, *use.owners])
    missing_by_place: Dict[Any, Missing] = {}
    for each in found:
        for use in each.uses:
            if isinstance(use.node, ast.Name):  # the import of the name is reported
                continue
            if use.guards or expected.intersection(use.owners):
                continue
            is_reached = use.node in reached_nodes[each.module]
            is_certain = use.name in used if _binds(use) else is_reached
            missing = _missing(use, each.module, is_certain)
            place = missing[:3]  # path, line and name
            known = missing_by_place.setdefault(place, missing)
            missing_by_place[place] = max(missing, known, key=lambda one: one.is_certain)
    return sorted(missing_by_place.values())


def _is_missing_in_library(name: str) -> bool:
    """Returns whether a library lacks an old name, or has given the name another meaning."""
    entry = old_names.find(name)
    if entry is None or name in libraries.GIVEN_BACK:
        return False
    now, advice = entry.fate
    if now and ("." in now or not advice):
        return False
    home, _, last = name.rpartition(".")
    try:
        found = getattr(importlib.import_module(home), last, None)
    except ImportError:  # the library is not installed: Python says so
        return False
    if now is None:
        return found is None
    return found not in (None, getattr(builtins, now))  # the library has another meaning for it


def _binds(use: MissingUse) -> bool:
    return use.imported not in ("", "*")


def _missing(use: MissingUse, module: scopes.Module, is_certain: bool) -> Missing:
    path, line = module.source.place(use.node.lineno)
    ends = ("end_lineno", "lineno")  # Python 3.7 has no end_lineno
    last_line = max(getattr(each, end, 0) or 0 for each in ast.walk(use.node) for end in ends)
    further_lines = last_line - use.node.lineno
    entry = old_names.find(use.name) if old_names.is_of_library(use.name) else None
    exists_again = entry is not None and entry.fate.now  # see `_is_missing_in_library`
    is_certain = is_certain and not exists_again
    return missing_at(use.name, path, line)._replace(
        is_certain=is_certain, last_line=line + further_lines, is_import=_binds(use)
    )


def missing_at(full_name: str, path: str, line: int) -> Missing:
    """Returns the `Missing` of a full name that is used in a line, with advice."""
    advice = old_names.advice(full_name, is_missing=True) or "This TensorFlow has no such name."
    name = old_names.public_name(full_name)
    return Missing(
        path, line, name, advice, full_name, is_certain=False, last_line=line, is_import=False
    )


def look_up(name: str, tensorflow: types.ModuleType) -> Tuple[types.ModuleType, Optional[str]]:
    """Looks for a full name in the module `tensorflow`, but not in classes and other objects.

    Returns the last module in the dotted name that exists; and the name up to the word that this
    module lacks, or None if the name exists.
    """
    module = tensorflow
    parts = name.split(".")
    # `tensorflow` may be tf.compat.v1, whose attribute `compat` is another module than tf.compat.
    if parts[1:2] == ["compat"]:
        module = sys.modules["tensorflow"]
    for end in range(1, len(parts)):
        try:
            value = getattr(module, parts[end])
        except Exception:  # lazy loaders raise exceptions of any class
            try:
                value = importlib.import_module(".".join(parts[: end + 1]))
            except Exception:  # the import of a module may raise any exception, too
                return module, ".".join(parts[: end + 1])
        if not isinstance(value, types.ModuleType):
            break
        module = value
    return module, None


@contextlib.contextmanager
def without_warnings() -> Iterator[None]:
    """Silences TensorFlow's and NumPy's warnings about deprecated names within this scope."""
    logger = logging.getLogger("tensorflow")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)

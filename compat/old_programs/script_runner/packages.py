"""Installed packages that need TensorFlow 1's names: `legacy-opt run --package`."""

from __future__ import annotations

import pkgutil
import re
import sys
import traceback
from importlib import machinery
from typing import List, Optional, Set

from legacy_opt.core.nearest_names import did_you_mean

from .. import old_names
from ..source_analysis import missing_names, script_modules
from . import user_imports

# Packages that need the installed TensorFlow's names.
_MODERN = "keras legacy_opt tensorflow tensorflow_core tensorflow_estimator tf_keras"
# The messages of Python's errors for missing names.
_MISSING = (
    re.compile(r"module '(?P<module>tensorflow[\w.]*)' has no attribute '(?P<name>\w+)'"),
    re.compile(r"cannot import name '(?P<name>\w+)' from '(?P<module>tensorflow[\w.]*)'"),
    re.compile(r"No module named '(?P<module>tensorflow[\w.]*)\.(?P<name>\w+)'"),
)


def include(name: str) -> None:
    """Makes TensorFlow 1's names available to an installed package or single-file module.

    Raises an ImportError if no package with this name is installed, or it needs TensorFlow 2.
    """
    for path in _paths(name):
        script_modules.include(path)


def _paths(name: str) -> List[str]:
    """Returns the folders of an installed package, or the file of a module."""
    is_top_level = name and "." not in name
    spec = machinery.PathFinder.find_spec(name, sys.path) if is_top_level else None
    if spec is None:
        hint = did_you_mean(name.partition(".")[0], (each.name for each in pkgutil.iter_modules()))
        raise ImportError(f"--package: no package {name!r} is installed.{hint}")
    paths = list(spec.submodule_search_locations or [str(spec.origin)])
    if name in _MODERN.split() or any(map(script_modules.is_standard, paths)):
        raise ImportError(
            f"--package: {name!r} is part of Python, TensorFlow or legacy_opt. Name a package that "
            "was written for TensorFlow 1."
        )
    return paths


def package_to_include(error: Optional[BaseException]) -> Optional[str]:
    """Returns the name of the package to `include` against an error or its causes, or None."""
    from legacy_opt import versions  # not above: `legacy-opt doctor` imports this file without TF

    if versions.speaks_v1():
        return None
    seen: Set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        if isinstance(error, (AttributeError, ImportError)):
            package = _package_of(error)
            if package is not None and _is_of_tensorflow_1(str(error)):
                return package
        error = error.__cause__ or error.__context__
    return None


def _package_of(error: BaseException) -> Optional[str]:
    """Returns the name of the installed package whose code raised an error, or None."""
    skipped = user_imports.THROUGH_TENSORFLOW
    walk = traceback.walk_tb(error.__traceback__)
    frames = [frame for frame, _ in walk if user_imports.package_of(frame) not in skipped]
    if not frames or user_imports.is_users_own(frames[-1].f_globals):
        return None
    name = user_imports.package_of(frames[-1])
    try:
        _paths(name)
    except ImportError:
        return None
    return name


def _is_of_tensorflow_1(message: str) -> bool:
    """Returns whether an error message says that a name is missing which TensorFlow 1 had."""
    import tensorflow as tf

    match = next(filter(None, (each.match(message) for each in _MISSING)), None)
    if match is None:
        return False
    full_name = ".".join(match.group("module", "name")).replace("._api.v2", "")
    _, missing_part = missing_names.look_up(full_name, tf.compat.v1)
    is_in_compat_v1 = missing_part is None
    return is_in_compat_v1 or old_names.is_removed(full_name)

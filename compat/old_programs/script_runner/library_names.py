"""Gives the user's modules the names that NumPy, SciPy and Python have removed."""

from __future__ import annotations

import builtins
import functools
import importlib
import platform
import re
import sys
import types
import warnings
from typing import Any, Optional, Set

from .. import old_names
from ..old_names import libraries, module_attributes
from . import user_imports

# {pattern of an error message: advice}, for changes in libraries that old scripts do not expect.
_CHANGES = {
    "inhomogeneous shape": "Since NumPy 1.24, a ragged array needs np.array(…, dtype=object).",
    r"only (0-dimensional|size-1|length-1) arrays can be converted": "NumPy converts only arrays "
    "without dimensions to Python's numbers: write array.item(), or array[0].",
    r"OneHotEncoder.* unexpected keyword argument 'sparse'": "Since scikit-learn 1.4, the argument "
    "is sparse_output.",
    r"TSNE.* unexpected keyword argument 'n_iter'": "Since scikit-learn 1.7, the argument is "
    "max_iter.",
}
_HOMES = {name.rpartition(".")[0] for name in old_names.LIBRARIES}  # modules that had old names
_intercepted: Set[str] = set()  # the names of modules whose `__getattr__` is from this file
_reported: Set[str] = set()  # the old names that a line on stderr has reported


def way_out(error: BaseException) -> str:
    """Returns a line of advice if an error may come from a change of a library, or ""."""
    if not isinstance(error, (TypeError, ValueError)):
        return ""
    found = (advice for pattern, advice in _CHANGES.items() if re.search(pattern, str(error)))
    return next(found, "")


def import_with_names(following: user_imports.Import, request: user_imports.Request) -> Any:
    """Imports a module, and gives imported libraries their old names until the process ends.

    Installed packages do not see these names. A hook for `user_imports.add_hook`.
    """
    if not old_names.is_of_library(request.name):
        return following(request)
    try:
        module = following(request)
    except ImportError:
        moved_to = libraries.MODULES.get(request.name)
        if moved_to is None or moved_to not in sys.modules:
            raise
        if request.fromlist:
            _report(request.name, moved_to)
            return following(request._replace(name=moved_to))
        root = request.name.partition(".")[0]
        # `import a.b` binds `a`. The lookup of `a.b` gets the new module from `_given_back`.
        module = following(request._replace(name=root))
    for home in _HOMES.difference(_intercepted).intersection(sys.modules):
        _intercepted.add(home)
        module_attributes.intercept(sys.modules[home], functools.partial(_given_back, home))
    return module


def _given_back(home: str, name: str, as_before: module_attributes.Lookup) -> Any:
    """Returns an attribute of a library, or its replacement if the library lacks it."""
    full_name = f"{home}.{name}"
    fate = old_names.LIBRARIES.get(full_name)
    has_replacement = fate and (fate.now or full_name in libraries.GIVEN_BACK)
    if not (has_replacement and _users_frame()):
        return as_before(name)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # `_report` says what the warning would say
            return as_before(name)
    except AttributeError:
        _report(full_name, fate.now)
        return _value(fate.now) if fate.now else libraries.GIVEN_BACK[full_name]


def _value(name: str) -> Any:
    home, _, last = name.rpartition(".")
    if not home:
        return getattr(builtins, name, None) or importlib.import_module(name)
    return getattr(importlib.import_module(home), last)


def _users_frame() -> Optional[types.FrameType]:
    # TensorFlow must not see the names, even if user code has called it.
    return user_imports.users_frame(user_imports.THROUGH_IMPORTS)


def _report(name: str, now: Optional[str]) -> None:
    if name in _reported:
        return
    _reported.add(name)
    frame = _users_frame()
    place = f"{frame.f_code.co_filename}:{frame.f_lineno}" if frame else "user code"
    root = name.partition(".")[0]
    version = getattr(sys.modules[root], "__version__", None)
    library = f"{root} {version}" if version else f"Python {platform.python_version()}"
    given = now or "one of legacy_opt"
    print(f"legacy-opt run: {place}: {library} has no {name}; it gets {given}.", file=sys.stderr)

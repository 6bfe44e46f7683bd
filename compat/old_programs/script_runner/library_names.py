"""Gives the user's modules the names that NumPy, SciPy and Python have removed."""

import builtins
import collections
import importlib
import inspect
import platform
import re
import sys
import warnings

import numpy as np

from .. import old_names
from ..old_names import libraries
from . import missing_errors

_ArgSpec = collections.namedtuple("ArgSpec", ["args", "varargs", "keywords", "defaults"])


class _Cast:
    """NumPy's `cast`, from each dtype to a function that converts arrays."""

    def __getitem__(self, dtype):
        return lambda array: np.asarray(array).astype(dtype)


def _asfarray(a, dtype=np.float64):
    return np.asarray(a, dtype if np.issubdtype(dtype, np.inexact) else np.float64)


def _getargspec(func):
    found = inspect.getfullargspec(func)
    if found.kwonlyargs or found.annotations:
        raise ValueError("Function has keyword-only parameters or annotations: use signature()")
    return _ArgSpec(*found[:4])


_GIVEN_BACK = {
    "numpy.NINF": -np.inf,
    "numpy.alen": lambda a: len(np.atleast_1d(a)),
    "numpy.asfarray": _asfarray,
    "numpy.asscalar": lambda a: a.item(),
    "numpy.cast": _Cast(),
    "numpy.in1d": lambda ar1, ar2, *args, **kwargs: np.isin(ar1, ar2, *args, **kwargs).ravel(),
    "numpy.msort": lambda a: np.sort(a, axis=0),
    "inspect.getargspec": _getargspec,
}
# Messages of errors for what libraries do otherwise today, and the way out.
_CHANGES = {
    "inhomogeneous shape": "Since NumPy 1.24, a ragged array needs np.array(…, dtype=object).",
    r"only (0-dimensional|size-1|length-1) arrays can be converted": "NumPy converts only arrays "
    "without dimensions to Python's numbers: write array.item(), or array[0].",
    r"OneHotEncoder.* unexpected keyword argument 'sparse'": "Since scikit-learn 1.4, the argument "
    "is sparse_output.",
    r"TSNE.* unexpected keyword argument 'n_iter'": "Since scikit-learn 1.7, the argument is "
    "max_iter.",
}
_HOMES = {name.rpartition(".")[0] for name in old_names.LIBRARIES}
_changed = set()  # the names of modules that have a `__getattr__` of this file
_said = set()  # the names that have been given back


def install():
    """Gives the names back, until the process ends. Installed packages do not see them."""
    builtins.__import__ = _importing(builtins.__import__)


def way_out(error):
    """Returns a line of advice if an error may come from a change of a library, or ""."""
    found = (advice for text, advice in _CHANGES.items() if re.search(text, str(error)))
    return next(found, "") if isinstance(error, (TypeError, ValueError)) else ""


def _importing(import_):
    """Returns an `__import__` after which a library has its old names in the user's modules."""

    def __import__(name, globals=None, locals=None, fromlist=(), level=0):
        is_asked = not level and old_names.is_of_library(name)
        if not is_asked or not missing_errors.is_users_own(globals or {}):
            return import_(name, globals, locals, fromlist, level)
        try:
            module = import_(name, globals, locals, fromlist, level)
        except ImportError:
            moved_to = libraries.MODULES.get(name)
            if moved_to not in sys.modules:
                raise
            if fromlist:
                _say(name, moved_to)
                return import_(moved_to, globals, locals, fromlist, level)
            module = import_(name.partition(".")[0], globals, locals)  # its attributes are below
        for home in _HOMES.difference(_changed).intersection(sys.modules):
            _give_back(home, sys.modules[home])
        return module

    return __import__


def _give_back(home, module):
    original = vars(module).get("__getattr__")

    def of_library(name):
        if original is not None:
            return original(name)
        raise AttributeError(f"module {home!r} has no attribute {name!r}")

    def getattr_(name):
        full_name = f"{home}.{name}"
        fate = old_names.LIBRARIES.get(full_name)
        if not (fate and (fate.now or full_name in _GIVEN_BACK) and _is_asked_by_user()):
            return of_library(name)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # the warning would say what follows
                return of_library(name)
        except AttributeError:
            _say(full_name, fate.now)
            return _GIVEN_BACK[full_name] if fate.now is None else _value(fate.now)

    _changed.add(home)
    vars(module)["__getattr__"] = getattr_


def _value(name):
    home, _, last = name.rpartition(".")
    if not home:
        return getattr(builtins, name, None) or importlib.import_module(name)
    return getattr(importlib.import_module(home), last)


def _users_frame():
    # Not that of `missing_errors`: frames of TensorFlow are not skipped, because it must not see
    # the names, either.
    frame = sys._getframe(1)
    while str(frame.f_globals.get("__name__")).partition(".")[0] in ("importlib", "legacy_opt"):
        frame = frame.f_back
    return frame


def _is_asked_by_user():
    return missing_errors.is_users_own(_users_frame().f_globals)


def _say(name, now):
    if name in _said:
        return
    _said.add(name)
    frame, root = _users_frame(), name.partition(".")[0]
    version = getattr(sys.modules[root], "__version__", None)
    who = f"{root} {version}" if version else f"Python {platform.python_version()}"
    place = f"{frame.f_code.co_filename}:{frame.f_lineno}"
    given = now or "one of legacy_opt"
    print(f"legacy-opt run: {place}: {who} has no {name}; it gets {given}.", file=sys.stderr)

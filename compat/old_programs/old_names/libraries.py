"""Names of NumPy, SciPy and Python that old scripts use, and that newer versions lack."""

from __future__ import annotations

import collections
import importlib
import inspect
import math
from typing import Any, Callable, Dict, Optional

from . import table

NAMES = table.rows("libraries.txt")
# Modules whose names are in another module now: {old: new}.
MODULES: Dict[str, Optional[str]] = {row.modules[0]: row.now for row in NAMES if not row.names}
_ArgSpec = collections.namedtuple("ArgSpec", ["args", "varargs", "keywords", "defaults"])


def _numpy() -> Any:
    return importlib.import_module("numpy")  # not above: the audit does not need it


class _Cast:
    """NumPy's `cast`, from each dtype to a function that converts arrays."""

    def __getitem__(self, dtype: Any) -> Callable[[Any], Any]:
        return lambda array: _numpy().asarray(array).astype(dtype)


def _asfarray(a: Any, dtype: Any = float) -> Any:
    is_inexact = _numpy().issubdtype(dtype, _numpy().inexact)
    return _numpy().asarray(a, dtype if is_inexact else float)


def _in1d(ar1: Any, ar2: Any, *args: Any, **kwargs: Any) -> Any:
    return _numpy().isin(ar1, ar2, *args, **kwargs).ravel()


def _getargspec(func: Callable[..., Any]) -> _ArgSpec:
    found = inspect.getfullargspec(func)
    if found.kwonlyargs or found.annotations:
        raise ValueError("Function has keyword-only parameters or annotations: use signature()")
    return _ArgSpec(*found[:4])


# {old name: object}. `legacy-opt run` gives these names back, although no newer name replaces them.
GIVEN_BACK: Dict[str, Any] = {
    "numpy.NINF": -math.inf,
    "numpy.alen": lambda a: len(_numpy().atleast_1d(a)),
    "numpy.asfarray": _asfarray,
    "numpy.asscalar": lambda a: a.item(),
    "numpy.cast": _Cast(),
    "numpy.in1d": _in1d,
    "numpy.msort": lambda a: _numpy().sort(a, axis=0),
    "inspect.getargspec": _getargspec,
}

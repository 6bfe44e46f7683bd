"""Values that rules read as attributes, such as `hyper` and `slots`."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from legacy_opt.core.nearest_names import did_you_mean


class NamedValues(SimpleNamespace):
    """Values as attributes. The error for an unknown attribute lists the known ones.

    Args:
      what: a description of the values for the error message, for example "hyper of MyOptimizer".
      values: a dict from name to value.
    """

    __slots__ = ("_what",)  # not in `vars`, which contains the values only

    def __init__(self, what: str = "the namespace", values: Any = ()) -> None:
        super().__init__(**dict(values))
        self._what = what

    def __getattr__(self, name: str) -> Any:
        known = ", ".join(vars(self)) or "nothing"
        hint = did_you_mean(name, vars(self))
        raise AttributeError(f"{self._what} has no {name!r}.{hint} It has {known}.")

    def __reduce__(self) -> Any:
        return type(self), (self._what, vars(self))

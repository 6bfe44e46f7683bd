"""Values that rules read as attributes, such as `hyper` and `slots`."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, Mapping

from legacy_opt.core.nearest_names import did_you_mean


class NamedValues(SimpleNamespace):
    """Values as attributes. The error for an unknown attribute lists the known ones."""

    __slots__ = ("_what",)  # not in `vars`, which contains the values only

    @classmethod
    def of(cls, what: str, values: Mapping[str, Any]) -> NamedValues:
        """Returns values as attributes. Messages call the values `what`, such as "hyper of X"."""
        named = cls(**values)
        named._what = what
        return named

    def __getattr__(self, name: str) -> Any:
        if name == "_what":  # not set if the object was created without `of`
            return "the namespace"
        known = ", ".join(vars(self)) or "nothing"
        hint = did_you_mean(name, vars(self))
        raise AttributeError(f"{self._what} has no {name!r}.{hint} It has {known}.")

    def __reduce__(self) -> Any:
        return type(self).of, (self._what, dict(vars(self)))


def changed(values: SimpleNamespace, **new_values: Any) -> SimpleNamespace:
    """Returns a copy of `values` in which some attributes are replaced or added."""
    what = getattr(values, "_what", "the namespace")
    return NamedValues.of(what, dict(vars(values), **new_values))

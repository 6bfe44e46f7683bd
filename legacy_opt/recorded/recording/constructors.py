"""Finds what the constructors of users' classes compute from values of hyperparameters."""

from __future__ import annotations

import inspect
import warnings
from typing import Any, Collection, Dict, Iterable, List, Mapping, Set

import numpy as np

from legacy_opt.core import contract
from legacy_opt.core.types import V1Optimizer
from legacy_opt.programs.attributes import same
from legacy_opt.recorded.recording.followed import Refused

_PLAIN = (bool, int, float, str, list, tuple, dict, set, type(None), np.ndarray, np.generic)


class Constructor:
    """The constructor of an optimizer, whose arguments have the names of attributes.

    `hyperparameters` are the names of the attributes that are hyperparameters. From those in
    `unknown`, the constructor may have computed other attributes, where calling it again cannot
    show how.
    """

    def __init__(self, optimizer: V1Optimizer, hyperparameters: Collection[str]) -> None:
        self._optimizer = optimizer
        self._arguments: Set[str] = set()
        self.unknown: Set[str] = set()
        classes = type(optimizer).__mro__
        if not contract.is_of_user(next(each for each in classes if "__init__" in vars(each))):
            return
        parameters = inspect.signature(type(optimizer)).parameters
        self._arguments.update(parameters)
        named = {each for each in hyperparameters if self._argument(each) in parameters}
        if any(each.kind is each.VAR_KEYWORD for each in parameters.values()):
            self._arguments.update(map(self._argument, hyperparameters))
        bases = [each for each in classes if not contract.is_of_user(each)]
        methods = [method for base in bases for method in vars(base).values()]
        functions = [getattr(method, "__wrapped__", method) for method in methods]
        codes = [each.__code__ for each in functions if hasattr(each, "__code__")]
        of_bases = {name for code in codes for name in code.co_names}
        # Checkpoints need the attributes that begin with _self_.
        others = {name for name in vars(optimizer) if name[:6] != "_self_"}
        others.difference_update(of_bases, hyperparameters)
        if not self._reproduces(others.union(hyperparameters)):
            self._arguments.clear()
            self.unknown = set(hyperparameters) if others else named
        elif others:
            self.unknown = set(hyperparameters).difference(self._passed(hyperparameters))

    def attributes(self, changed: Mapping[str, Any]) -> Dict[str, Any]:
        """Returns changed attributes, and others that follow from them; may raise `Refused`."""
        passed = {name: changed[name] for name in self._passed(changed)}
        found = {name: each for name, each in changed.items() if name not in passed}
        if passed:
            try:
                before, after = self._made({}), self._made(passed)
            except Exception as error:  # whatever the constructor raises
                raise Refused from error
            for name, each in after.items():
                if not same(each, before.get(name)):
                    found[name] = each
        return found

    def _argument(self, attribute: str) -> str:
        name = attribute.lstrip("_")
        return "learning_rate" if name == "lr" and name not in self._arguments else name

    def _passed(self, attributes: Iterable[str]) -> List[str]:
        return [each for each in attributes if self._argument(each) in self._arguments]

    def _made(self, changed: Mapping[str, Any]) -> Dict[str, Any]:
        """Returns the attributes that the constructor makes if attributes are its arguments."""
        attributes = {**vars(self._optimizer), **changed}
        given = {self._argument(name): value for name, value in attributes.items()}
        names = self._arguments.intersection(given)
        with warnings.catch_warnings():  # about values that the user did not pass
            warnings.simplefilter("ignore")
            return vars(type(self._optimizer)(**{name: given[name] for name in names}))

    def _reproduces(self, names: Collection[str]) -> bool:
        """Whether the constructor makes the values that attributes have now."""
        now = {name: each for name, each in vars(self._optimizer).items() if name in names}
        try:
            made = self._made({})
        except Exception:  # an argument is unknown
            return False
        return now.keys() <= made.keys() and all(
            same(each, made[name])  # for objects of other classes, records are compared instead
            for name, each in now.items()
            if isinstance(each, _PLAIN) or isinstance(made[name], _PLAIN)
        )

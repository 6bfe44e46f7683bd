"""The routes of a `MultiOptimizer`. A route assigns variables to an optimizer."""

from __future__ import annotations

import re
from typing import Any, Callable, Iterable, List, NamedTuple, Sequence, Tuple, Union

import tensorflow as tf

from legacy_opt import versions
from legacy_opt.core import argument_checks
from legacy_opt.core.shortened import quoted
from legacy_opt.core.types import V1Optimizer, Variable
from legacy_opt.core.variable_lists import holds_variables, is_variable, variables_in

v1 = tf.compat.v1
_KINDS = (
    "a regular expression, a list of variables, MultiOptimizer.collection('name') or a function of "
    "a variable"
)


class Collection(NamedTuple):
    """A graph collection, which is read when gradients are applied."""

    name: str


# The second item of a route.
Which = Union[str, Collection, Variable, Sequence[Variable], Callable[[Variable], bool]]


class Route(NamedTuple):
    """An optimizer and the variables that it trains."""

    optimizer: V1Optimizer
    which: Any  # a `Which`; None means the variables that no other route matches

    def __str__(self) -> str:
        which = self.which
        if which is None:
            how = "by default"
        elif isinstance(which, Collection):  # tested before tuple, of which it is a subclass
            how = f"collection {which.name!r}"
        elif isinstance(which, tuple):
            how = "a list of variables"
        else:
            how = repr(which)
        return f"{type(self.optimizer).__name__} ({how})"

    def condition(self, name_of: Callable[[Variable], str]) -> Callable[[Variable], bool]:
        """Returns a function that tests if this route (not the default) matches a variable."""
        which = self.which
        if isinstance(which, str):
            matches = re.compile(which).match
            return lambda variable: matches(name_of(variable)) is not None
        if isinstance(which, Collection):
            which = variables_in(_collected(which.name), str(self))
        elif callable(which):
            return lambda variable: _call(which, variable)
        keys = set(map(_key, which))
        return lambda variable: _key(variable) in keys


def make_routes(class_name: str, pairs: Any) -> Tuple[Route, ...]:
    """Returns a `Route` for each pair (optimizer, which) that the user passed, checked."""
    if not isinstance(pairs, (list, tuple)):
        raise TypeError(
            f"{class_name}: routes must be a list of pairs (optimizer, which), got {pairs!r}."
        )
    if not pairs:
        raise ValueError(f"{class_name}: routes must have at least one pair (optimizer, which).")
    return tuple(_route(class_name, number, pair) for number, pair in enumerate(pairs))


def _route(class_name: str, number: int, pair: Any) -> Route:
    what = f"{class_name}: routes[{number}]"
    if not (isinstance(pair, (list, tuple)) and len(pair) == 2):
        raise TypeError(f"{what} must be a pair (optimizer, which), got {pair!r}.")
    optimizer, which = pair
    if isinstance(which, v1.train.Optimizer):
        raise TypeError(f"{what} is {pair!r}: the optimizer comes first, then which.")
    argument_checks.optimizer(class_name, optimizer)
    return Route(optimizer, _checked_which(what, which))


def _checked_which(what: str, which: Any) -> Any:
    if isinstance(which, Collection):
        return which
    if isinstance(which, str):
        if not which:
            raise ValueError(
                f"{what}: '' matches every variable. Use default=… for an optimizer of all other "
                "variables."
            )
        argument_checks.patterns(what, [which])
        return which
    if hasattr(which, "trainable_variables"):  # a layer, whose variables may not exist yet
        raise TypeError(
            f"{what}: pass the variables of {which!r}: its trainable_variables, once it is built."
        )
    if is_variable(which) or holds_variables(which):
        variables = tuple(variables_in([which], what))
        if not variables:
            raise ValueError(f"{what}: the list of variables is empty.")
        return variables
    if not callable(which) or isinstance(which, type):
        raise TypeError(f"{what}: which must be {_KINDS}, got {which!r}.")
    return which


def _collected(name: str) -> List[Variable]:
    if tf.executing_eagerly():
        raise ValueError(
            f"MultiOptimizer.collection({name!r}): collections exist in graphs only. When "
            "executing eagerly, route by a list of variables, a name or a function."
        )
    return v1.get_collection(name)


def _call(function: Callable[[Variable], Any], variable: Variable) -> bool:
    result = function(variable)
    if argument_checks.is_tensor_like(result):
        raise TypeError(
            f"MultiOptimizer: the function {function!r} must return True or False for a "
            f"variable, got {result!r}."
        )
    return bool(result)


def _key(variable: Any) -> Any:
    """Returns a key that is equal for all objects that represent the same variable."""
    variable = versions.distributed_variable(versions.tf_variable(variable))
    return (variable.graph, variable.name) if versions.for_a_session() else id(variable)


def _names(variables: Sequence[Variable]) -> str:
    return quoted(versions.distributed_variable(each).name for each in variables)


def check_matched(
    class_name: str, routes: Iterable[Route], matched: Sequence[Tuple[Variable, List[Route]]]
) -> None:
    """Raises a ValueError if a variable has no or several optimizers, or is listed twice."""
    keys = [_key(variable) for variable, _ in matched]
    listed_twice = [variable for i, (variable, _) in enumerate(matched) if keys[i] in keys[:i]]
    unmatched = [variable for variable, its_routes in matched if not its_routes]
    ambiguous = [
        f"{_names([variable])}: {' and '.join(map(str, its_routes))}"
        for variable, its_routes in matched
        if len({id(route.optimizer) for route in its_routes}) > 1
    ]
    problems = []
    if unmatched:
        used = {id(route) for _, its_routes in matched for route in its_routes}
        unused = ", ".join(str(route) for route in routes if id(route) not in used)
        hint = f"; no variable matches {unused}" if unused else ""
        problems.append(
            f"No route matches {_names(unmatched)}{hint}. "
            "Route them, pass default=… for the rest, or leave them out of var_list."
        )
    if ambiguous:
        problems.append(f"Several optimizers match {'; '.join(ambiguous)}.")
    if listed_twice:
        problems.append(f"Listed twice: {_names(listed_twice)}.")
    if problems:
        raise ValueError(
            f"{class_name}: every variable with a gradient must go to exactly one optimizer. "
            f"{' '.join(problems)}"
        )

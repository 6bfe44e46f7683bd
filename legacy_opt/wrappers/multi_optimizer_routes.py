"""Which variables go to which optimizer: the routes of a `MultiOptimizer`."""

from __future__ import annotations

import re
from typing import Callable, NamedTuple, Optional, Sequence, Union

import tensorflow as tf

from legacy_opt import versions
from legacy_opt.core import argument_checks
from legacy_opt.core.types import V1Optimizer, Variable
from legacy_opt.core.variable_lists import holds_variables, is_variable, variables_in

v1 = tf.compat.v1
_KINDS = (
    "a regular expression, a list of variables, MultiOptimizer.collection('name') or a function of "
    "a variable"
)


class Collection(NamedTuple):
    """What is in a graph's collection of this name, when it is asked for."""

    name: str


# What a route is given by.
Which = Union[str, Collection, Variable, Sequence[Variable], Callable[[Variable], bool]]


class Route(NamedTuple):
    """An optimizer and what it trains.

    Attributes:
      optimizer: the optimizer.
      which: a string, a `Collection`, a tuple of variables, or a function of a variable; None for
        what no other route takes.
    """

    optimizer: V1Optimizer
    which: Optional[Which]

    def __str__(self):
        which = self.which
        if which is None:
            how = "by default"
        elif isinstance(which, Collection):
            how = f"collection {which.name!r}"
        elif isinstance(which, tuple):
            how = "a list of variables"
        else:
            how = repr(which)
        return f"{type(self.optimizer).__name__} ({how})"

    def selection(self, name_of):
        """Returns a function that tells whether a variable is taken, as things are now.

        Args:
          name_of: returns the name of a variable.
        """
        which = self.which
        if isinstance(which, str):
            matches = re.compile(which).match
            return lambda variable: matches(name_of(variable)) is not None
        if isinstance(which, Collection):
            # A name tells a Collection, which is a tuple too, from a list of variables.
            which = variables_in(_collected(which.name), str(self))
        elif callable(which):
            return lambda variable: _answer(which, variable)
        keys = set(map(_key, which))
        return lambda variable: _key(variable) in keys


def make_routes(holder, pairs):
    """Returns what a user gave as routes as a tuple of `Route`.

    Args:
      holder: the class that it was given to, for messages.
      pairs: a list of (optimizer, which).

    Raises:
      TypeError: it is something else.
      ValueError: there is none, or a `which` is empty or no regular expression.
    """
    if not isinstance(pairs, (list, tuple)):
        raise TypeError(
            f"{holder}: routes must be a list of pairs (optimizer, which), got {pairs!r}."
        )
    if not pairs:
        raise ValueError(f"{holder}: routes must hold at least one pair (optimizer, which).")
    return tuple(_route(holder, number, pair) for number, pair in enumerate(pairs))


def _route(holder, number, pair):
    what = f"{holder}: routes[{number}]"
    if not (isinstance(pair, (list, tuple)) and len(pair) == 2):
        raise TypeError(f"{what} must be a pair (optimizer, which), got {pair!r}.")
    optimizer, which = pair
    if isinstance(which, v1.train.Optimizer):
        raise TypeError(f"{what} is {pair!r}: the optimizer comes first, then which.")
    argument_checks.optimizer(holder, optimizer)
    return Route(optimizer, _which(what, which))


def _which(what, which):
    if isinstance(which, Collection):
        return which
    if isinstance(which, str):
        if not which:
            raise ValueError(f"{what}: '' matches every variable: pass default=… for that.")
        argument_checks.patterns(what, [which])
        return which
    if hasattr(which, "trainable_variables"):  # a layer, whose variables may not be there yet
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


def _collected(name):
    if tf.executing_eagerly():
        raise ValueError(
            f"MultiOptimizer.collection({name!r}): there are collections in graphs only. When "
            "executing eagerly, route by a list of variables, a name or a function."
        )
    return v1.get_collection(name)


def _answer(function, variable):
    answer = function(variable)
    if argument_checks.is_tensor_like(answer):
        raise TypeError(
            f"MultiOptimizer: the function {function!r} must answer True or False for a "
            f"variable, got {answer!r}."
        )
    return bool(answer)


def _name(variable):
    return versions.distributed_variable(variable).name  # the same in all replicas


def _key(variable):
    """Returns what tells variables apart; graphs may know one by several objects."""
    variable = versions.distributed_variable(versions.tf_variable(variable))
    return (variable.graph, variable.name) if versions.for_a_session() else id(variable)


def names(variables):
    """Returns the names of variables, for a message."""
    return ", ".join(repr(_name(variable)) for variable in variables)


def check_taken(holder, routes, taken):
    """Refuses variables that are not each taken by exactly one optimizer, once.

    Args:
      holder: the class whose routes they are, for the message.
      routes: all of them.
      taken: a list of pairs (variable, the routes that take it).

    Raises:
      ValueError: there are such variables; all are named.
    """
    keys = [_key(variable) for variable, _ in taken]
    twice = [variable for i, (variable, _) in enumerate(taken) if keys[i] in keys[:i]]
    nobodys = [variable for variable, by in taken if not by]
    several = [
        f"{names([variable])} to {' and '.join(map(str, by))}"
        for variable, by in taken
        if len({id(route.optimizer) for route in by}) > 1
    ]
    problems = []
    if nobodys:
        used = {id(route) for _, by in taken for route in by}
        idle = ", ".join(str(route) for route in routes if id(route) not in used)
        problems.append(
            f"To none go {names(nobodys)}{idle and f'; nothing goes to {idle}'}. Route "
            "them, pass default=… for the rest, or leave them out of var_list."
        )
    if several:
        problems.append(f"To several go {'; '.join(several)}.")
    if twice:
        problems.append(f"Given twice: {names(twice)}.")
    if problems:
        raise ValueError(
            f"{holder}: every variable with a gradient must go to exactly one optimizer. "
            f"{' '.join(problems)}"
        )

"""The optimizers that one v1 optimizer is made of: itself, and what its wrappers hold."""

import collections
from typing import Any, NamedTuple

from legacy_opt import GradientAccumulationOptimizer, MultiOptimizer
from legacy_opt.wrappers.base import OptimizerWrapper


class Place(NamedTuple):
    """Which of several parts of a kind it is: what tells their state apart.

    It goes by the order in which optimizers hold each other alone, so that a new process gives the
    same names.

    Attributes:
      number: how many optimizers come before it.
      of_slots: how many before it may have slots of the same variable under the same names.
      of_shared: how many before it may have variables of the same names that all share.
    """

    number: int = 0
    of_slots: int = 0
    of_shared: int = 0

    def slot(self, name):
        """Returns the name under which the owner of all state keeps a slot of this part."""
        return _numbered(name, self.of_slots)

    def shared(self, name):
        """Returns the name under which it keeps a variable that all share."""
        return _numbered(name, self.of_shared)


class Part(NamedTuple):
    """An optimizer, and its place among those that belong together."""

    optimizer: Any
    place: Place

    @property
    def is_leaf(self):
        """Whether it updates variables itself."""
        return not isinstance(self.optimizer, OptimizerWrapper)


def parts(optimizer):
    """Returns an optimizer and all inside it, each before those that it holds, as `Part`s."""
    return list(_parts(optimizer, collections.Counter(), collections.Counter(), set()))


def leaves(optimizer):
    """Returns those that update variables; an optimizer that is no wrapper is its only one."""
    return [part.optimizer for part in parts(optimizer) if part.is_leaf]


def accumulates(part):
    """Whether a part makes one update of several steps."""
    return isinstance(part.optimizer, GradientAccumulationOptimizer) and part.optimizer.steps > 1


def _parts(optimizer, of_slots, of_shared, seen):
    if id(optimizer) in seen:
        return
    part = Part(optimizer, Place())
    kind = "leaf" if part.is_leaf else type(optimizer).__name__
    yield part._replace(place=Place(len(seen), of_slots[kind], of_shared[kind]))
    seen.add(id(optimizer))
    of_slots[kind] += 1
    of_shared[kind] += 1
    if part.is_leaf:
        return
    for inner in optimizer.wrapped:
        # No two optimizers of a MultiOptimizer train the same variable.
        of_its_own = isinstance(optimizer, MultiOptimizer)
        yield from _parts(inner, of_slots.copy() if of_its_own else of_slots, of_shared, seen)


def _numbered(name, number):
    return f"{name}_{number}" if number else name

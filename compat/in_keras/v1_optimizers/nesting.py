"""Finds the optimizers nested in a v1 optimizer, and gives each of them a key for its state."""

from __future__ import annotations

import collections
from typing import Any, Callable, Counter, Iterator, List, NamedTuple, Set

import tensorflow as tf

from legacy_opt import GradientAccumulationOptimizer, MultiOptimizer
from legacy_opt.core.types import V1Optimizer
from legacy_opt.wrappers.base import OptimizerWrapper


class StateKey(NamedTuple):
    """Numbers that distinguish the state variables of nested optimizers.

    The numbers depend only on the nesting and the classes of the optimizers. Therefore a new
    process computes the same names of state variables.
    """

    number: int = 0  # counts earlier optimizers in the list of `nested_optimizers`
    slot_suffix: int = 0  # counts earlier optimizers that may use equal slot names for a variable
    shared_suffix: int = 0  # counts earlier optimizers that may use equal names of shared variables

    def slot(self, name: str) -> str:
        """Returns the name of a slot of this optimizer in the Keras optimizer."""
        return _numbered(name, self.slot_suffix)

    def shared(self, name: str) -> str:
        """Returns the name of a shared variable of this optimizer in the Keras optimizer."""
        return _numbered(name, self.shared_suffix)


class NewVariable(NamedTuple):
    """How a variable of the state is created if it is missing."""

    shape: tf.TensorShape  # the shape and dtype may differ from the trained variable's
    dtype: tf.DType
    initial_value: Callable[[], tf.Tensor]


class NestedOptimizer(NamedTuple):
    """An optimizer and the key of its state."""

    optimizer: Any
    key: StateKey

    @property
    def is_leaf(self) -> bool:
        """Whether the optimizer updates variables itself; a wrapper does not."""
        return not isinstance(self.optimizer, OptimizerWrapper)


def nested_optimizers(optimizer: V1Optimizer) -> List[NestedOptimizer]:
    """Returns a `NestedOptimizer` of `optimizer` and of each one nested in it, wrappers first."""
    return list(_nested(optimizer, collections.Counter(), collections.Counter(), set()))


def leaves(optimizer: V1Optimizer) -> List[V1Optimizer]:
    """Returns the leaves: `optimizer` itself, or the nested optimizers that are not wrappers."""
    return [nested.optimizer for nested in nested_optimizers(optimizer) if nested.is_leaf]


def accumulates(nested: NestedOptimizer) -> bool:
    """Whether a `NestedOptimizer` sums the gradients of several batches for one update."""
    optimizer = nested.optimizer
    return isinstance(optimizer, GradientAccumulationOptimizer) and optimizer.steps > 1


def _nested(
    optimizer: V1Optimizer, slot_counts: Counter[str], shared_counts: Counter[str], seen: Set[int]
) -> Iterator[NestedOptimizer]:
    if id(optimizer) in seen:
        return
    nested = NestedOptimizer(optimizer, StateKey())
    # All leaves may use the same names, but wrappers only if they are of one class.
    kind = "leaf" if nested.is_leaf else type(optimizer).__name__
    yield nested._replace(key=StateKey(len(seen), slot_counts[kind], shared_counts[kind]))
    seen.add(id(optimizer))
    slot_counts[kind] += 1
    shared_counts[kind] += 1
    if nested.is_leaf:
        return
    for inner in optimizer.wrapped:
        counts = slot_counts
        if isinstance(optimizer, MultiOptimizer):
            # No two of these inner optimizers train the same variable, so they may share names.
            counts = slot_counts.copy()
        yield from _nested(inner, counts, shared_counts, seen)


def _numbered(name: str, number: int) -> str:
    return f"{name}_{number}" if number else name

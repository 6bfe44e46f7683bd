"""Flattens users' lists of variables, which may be nested or contain partitioned variables."""

from __future__ import annotations

from typing import Any, Iterable, Iterator, List

import tensorflow as tf

from legacy_opt.core.types import Variable


def variables_in(items: Iterable[Any], what: str) -> Iterator[Variable]:
    """Yields the variables in a nested list, and the partitions of partitioned variables."""
    for item in items:
        if is_variable(item):
            yield item
        elif holds_variables(item):
            yield from variables_in(item, what)
        else:
            raise TypeError(f"{what}: {item!r} is not a variable.")


def holds_variables(item: Any) -> bool:
    """Whether `item` is a list, tuple, set or partitioned variable."""
    return isinstance(item, (list, tuple, set, frozenset)) or is_partitioned(item)


def parts_of(item: Any) -> List[Variable]:
    """Returns the list of a partitioned variable's partitions, or ``[item]`` for other items."""
    return list(item) if is_partitioned(item) else [item]


def is_partitioned(item: Any) -> bool:
    """Whether `item` is a partitioned variable, whose iterator yields the partitions."""
    return hasattr(item, "assign") and not is_variable(item)


def is_variable(item: Any) -> bool:
    """Whether `item` is a single variable."""
    # In TensorFlow 1.15, a replicated variable is a single variable, but not a tf.Variable. It is
    # distinguished from a PartitionedVariable, because it has no parts.
    return isinstance(item, tf.Variable) or (hasattr(item, "assign") and not _has_parts(item))


def _has_parts(item: Any) -> bool:
    try:
        return hasattr(type(item), "__iter__") and iter(item) is not None
    except TypeError:  # tf.Variable defines __iter__ only to raise this error
        return False

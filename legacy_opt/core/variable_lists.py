"""Flattens users' lists of variables, which may be nested or contain partitioned variables."""

import tensorflow as tf


def variables_in(items, what):
    """Yields the variables in a nested list, and the partitions of partitioned variables.

    Raises:
      TypeError: an item is not a variable.
    """
    for item in items:
        if is_variable(item):
            yield item
        elif holds_variables(item):
            yield from variables_in(item, what)
        else:
            raise TypeError(f"{what}: {item!r} is not a variable.")


def holds_variables(item):
    """Whether `item` is a list, tuple, set or partitioned variable."""
    return isinstance(item, (list, tuple, set, frozenset)) or is_partitioned(item)


def parts_of(item):
    """Returns the list of a partitioned variable's partitions, or ``[item]`` for other items."""
    return list(item) if is_partitioned(item) else [item]


def is_partitioned(item):
    """Whether `item` is a partitioned variable, whose iterator yields the partitions."""
    return hasattr(item, "assign") and not is_variable(item)


def is_variable(item):
    """Whether `item` is a single variable."""
    # In TensorFlow 1.15, a replicated variable is a single variable, but not a tf.Variable. It is
    # distinguished from a PartitionedVariable, because it has no parts.
    return isinstance(item, tf.Variable) or (hasattr(item, "assign") and not _has_parts(item))


def _has_parts(item):
    try:
        return hasattr(type(item), "__iter__") and iter(item) is not None
    except TypeError:  # tf.Variable defines __iter__ only to raise this error
        return False

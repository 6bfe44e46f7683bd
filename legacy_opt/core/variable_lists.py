"""Lists of variables, as users write them: nested, and with partitioned variables in them."""

import tensorflow as tf


def variables_in(items, what):
    """Yields the variables in a nested list, of partitioned ones their parts.

    Args:
      items: the list.
      what: what it is, for messages.

    Raises:
      TypeError: it holds something else.
    """
    for item in items:
        if is_variable(item):
            yield item
        elif holds_variables(item):
            yield from variables_in(item, what)
        else:
            raise TypeError(f"{what}: {item!r} is no variable.")


def holds_variables(item):
    """Whether something is a list, or a partitioned variable."""
    return isinstance(item, (list, tuple, set, frozenset)) or is_partitioned(item)


def parts_of(item):
    """Returns the list of a partitioned variable's parts; anything else alone, in a list."""
    return list(item) if is_partitioned(item) else [item]


def is_partitioned(item):
    """Whether something is a variable in parts, which it yields."""
    return hasattr(item, "assign") and not is_variable(item)


def is_variable(item):
    """Whether something is one variable."""
    # A partitioned variable is none itself; one of several replicas is none in TensorFlow 1.15.
    return isinstance(item, tf.Variable) or (hasattr(item, "assign") and not _has_parts(item))


def _has_parts(item):
    try:
        return hasattr(type(item), "__iter__") and iter(item) is not None
    except TypeError:  # a variable's own, which refuses
        return False

"""Copies of v1 optimizers and of what they hold."""

import tensorflow as tf

from legacy_opt import versions
from legacy_opt.core import argument_checks
from legacy_opt.wrappers.base import OptimizerWrapper

from .nesting import parts

v1 = tf.compat.v1


# What an adopted optimizer knows besides: the Keras optimizer; what that feeds it; its `Place`.
BONDS = ("_owner", "_feed", "_place")


def copy_all(optimizer, make):
    """Copies an optimizer and all inside; `make` is called with a `Part` and the state of its copy.

    Returns:
      The copy of the optimizer.
    """
    made = {}
    for part in reversed(parts(optimizer)):
        made[id(part.optimizer)] = make(part, _fresh_state(part.optimizer, made))
    return made[id(optimizer)]


def _fresh_state(optimizer, copies):
    """Returns a copy of an optimizer's attributes, without its variables.

    Args:
      optimizer: the optimizer.
      copies: a dict from the `id` of those that it may hold to their copies.
    """
    state = {
        name: copied(value, copies)
        for name, value in vars(optimizer).items()
        if not name.startswith("_self_")  # what TensorFlow's checkpoints note of the original
    }
    state.update(_slots={}, _non_slot_dict={}, _deferred_slot_restorations={})
    return state


def chosen_variables(optimizer):
    """Returns the variables that a wrapper's constructor was told to treat in some way."""
    if not isinstance(optimizer, OptimizerWrapper):
        return []
    state = [value for name, value in vars(optimizer).items() if name not in BONDS]
    return list(_variables_in(state))


def _variables_in(value):
    if isinstance(value, tf.Variable) or versions.is_keras_3_variable(value):
        yield value
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _variables_in(item)


def copied(value, copies=()):
    """Copies containers, which the optimizer may change, but not what they hold.

    Args:
      value: anything.
      copies: a dict from the `id` of optimizers to those that take their places.
    """
    if type(value) is dict:
        return {key: copied(item, copies) for key, item in value.items()}
    if type(value) in (list, set):
        return type(value)(copied(item, copies) for item in value)
    if not copies:
        return value
    if isinstance(value, v1.train.Optimizer):
        return copies.get(id(value), value)
    if isinstance(value, tuple):
        items = [copied(item, copies) for item in value]
        return type(value)._make(items) if hasattr(value, "_make") else type(value)(items)
    return value


def starting_value(value):
    """Returns what a variable that all share starts from, as a tensor: v1 takes functions, too."""
    if argument_checks.is_function(value):
        value = value()
    return tf.convert_to_tensor(value)  # a Python float is float32, as in v1

"""What the state of a v1 optimizer is called in a TF1 graph, and so in its checkpoints."""

from typing import NamedTuple

import tensorflow as tf

from legacy_opt.compat import adopted, inspection

v1 = tf.compat.v1


class Tensor(NamedTuple):
    """A tensor of a checkpoint: its name, shape (a tuple of ints) and `tf.DType`."""

    name: str
    shape: tuple
    dtype: tf.DType


class Names(NamedTuple):
    """The state of an optimizer.

    Attributes:
      slots: a dict from (v1 name of the variable, slot name) to a `Tensor`.
      shared: a dict from the names of the variables that all share to a `Tensor`.
    """

    slots: dict
    shared: dict


def names(optimizer, variables):
    """Finds out by letting the optimizer create its slots in a scratch graph.

    Args:
      optimizer: a v1 optimizer, or one made by `to_keras`.
      variables: a dict from v1 names of the variables it trains to (shape, dtype).

    Returns:
      `Names`.
    """
    replica = _replica(optimizer)
    with tf.Graph().as_default():
        made = {
            name: v1.get_variable(
                name, shape, dtype, initializer=v1.zeros_initializer(), use_resource=True
            )
            for name, (shape, dtype) in variables.items()
        }
        _give_step(replica, optimizer)
        replica._create_slots(list(made.values()))
        slots = {
            (name, slot_name): replica.get_slot(variable, slot_name)
            for slot_name in replica.get_slot_names()
            for name, variable in made.items()
        }
        shared = {name: variable for (name, _), variable in replica._non_slot_dict.items()}
        return Names(
            {key: _tensor(slot) for key, slot in slots.items() if slot is not None},
            {name: _tensor(variable) for name, variable in shared.items()},
        )


def _replica(optimizer):
    if is_bridged(optimizer):
        return adopted.fresh_copy(optimizer._adopted)
    inspection.check_class(optimizer)
    return adopted.fresh_copy(optimizer)


def is_bridged(optimizer):
    """Whether `to_keras` made this optimizer."""
    return getattr(optimizer, "_adopted", None) is not None


def _give_step(replica, optimizer):
    """Gives a copy a step of the graph at hand, by whose dtype its slots may go."""
    attribute = getattr(optimizer, "_step", None)  # of a bridged optimizer
    if attribute is None and inspection.STEP_ATTRIBUTE in vars(replica):
        attribute = inspection.STEP_ATTRIBUTE
    if attribute is not None:
        dtype = getattr(optimizer, "_step_dtype", None)
        dtype = dtype or getattr(vars(replica)[attribute], "dtype", tf.int64)
        vars(replica)[attribute] = tf.zeros([], tf.as_dtype(dtype).base_dtype)


def _tensor(variable):
    return Tensor(variable.op.name, tuple(variable.shape.as_list()), variable.dtype.base_dtype)

"""What the state of a v1 optimizer is called in a TF1 graph, and so in its checkpoints."""

from typing import NamedTuple

import numpy as np
import tensorflow as tf

from legacy_opt import MultiOptimizer
from legacy_opt.core import argument_checks
from legacy_opt.core.hyperparameters import takes_step

from . import inspection, owned_state, supported
from .nesting import parts

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


def names(optimizer, variables, originals=None):
    """Finds out by letting the optimizer create its slots in a scratch graph.

    Args:
      optimizer: a v1 optimizer, or one made by `to_keras`.
      variables: a dict from v1 names of the variables it trains to (shape, dtype).
      originals: a dict from these names to the variables themselves, by which a MultiOptimizer in
        Keras chooses; None lets it choose by the v1 names.

    Returns:
      `Names`.
    """
    replica = _replica(optimizer)
    everything = parts(replica)
    for part in everything:
        if part.is_leaf:
            _replace_tensors(part.optimizer)
    known = parts(optimizer._adopted) if is_bridged(optimizer) else everything
    for part, original in zip(everything, known):
        if isinstance(part.optimizer, MultiOptimizer) and originals is not None:
            _route_alike(part.optimizer, original.optimizer, originals)
    with tf.Graph().as_default():
        made = {
            name: v1.get_variable(
                name, shape, dtype, initializer=v1.zeros_initializer(), use_resource=True
            )
            for name, (shape, dtype) in variables.items()
        }
        for part, original in zip(everything, known):
            _give_step(part.optimizer, original.optimizer)
            if not part.is_leaf:
                part.optimizer.only_dense = True  # as in Keras
        replica._create_slots(list(made.values()))
        slots, shared = {}, {}
        for part in everything:
            slots.update(_slots(part, made))
            for (name, _), variable in part.optimizer._non_slot_dict.items():
                shared[part.place.shared(name)] = _tensor(variable)
        return Names(slots, shared)


def _slots(part, variables):
    """Returns the slots that are an optimizer's own, not those of optimizers inside."""
    optimizer = part.optimizer
    if part.is_leaf:
        slot_names, slot_of = optimizer.get_slot_names(), optimizer.get_slot
    else:
        slot_names, slot_of = v1.train.Optimizer.get_slot_names(optimizer), optimizer.own_slot
    found = {
        (name, part.place.slot(slot_name)): slot_of(variable, slot_name)
        for slot_name in slot_names
        for name, variable in variables.items()
    }
    return {key: _tensor(slot) for key, slot in found.items() if slot is not None}


def _route_alike(replica, original, originals):
    """Lets the copy of a MultiOptimizer choose as the original does for variables of Keras."""
    routes = replica._routes + replica._default
    numbers = {id(route): n for n, route in enumerate(original._routes + original._default)}
    found = original.routes_of(list(originals.values()))
    by_name = {
        name: [routes[numbers[id(route)]] for route in by]
        for name, (_, by) in zip(originals, found)
    }
    replica.routes_of = lambda variables: [(each, by_name[each.op.name]) for each in variables]


def _replica(optimizer):
    if is_bridged(optimizer):
        return owned_state.fresh_copy(optimizer._adopted)
    supported.check_class(optimizer)
    return owned_state.fresh_copy(optimizer)


def is_bridged(optimizer):
    """Whether `to_keras` made this optimizer."""
    return getattr(optimizer, "_adopted", None) is not None


def _replace_tensors(replica):
    """Gives a copy numbers of the same dtypes for tensors, which a scratch graph does not have."""
    arguments = inspection.constructor_arguments(type(replica))
    for name, value in list(vars(replica).items()):
        if name[:1] != "_" or name[1:] not in arguments:
            continue
        if argument_checks.is_function(value) and not takes_step(value):
            value = value()
        if argument_checks.is_tensor_like(value):
            value = np.ones([], value.dtype.base_dtype.as_numpy_dtype)
        vars(replica)[name] = value


def _give_step(replica, original):
    """Gives a copy a step of the graph at hand, by whose dtype its slots may go."""
    feed = getattr(original, "_feed", None)  # of one that is adopted
    if feed is not None:
        attribute, dtype = feed.step, feed.step_dtype
    else:
        attribute = inspection.STEP_ATTRIBUTE
        dtype = getattr(vars(replica).get(attribute), "dtype", tf.int64)
    if attribute in vars(replica):
        vars(replica)[attribute] = tf.zeros([], tf.as_dtype(dtype).base_dtype)


def _tensor(variable):
    return Tensor(variable.op.name, tuple(variable.shape.as_list()), variable.dtype.base_dtype)

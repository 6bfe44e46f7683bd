"""Copies v1 optimizers and the containers in their attributes."""

from __future__ import annotations

import copy
from collections import abc
from typing import Any, Callable, Dict, Iterator, List, Optional

import numpy as np
import tensorflow as tf

from legacy_opt import versions
from legacy_opt.core.types import KerasVariable, V1Optimizer
from legacy_opt.wrappers.base import OptimizerWrapper

from .nesting import NestedOptimizer, nested_optimizers

v1 = tf.compat.v1
# Attributes that `to_keras` adds to its copy of a v1 optimizer: the `V1Driver`, which runs the
# copy, and the copy's `StepInputs` and `StateKey`.
BRIDGE_ATTRIBUTES = ("_driver", "_step_inputs", "_state_key")
_OTHER_CONTAINERS = (abc.MutableMapping, abc.MutableSequence, abc.MutableSet, np.ndarray)


def copy_all(
    optimizer: V1Optimizer, make: Callable[[NestedOptimizer, Dict[str, Any]], V1Optimizer]
) -> V1Optimizer:
    """Copies an optimizer and all nested in it, without slots and shared (non-slot) variables.

    `make` takes a `NestedOptimizer` and a dict of attributes, and returns the copy of this one
    optimizer with these attributes.
    """
    copies = {}
    for nested in reversed(nested_optimizers(optimizer)):  # inner optimizers first
        state = {
            name: copied(value, copies)
            for name, value in vars(nested.optimizer).items()
            if not name.startswith("_self_")  # TensorFlow's records for object-based checkpoints
        }
        state.update(_slots={}, _non_slot_dict={}, _deferred_slot_restorations={})
        copies[id(nested.optimizer)] = make(nested, state)
    return copies[id(optimizer)]


def chosen_variables(optimizer: V1Optimizer) -> List[KerasVariable]:
    """Returns the variables passed to a wrapper's constructor; [] for other optimizers."""
    if not isinstance(optimizer, OptimizerWrapper):
        return []
    state = [value for name, value in vars(optimizer).items() if name not in BRIDGE_ATTRIBUTES]
    return list(_variables_in(state))


def _variables_in(value: Any) -> Iterator[KerasVariable]:
    if isinstance(value, tf.Variable) or versions.is_keras_3_variable(value):
        yield value
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _variables_in(item)


def copied(value: Any, copies: Optional[Dict[int, V1Optimizer]] = None) -> Any:
    """Copies containers and arrays, which an optimizer may change, but not the objects in them.

    `copies` is a dict from the `id` of optimizers to the optimizers that replace them, or None.
    """
    if type(value) is dict:
        return {key: copied(item, copies) for key, item in value.items()}
    if type(value) in (list, set):
        return type(value)(copied(item, copies) for item in value)
    if isinstance(value, _OTHER_CONTAINERS):
        return copy.copy(value)
    if copies and isinstance(value, v1.train.Optimizer):
        return copies.get(id(value), value)
    if isinstance(value, tuple):
        items = [copied(item, copies) for item in value]
        if any(new is not old for new, old in zip(items, value)):
            return type(value)._make(items) if hasattr(value, "_make") else type(value)(items)
    return value

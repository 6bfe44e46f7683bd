"""Computes the names of a v1 optimizer's state in a TF1 graph and its checkpoints."""

from __future__ import annotations

from typing import Any, Dict, Mapping, NamedTuple, Optional, Tuple, Union

import numpy as np
import tensorflow as tf

from legacy_opt import CyclicalLearningRate, MultiOptimizer
from legacy_opt.core import argument_checks
from legacy_opt.core.hyperparameters import takes_step
from legacy_opt.core.types import DType, KerasOptimizer, KerasVariable, Shape, V1Optimizer, Variable

from . import inspection, owned_state, supported
from .nesting import NestedOptimizer, nested_optimizers

v1 = tf.compat.v1


class NamedTensor(NamedTuple):
    """A tensor of a checkpoint: its name, shape (a tuple of ints) and `tf.DType`."""

    name: str
    shape: Tuple[int, ...]
    dtype: tf.DType


class StateNames(NamedTuple):
    """The tensors of an optimizer's state in a TF1 checkpoint."""

    slots: Dict[Tuple[str, str], NamedTensor]  # by (v1 name of the variable, slot name)
    shared: Dict[str, NamedTensor]  # by the name of the shared (non-slot) variable


def names(
    optimizer: Union[V1Optimizer, KerasOptimizer],
    variables: Mapping[str, Tuple[Shape, DType]],
    originals: Optional[Mapping[str, KerasVariable]] = None,
) -> StateNames:
    """Returns the `StateNames` of an optimizer, after creating its state in a scratch graph.

    `optimizer` is of v1, or made by `to_keras`. `variables` has the (shape, dtype) of each variable
    to train, by its v1 name, and `originals` the Keras variables by the same names. A
    MultiOptimizer routes these, instead of those of the scratch graph, to its nested optimizers.
    """
    v1_optimizer = optimizer._v1.optimizer if is_bridged(optimizer) else optimizer
    if v1_optimizer is optimizer:
        supported.check_class(optimizer)
    replica = owned_state.unbound_copy(v1_optimizer)
    nested_copies = nested_optimizers(replica)
    for nested in nested_copies:
        if nested.is_leaf:
            _replace_tensors(nested.optimizer)
    # The copies lack the step inputs and the names of Keras variables of a bridged optimizer.
    nested_originals = nested_optimizers(v1_optimizer) if is_bridged(optimizer) else nested_copies
    for nested, original in zip(nested_copies, nested_originals):
        if isinstance(nested.optimizer, MultiOptimizer) and originals is not None:
            _route_alike(nested.optimizer, original.optimizer, originals)
    with tf.Graph().as_default():
        scratch_variables = {
            name: v1.get_variable(
                name, shape, dtype, initializer=v1.zeros_initializer(), use_resource=True
            )
            for name, (shape, dtype) in variables.items()
        }
        for nested, original in zip(nested_copies, nested_originals):
            _set_step(nested.optimizer, original.optimizer)
            if not nested.is_leaf:
                # GradientAccumulationOptimizer then creates its sums in _create_slots, as in Keras.
                nested.optimizer.only_dense = True
        replica._create_slots(list(scratch_variables.values()))
        slots, shared = {}, {}
        for nested in nested_copies:
            slots.update(_slots(nested, scratch_variables))
            for (name, _), variable in nested.optimizer._non_slot_dict.items():
                shared[nested.key.shared(name)] = _tensor(variable)
        return StateNames(slots, shared)


def _slots(
    nested: NestedOptimizer, variables: Mapping[str, Variable]
) -> Dict[Tuple[str, str], NamedTensor]:
    """Returns the slots of one optimizer, without the slots of optimizers nested in it."""
    optimizer = nested.optimizer
    if nested.is_leaf:
        slot_names = optimizer.get_slot_names()
        slot_of = optimizer.get_slot
    else:  # the methods of a wrapper would add the slots of its inner optimizers
        slot_names = v1.train.Optimizer.get_slot_names(optimizer)
        slot_of = optimizer.own_slot
    slots = {
        (name, nested.key.slot(slot_name)): slot_of(variable, slot_name)
        for slot_name in slot_names
        for name, variable in variables.items()
    }
    return {key: _tensor(slot) for key, slot in slots.items() if slot is not None}


def _route_alike(
    replica: MultiOptimizer, original: MultiOptimizer, keras_variables: Mapping[str, KerasVariable]
):
    """Makes the copy of a MultiOptimizer choose the same nested optimizers as the original."""
    routes = replica._routes + replica._default  # in the same order as in `original`
    numbers = {id(route): n for n, route in enumerate(original._routes + original._default)}
    routed = original.routes_of(list(keras_variables.values()))
    routes_by_name = {}
    for name, (_, chosen) in zip(keras_variables, routed):
        routes_by_name[name] = [routes[numbers[id(route)]] for route in chosen]
    replica.routes_of = lambda variables: [(v, routes_by_name[v.op.name]) for v in variables]


def is_bridged(optimizer: Any) -> bool:
    """Whether `to_keras` made this optimizer; if so, the attribute `_v1` is a `V1Driver`."""
    return getattr(optimizer, "_v1", None) is not None


def _replace_tensors(replica: V1Optimizer):
    """Replaces tensors of other graphs, in the attributes of a copy, by numbers."""
    attributes = {"_" + name for name in inspection.constructor_arguments(type(replica))}
    for name, value in list(vars(replica).items()):
        if name not in attributes:
            continue
        if argument_checks.is_function(value) and not takes_step(value):
            value = value(0) if isinstance(value, CyclicalLearningRate) else value()
        if argument_checks.is_tensor_like(value):
            # Names do not depend on the number, and 1 is valid for any hyperparameter.
            value = np.ones([], value.dtype.base_dtype.as_numpy_dtype)
        vars(replica)[name] = value


def _set_step(replica: V1Optimizer, original: V1Optimizer):
    """Sets a copy's global step to a tensor of the default graph; slots may have its dtype."""
    inputs = getattr(original, "_step_inputs", None)  # an attribute of the copies of `to_keras`
    if inputs is not None:
        attribute, dtype = inputs.step, inputs.step_dtype
    else:
        attribute = inspection.STEP_ATTRIBUTE
        dtype = getattr(vars(replica).get(attribute), "dtype", tf.int64)
    if attribute in vars(replica):
        vars(replica)[attribute] = tf.zeros([], tf.as_dtype(dtype).base_dtype)


def _tensor(variable: Variable) -> NamedTensor:
    shape: Any = variable.shape.as_list()
    return NamedTensor(variable.op.name, tuple(shape), variable.dtype.base_dtype)

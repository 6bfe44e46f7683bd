"""Raises errors for v1 optimizers that `to_keras` cannot run; the messages explain why."""

from __future__ import annotations

import inspect
from typing import Any, Callable, Collection, Optional, Type

import tensorflow as tf

from legacy_opt import DecoupledWeightDecayExtension, LossScaleOptimizer, RuleOptimizer
from legacy_opt.core import contract
from legacy_opt.core.types import V1Optimizer
from legacy_opt.native.updates.acceleration import Accelerated

from .inspection import BASE, attributes
from .nesting import nested_optimizers


def check_class(optimizer: Any):
    """Raises an error if a v1 optimizer, or one nested in it, is of a class that Keras cannot run.

    Such an optimizer cannot update resource variables, or contains an optimizer, but is no wrapper.
    """
    if not isinstance(optimizer, BASE):
        hint = ""
        if isinstance(optimizer, type):
            hint = " Pass an instance, not the class."
        elif hasattr(optimizer, "iterations"):
            hint = " It is a Keras optimizer already."
        raise TypeError(
            f"to_keras takes a tf.compat.v1.train.Optimizer, got {optimizer!r} of type "
            f"{type(optimizer).__name__}.{hint}"
        )
    for nested in nested_optimizers(optimizer):
        cls = type(nested.optimizer)
        if isinstance(nested.optimizer, LossScaleOptimizer):
            way_out = "pass the optimizer in it to to_keras, and the result to Keras' class"
            raise ValueError(f"Only Keras' own LossScaleOptimizer can scale the loss: {way_out}.")
        wrapped = () if nested.is_leaf else nested.optimizer.wrapped
        for attribute, item in attributes(nested.optimizer):
            if isinstance(item, BASE) and not any(item is each for each in wrapped):
                raise ValueError(
                    f"{cls.__name__}.{attribute} is another optimizer, whose state would not be in "
                    "a Keras checkpoint. Pass that optimizer to to_keras."
                )
        has_updates = cls._resource_apply_dense is not BASE._resource_apply_dense
        if not (wrapped or has_updates or own_apply_gradients(cls)):
            raise TypeError(
                f"{cls.__name__} does not define _resource_apply_dense(self, grad, handle), "
                "so it cannot update resource variables, which Keras uses. Define this method (and "
                "_resource_apply_sparse(self, grad, handle, indices) for embeddings) like "
                "_apply_dense, but with handle.handle and the Resource… kernels of tf.raw_ops."
            )


def check_methods(optimizer: V1Optimizer):
    """Raises a ValueError if `to_keras` would not call an overridden method as TensorFlow does."""
    for nested, _ in nested_optimizers(optimizer):
        # A wrapper never calls minimize, and it calls apply_gradients in Keras as in a Session.
        ignored = () if nested is optimizer else ("minimize", "apply_gradients")
        contract.check("to_keras", nested, ValueError, ignored)


def check_untrained(optimizer: V1Optimizer):
    """Raises a ValueError if an optimizer, or one nested in it, has trained where this code runs.

    The Keras optimizer would start with new state. State in another graph is no error: the values
    are in a Session, and the optimizer may train other variables here.
    """
    for nested in nested_optimizers(optimizer):
        attributes = vars(nested.optimizer)
        slots = {
            name
            for name, of_variables in attributes.get("_slots", {}).items()
            # A graph's variable has the key (graph, name), an eager variable a string.
            if any(isinstance(key, str) or _is_here(key[0]) for key in of_variables)
        }
        shared = {name for name, graph in attributes.get("_non_slot_dict", {}) if _is_here(graph)}
        if slots or shared:
            name = type(nested.optimizer).__name__
            raise ValueError(
                f"{name} has trained already, and the Keras optimizer would start with new state, "
                f"without {', '.join(sorted(slots) + sorted(shared))}. To start anew, pass a new "
                f"{name}. To go on with the state, save the variables of both with "
                "tf.compat.v1.train.Saver, pass a new optimizer to to_keras, and load the "
                "checkpoint with load_v1_checkpoint. `legacy-opt docs keras` shows how."
            )


def _is_here(graph: Optional[tf.Graph]) -> bool:
    """Whether state in a graph (None: state of eager code) is state of the code that runs now."""
    return graph is None or graph is tf.compat.v1.get_default_graph()


def check_variables(optimizer: V1Optimizer, set_in_each_step: Collection[Optional[str]]):
    """Raises a ValueError if the optimizer's constructor has created variables.

    No Keras checkpoint would contain such variables. Arguments of the constructor may be variables,
    and so may the attributes that `to_keras` sets in each training step.
    """
    parameters = inspect.signature(type(optimizer).__init__).parameters
    for attribute, item in attributes(optimizer):
        if attribute in set_in_each_step or attribute.lstrip("_") in parameters:
            continue
        if isinstance(item, tf.Variable):
            raise ValueError(
                f"{type(optimizer).__name__}.{attribute} is a variable ({item.name}), which "
                "no Keras checkpoint would contain. Create state in _create_slots with "
                "_create_non_slot_variable or _zeros_slot."
            )


# The implementations of apply_gradients that `to_keras` need not call. Instead, `V1Driver` calls
# `_prepare`, the update methods and `_finish`, within the context managers `applying` and
# `decaying_only` of the package's optimizers. The implementations also contain checks, warnings,
# and a lock for the increment of the global step, which are not needed in Keras.
_ONLY_PREPARE = tuple(
    vars(cls)["apply_gradients"]
    for cls in (BASE, RuleOptimizer, DecoupledWeightDecayExtension, Accelerated)
)


def own_apply_gradients(cls: Type[V1Optimizer]) -> Optional[Callable]:
    """Returns the function of apply_gradients that `to_keras` must call as a whole, or None."""
    functions = [vars(each).get("apply_gradients") for each in cls.__mro__]
    return next((each for each in functions if each and each not in _ONLY_PREPARE), None)

"""Copies an OptimizerV2 for Keras 3, after checking that Keras 3 can train with it."""

from __future__ import annotations

from typing import Any, Callable, Dict

import tensorflow as tf

from legacy_opt import versions
from legacy_opt.core import contract
from legacy_opt.core.types import KerasOptimizer

from ..v1_optimizers import copying, graph_names


def untrained_copy(optimizer: KerasOptimizer) -> KerasOptimizer:
    """Returns a copy of an OptimizerV2 without variables, or raises the errors of `to_keras`."""
    name = type(optimizer).__name__
    if versions.for_a_session():
        raise ValueError(
            "Keras 3 has no Session: convert an OptimizerV2 where TensorFlow executes eagerly."
        )
    check_is_alone(name)
    if graph_names.is_bridged(optimizer):
        raise ValueError(
            f"This {name} was made by to_keras for Keras 2. Pass the v1 optimizer itself: "
            "to_keras(v1_optimizer, api='keras3')."
        )
    if hasattr(optimizer, "get_scaled_loss"):
        raise ValueError(
            f"{name} scales the loss. Pass the optimizer inside it, optimizer.inner_optimizer, and "
            "let Keras 3 scale the loss: keras.optimizers.LossScaleOptimizer(to_keras(…))."
        )
    for attribute, value in vars(optimizer).items():
        is_container = isinstance(value, (list, tuple, dict)) and not attribute.startswith("_self_")
        if is_container and any(map(_is_optimizer_v2, tf.nest.flatten(value))):
            raise ValueError(
                f"{name} has optimizers in the container {attribute}. In Keras 3, each optimizer "
                "that it wraps must be an attribute of its own."
            )
    for child_name, child in optimizer._trackable_children().items():
        if child_name not in (*optimizer._hyper, "iter") and isinstance(child, tf.Variable):
            raise ValueError(
                f"{name} creates the variable {child_name!r} in its constructor, which no file of "
                "Keras 3 would contain. Create it in _create_slots."
            )
    contract.check("Keras 3", optimizer, TypeError)
    if any(map(_has_trained, versions.with_wrapped(optimizer))):
        raise ValueError(
            f"This {name} has trained already, and the result of to_keras would start with new "
            "state. Save its state in Keras 2 and load it with load_optimizer_v2, or pass a new "
            "optimizer."
        )
    return copy_without_variables(optimizer)


def check_is_alone(name: str):
    """Raises a ValueError if an OptimizerV2 of this name would train in several replicas."""
    if tf.distribute.has_strategy():
        raise ValueError(
            f"{name} is an OptimizerV2, which to_keras supports in Keras 3 in one replica only. "
            "Train without a distribution strategy, or in tf_keras."
        )


def _has_trained(optimizer: KerasOptimizer) -> bool:
    step = optimizer._iterations
    return bool(optimizer._slots) or (step is not None and int(versions.value_of(step)) > 0)


def copy_without_variables(optimizer: KerasOptimizer) -> KerasOptimizer:
    """Copies an OptimizerV2, and the OptimizerV2s that it wraps, without their own variables.

    The copy refers to the same schedules, functions and variables of the user.
    """
    state = {
        name: copy_without_variables(value) if _is_optimizer_v2(value) else copying.copied(value)
        for name, value in vars(optimizer).items()
        if not name.startswith("_self_")  # TensorFlow's records for object-based checkpoints
    }
    hyper = dict(optimizer._hyper)
    if optimizer._hypers_created:
        hyper = as_numbers(hyper, _is_made_by_keras_2)
    state.update(_hyper=hyper, _hypers_created=False, _iterations=None)
    state.update(_weights=[], _slots={}, _slot_names=[])
    made = object.__new__(type(optimizer))
    vars(made).update(state)
    attribute_of = {id(value): name for name, value in vars(optimizer).items()}
    for name, child in optimizer._trackable_children().items():
        if _is_optimizer_v2(child):
            made._track_trackable(state[attribute_of[id(child)]], name)
    return made


def _is_optimizer_v2(value: Any) -> bool:
    return versions.api_of(value) == "optimizer_v2"


def as_numbers(hyperparameters: Dict[str, Any], is_own: Callable[[Any], bool]) -> Dict[str, Any]:
    """Returns hyperparameters with numbers in place of the OptimizerV2's own variables."""
    return {
        name: value.numpy().item() if is_own(value) else value
        for name, value in hyperparameters.items()
    }


def _is_made_by_keras_2(value: Any) -> bool:
    # Keras 2 creates hyperparameters with this aggregation. A user's variable has another one.
    return (
        isinstance(value, tf.Variable)
        and value.aggregation == tf.VariableAggregation.ONLY_FIRST_REPLICA
    )

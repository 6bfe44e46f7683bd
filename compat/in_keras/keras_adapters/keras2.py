"""The adapter of Keras 2: `OptimizerV2`."""

from __future__ import annotations

from types import ModuleType
from typing import Any, Callable, Dict, Iterator, Optional, Sequence, Tuple

import tensorflow as tf

from legacy_opt import versions
from legacy_opt.core.types import Gradient, KerasOptimizer, KerasVariable, Variable

from ..v1_optimizers import graph_names
from ..v1_optimizers.schedules import Rate
from .base import (
    FACTORY,
    KerasAdapter,
    KerasVariables,
    LossScaling,
    MakingSlot,
    other_variables,
    unchanged,
    with_inner,
)

# The packages whose optimizers return an operation from apply_gradients in a graph.
_MADE_FOR_GRAPHS = ("keras", "legacy_opt", "tensorflow", "tensorflow_core", "tf_keras")


class Keras2Adapter(KerasAdapter):
    """The adapter of `OptimizerV2`."""

    api = "optimizer_v2"
    title = "Keras 2"

    @property
    def keras(self) -> ModuleType:
        return versions.keras_2()

    @property
    def base(self) -> type:
        return versions.optimizer_v2()

    @property
    def optimizers(self) -> ModuleType:
        module = self.keras.optimizers
        return getattr(module, "legacy", module)  # from Keras 2.11 on, OptimizerV2 is in `legacy`

    @property
    def name(self) -> str:
        return "tf_keras" if self.keras.__name__ == "tf_keras" else "tf.keras"

    def refuse_new(self, cls: type, text: str):
        """Raises a TypeError for an optimizer class that Keras 2.11 added.

        `text` continues the message up to the name of the OptimizerV2 that the user has to pass.
        """
        if versions.api_of(cls) is None and hasattr(cls, "add_variable_from_reference"):
            raise TypeError(
                f"{cls.__name__} is one of the new optimizers that Keras 2 has since 2.11{text} "
                f"{self.name}.optimizers.legacy.{cls.__name__}."
            )

    def raw_rate(self, optimizer: KerasOptimizer) -> Rate:
        return optimizer._hyper["learning_rate"]

    def rate_now(self, optimizer: KerasOptimizer) -> float:
        return float(self.keras.backend.get_value(optimizer._decayed_lr(tf.float32)))

    def base_arguments(self, optimizer: KerasOptimizer) -> Dict[str, Any]:
        names = ("clipnorm", "clipvalue", "global_clipnorm")
        arguments = {name: getattr(optimizer, name, None) for name in names}
        arguments["decay"] = optimizer._initial_decay or None
        arguments["gradient_aggregator"] = versions.own_aggregator(optimizer)
        arguments["gradient_transformers"] = getattr(optimizer, "gradient_transformers", ()) or None
        return {name: value for name, value in arguments.items() if value is not None}

    def check_saves(self, optimizer: KerasOptimizer, config: Dict[str, Any]):
        """Raises a ValueError if a configuration lacks an argument that all optimizers take."""
        for name in sorted(set(self.base_arguments(optimizer)) - set(config)):  # reports the first
            raise ValueError(
                f"{type(optimizer).__name__} cannot be saved: its get_config does not include "
                f"{name}. Save weights and state without the settings: tf.train.Checkpoint, "
                "model.save_weights."
            )

    def variables_of(
        self, bridged: KerasOptimizer, variables: Optional[KerasVariables]
    ) -> KerasVariables:
        if variables is None:
            return bridged.trained_variables()
        keys_with_slots = bridged.keys_with_slots()
        keys = [bridged.variable_key(variable) for variable in variables]
        if any(key not in keys for key in keys_with_slots):
            raise other_variables(len(keys_with_slots), len(variables))
        self.build(bridged, variables)  # creates slots for variables that have none
        return variables

    def slots(
        self, plain: KerasOptimizer, variables: KerasVariables, names: Sequence[str]
    ) -> Dict[str, KerasVariables]:
        return {
            name: [plain.get_slot(variable, name) for variable in variables]
            for name in names
            if name in plain.get_slot_names()
        }

    def trained_variables(
        self, plain: KerasOptimizer, variables: Optional[KerasVariables]
    ) -> KerasVariables:
        is_awaited = any(plain._deferred_slot_restorations.values())
        if not (plain._slots or is_awaited or variables):
            return []
        if variables is None:
            raise ValueError(
                "A Keras 2 optimizer does not store which variables its state belongs to. Pass "
                "these variables: variables=model.trainable_variables."
            )
        if is_awaited or not plain._slots:
            self.build(plain, variables)
        keys = {versions.slot_key(variable) for variable in variables}
        if plain._slots and set(plain._slots) != keys:
            raise other_variables(len(plain._slots), len(variables))
        return variables

    def pairs(
        self, source: KerasOptimizer, target: KerasOptimizer
    ) -> Iterator[Tuple[KerasVariable, KerasVariable]]:
        yield source.iterations, target.iterations

    def check_copyable(self, optimizer: KerasOptimizer):
        for each in with_inner(optimizer):
            functions = {
                "gradient_transformers": getattr(each, "gradient_transformers", None),
                "gradient_aggregator": versions.own_aggregator(each),
            }
            for name in [name for name, value in functions.items() if value]:  # reports the first
                cls = type(each).__name__
                raise ValueError(
                    f"{cls} has {name}, which its get_config does not include. {FACTORY % cls}"
                )

    def raw_hyperparameters(self, optimizer: KerasOptimizer) -> Dict[str, Any]:
        hyperparameters = getattr(optimizer, "_hyper", {})
        if graph_names.is_bridged(optimizer):  # `get_config` includes the other hyperparameters
            return {key: value for key, value in hyperparameters.items() if key == "learning_rate"}
        return hyperparameters

    def check_trains(self, variable: KerasVariable):
        if versions.is_keras_3_variable(variable):
            raise TypeError(
                f"{variable.name!r} is a variable of Keras 3, and this optimizer is of Keras "
                "2. Pass to_v1 an optimizer of Keras 3, or train the variable's tf.Variable: "
                "variable.value."
            )

    def slot_in(self, name: str, variables: Sequence[Variable]) -> Optional[Tuple[Variable, str]]:
        owner, _, slot_name = name.rpartition("/")
        for variable in variables:
            if owner and owner == variable._shared_name:
                return variable, slot_name
        return None

    def build_in_graph(
        self, optimizer: KerasOptimizer, variables: KerasVariables, making_slot: MakingSlot
    ):
        self.build(optimizer, [versions.tf_variable(each) for each in variables])

    def loss_scaling(self, optimizer: KerasOptimizer, build: Callable[[], None]) -> LossScaling:
        scale = getattr(optimizer, "get_scaled_loss", unchanged)
        return scale, getattr(optimizer, "get_unscaled_gradients", unchanged)

    def clipped(self, optimizer: KerasOptimizer, grads: Sequence[Gradient]) -> Sequence[Gradient]:
        # Up to TensorFlow 2.3, Keras clips only gradients that it has computed itself.
        if hasattr(optimizer, "_transform_gradients"):
            return grads
        if hasattr(optimizer, "_clip_gradients"):
            return optimizer._clip_gradients(grads)
        if getattr(optimizer, "clipnorm", None) is not None:
            grads = [tf.clip_by_norm(grad, optimizer.clipnorm) for grad in grads]
        if getattr(optimizer, "clipvalue", None) is not None:
            limit = optimizer.clipvalue
            grads = [tf.clip_by_value(grad, -limit, limit) for grad in grads]
        return grads

    def returns_operations(self, optimizer: KerasOptimizer) -> bool:
        package = type(optimizer).__module__.split(".")[0]
        return package in _MADE_FOR_GRAPHS and not hasattr(optimizer, "get_scaled_loss")

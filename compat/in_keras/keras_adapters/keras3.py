"""The adapter of Keras 3."""

from __future__ import annotations

import contextlib
import functools
from types import ModuleType
from typing import Any, Callable, ContextManager, Dict, Iterator, Optional, Sequence, Tuple

import numpy as np

from legacy_opt import versions
from legacy_opt.core.types import KerasOptimizer, KerasVariable

from ..v1_optimizers.schedules import Rate
from ..v1_optimizers.temporary_attributes import with_attributes
from .base import (
    AWAITS,
    FACTORY,
    KerasAdapter,
    KerasVariables,
    LossScaling,
    MakingSlot,
    other_variables,
    unchanged,
    with_inner,
)


class Keras3Adapter(KerasAdapter):
    """The adapter of `keras.optimizers.Optimizer`."""

    api = "keras3"
    title = "Keras 3"
    name = "keras"
    is_built_once = True

    @property
    def keras(self) -> ModuleType:
        return versions.keras_3()

    @property
    def base(self) -> type:
        return self.keras.optimizers.Optimizer

    def check_readable(self):
        if versions.for_a_session():
            raise ValueError(
                "Keras 3 has no Session, so its variables cannot be read or assigned in a TF1 "
                "graph. Call this function where TensorFlow executes eagerly."
            )

    def raw_rate(self, optimizer: KerasOptimizer) -> Rate:
        return optimizer._learning_rate

    def rate_now(self, optimizer: KerasOptimizer) -> float:
        return float(np.asarray(optimizer.learning_rate))

    def base_arguments(self, optimizer: KerasOptimizer) -> Dict[str, Any]:
        defaults = self.base(learning_rate=0.0, name="defaults").get_config()
        names = set(defaults) - {"name", "learning_rate"}
        arguments = {name: getattr(optimizer, name) for name in names}
        return {name: value for name, value in arguments.items() if value != defaults[name]}

    def variables_of(
        self, bridged: KerasOptimizer, variables: Optional[KerasVariables]
    ) -> KerasVariables:
        return _checked(bridged.trained_variables(), variables)

    def slots(
        self, plain: KerasOptimizer, variables: KerasVariables, names: Sequence[str]
    ) -> Dict[str, KerasVariables]:
        # The order of slots depends on the version of Keras, so find them by their names:
        # "<variable>_<slot>" or "<slot>". In `plain.variables`, variables that any optimizer may
        # have come first: iterations, learning rate, moving averages and accumulated gradients.
        skipped = 1 + versions.is_keras_3_variable(plain._learning_rate)
        skipped += len(variables) * (bool(plain.use_ema) + bool(plain.gradient_accumulation_steps))
        others = plain.variables[skipped:]
        found = {
            name: [each for each in others if f"_{each.name}".endswith("_" + name)]
            for name in names
        }
        return {name: slots for name, slots in found.items() if slots}

    def trained_variables(
        self, plain: KerasOptimizer, variables: Optional[KerasVariables]
    ) -> KerasVariables:
        awaits_state = functools.partial(versions.awaits_restoration, plain._variables)
        if not plain.built and variables:
            # Also restores state from a checkpoint that was loaded before.
            self.build(plain, variables)
            if awaits_state():
                raise ValueError(
                    "The checkpoint that was restored into this optimizer contains more state "
                    f"than the {len(variables)} variables in `variables` need."
                )
        elif not plain.built:
            if awaits_state():
                raise ValueError(AWAITS)
            return []
        return _checked(list(plain._trainable_variables), variables)

    def configure(self, source: KerasOptimizer, target: KerasOptimizer):
        for name, value in vars(source).items():
            if name.startswith("_exclude_from_weight_decay"):
                setattr(target, name, value)

    def pairs(
        self, source: KerasOptimizer, target: KerasOptimizer
    ) -> Iterator[Tuple[KerasVariable, KerasVariable]]:
        yield source._iterations, target._iterations
        for name in ("_model_variables_moving_average", "_accumulated_gradients"):
            yield from zip(getattr(source, name, ()), getattr(target, name, ()))

    def check_copyable(self, optimizer: KerasOptimizer):
        cls = type(optimizer).__name__
        if self.is_in_a_graph(optimizer):
            raise ValueError(
                f"This {cls} was made in a TF1 graph, where Keras adds numbers to the names of its "
                f"variables, so another process could not restore its checkpoint. {FACTORY % cls}"
            )
        if getattr(optimizer, "_exclude_from_weight_decay", None):
            raise ValueError(
                f"exclude_from_weight_decay(var_list=…) of this {cls} refers to variables that do "
                "not belong to the TF1 graph. Pass var_names=[…] instead, or pass to_v1 a factory "
                "that excludes the variables of the current graph."
            )

    def scaling_arguments(self, optimizer: KerasOptimizer) -> Optional[Dict[str, Any]]:
        if not hasattr(optimizer, "inner_optimizer"):
            return None
        # `get_config` of the inner optimizer does not include the exclusions from weight decay.
        names = ("name", "initial_scale", "dynamic_growth_steps")
        return {name: getattr(optimizer, name) for name in names}

    def raw_hyperparameters(self, optimizer: KerasOptimizer) -> Dict[str, Any]:
        rate = optimizer._learning_rate
        return {} if versions.is_keras_3_variable(rate) else {"learning_rate": rate}

    def check_graph_options(self, optimizer: KerasOptimizer):
        for each in with_inner(optimizer):
            for option in ("gradient_accumulation_steps", "ema_overwrite_frequency"):
                if getattr(each, option, None):
                    raise ValueError(
                        f"{option}={getattr(each, option)!r} does not work in a TF1 graph: Keras "
                        "compares a tensor with a number, which in a TF1 graph is always False."
                    )

    def build_in_graph(
        self, optimizer: KerasOptimizer, variables: KerasVariables, making_slot: MakingSlot
    ):
        with contextlib.ExitStack() as stack:
            for each in with_inner(optimizer):
                stack.enter_context(_reporting_slots(each, making_slot))
            optimizer.build(list(variables))
        optimizer.built = True

    def loss_scaling(self, optimizer: KerasOptimizer, build: Callable[[], None]) -> LossScaling:
        if hasattr(optimizer, "inner_optimizer") and not optimizer.built:
            build()  # an unbuilt optimizer would scale with a constant, not a variable
        return optimizer.scale_loss, unchanged

    def returns_operations(self, optimizer: KerasOptimizer) -> bool:
        return versions.for_a_session() and hasattr(optimizer, "_apply_in_graph")


def _reporting_slots(optimizer: KerasOptimizer, making_slot: MakingSlot) -> ContextManager:
    """Returns a scope in which an optimizer creates each slot in a scope from `making_slot`."""
    add_slot = optimizer.add_variable_from_reference
    add_variable = optimizer.add_variable

    def report_and_add_slot(
        reference_variable: KerasVariable, name: Optional[str] = None, *args: Any, **kwargs: Any
    ) -> KerasVariable:
        with making_slot(versions.tf_variable(reference_variable), name or "var"):
            return add_slot(reference_variable, name, *args, **kwargs)

    def add_valid(*args: Any, **kwargs: Any) -> KerasVariable:
        if kwargs.get("name"):  # some optimizers pass a trained variable's full name, with slashes
            kwargs["name"] = kwargs["name"].replace("/", "_").replace(":", "_")
        return add_variable(*args, **kwargs)

    methods = {"add_variable_from_reference": report_and_add_slot, "add_variable": add_valid}
    return with_attributes(optimizer, methods)


def _checked(built_for: KerasVariables, variables: Optional[KerasVariables]) -> KerasVariables:
    """Returns `built_for`; raises a ValueError if `variables` (or None) are other variables."""
    if variables is not None and set(map(id, variables)) != set(map(id, built_for)):
        raise other_variables(len(built_for), len(variables))
    return built_for

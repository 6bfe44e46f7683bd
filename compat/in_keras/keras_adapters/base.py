"""The base class of the adapters for Keras 2 and Keras 3: their interface and common code."""

from __future__ import annotations

import contextlib
import numbers
from types import ModuleType
from typing import Any, Callable, ContextManager, Dict, Iterator, List, Optional, Sequence, Tuple

import numpy as np
import tensorflow as tf

from legacy_opt import versions
from legacy_opt.core.types import Gradient, KerasOptimizer, KerasVariable, Loss, Variable

from ..v1_optimizers import graph_names, schedules
from ..v1_optimizers.schedules import Rate

KerasVariables = List[KerasVariable]
# Takes a trained variable and a slot name; returns a scope for the creation of this slot.
MakingSlot = Callable[[Variable, str], ContextManager]
Unscale = Callable[[List[Optional[Gradient]]], List[Optional[Gradient]]]
LossScaling = Tuple[Callable[[Loss], Loss], Unscale]  # scales a loss, and unscales gradients


class KerasAdapter:
    """Gives access to the optimizers of Keras 2 or of Keras 3.

    A bridged optimizer was made by `to_keras`. The class of a plain optimizer is one of Keras' own.
    """

    api: str  # the argument of `to_keras`
    title: str  # the name of this Keras in messages
    name: str  # under which users import the Keras module
    # The module, and the base class of optimizers. An ImportError says that it is not installed.
    keras: Any
    base: Any
    is_built_once = False  # if so, an optimizer cannot train further variables later

    @property
    def optimizers(self) -> ModuleType:
        """The module of Keras' optimizer classes."""
        return self.keras.optimizers

    def check_readable(self):
        """Raises a ValueError if the current graph can neither read nor assign Keras variables."""

    def class_of(self, name: str) -> type:
        """Returns the class of a plain optimizer by its name; raises a ValueError without one."""
        for module in (self.keras.optimizers, self.optimizers):
            cls = getattr(module, name, None)
            if isinstance(cls, type) and issubclass(cls, self.base):
                return cls
        raise ValueError(f"{self.keras.__name__} has no {name}.")

    def build(self, optimizer: KerasOptimizer, variables: KerasVariables):
        """Creates an optimizer's state for these variables."""
        versions.create_optimizer_weights(optimizer, variables)

    def scope(self, optimizer: KerasOptimizer) -> ContextManager:
        """Returns the scope of an optimizer's strategy; no effect if any strategy is active."""
        strategy = getattr(optimizer, "_distribution_strategy", None)
        if strategy is None or tf.distribute.has_strategy():
            return contextlib.ExitStack()
        return strategy.scope()

    def is_schedule(self, rate: Any) -> bool:
        """Returns whether a learning rate is a schedule of this Keras."""
        return isinstance(rate, self.keras.optimizers.schedules.LearningRateSchedule)

    def rate(self, optimizer: KerasOptimizer) -> Rate:
        """Returns the learning rate: a number, a schedule or a user's function.

        Raises a ValueError for an object that plain optimizers cannot keep, such as a tensor of a
        graph.
        """
        rate = self.raw_rate(optimizer)
        if self.is_schedule(rate):
            return rate
        is_function = callable(rate) and not isinstance(rate, tf.Variable)
        is_ours = is_function and type(rate).__module__.startswith("legacy_opt")
        if versions.is_symbolic(rate) or is_ours or schedules.is_v1_decay(rate):
            raise ValueError(
                f"The learning rate is {rate!r}, which Keras' own optimizers cannot keep. "
                "Give the optimizer a number or a Keras schedule first: "
                "optimizer.learning_rate = …."
            )
        if is_function and not versions.is_keras_3_variable(rate):
            return rate
        return self._rate_number(optimizer, rate)

    def _rate_number(self, optimizer: KerasOptimizer, rate: Any) -> float:
        if graph_names.is_bridged(optimizer):
            rate = optimizer._v1.values.current("learning_rate")
        elif not isinstance(rate, numbers.Real):
            rate = versions.value_of(rate)
        number = float(rate)
        single = np.float32(rate)
        # If the number is a float32, return the shortest decimal number that rounds to it.
        return float(str(single)) if single == number else number

    def raw_rate(self, optimizer: KerasOptimizer) -> Rate:
        """Returns the learning rate as Keras stores it: a variable, schedule or function."""
        raise NotImplementedError

    def rate_now(self, optimizer: KerasOptimizer) -> float:
        """Returns the learning rate of the next step, a number."""
        raise NotImplementedError

    def base_arguments(self, optimizer: KerasOptimizer) -> Dict[str, Any]:
        """Returns arguments that all Keras optimizers have, such as clipnorm, except defaults."""
        raise NotImplementedError

    def variables_of(
        self, bridged: KerasOptimizer, variables: Optional[KerasVariables]
    ) -> KerasVariables:
        """Returns a list of the variables for which a bridged optimizer has state.

        Raises a ValueError if these are others than `variables`, which the user passed (or None),
        or if some of them have been deleted.
        """
        raise NotImplementedError

    def slots(
        self, plain: KerasOptimizer, variables: KerasVariables, names: Sequence[str]
    ) -> Dict[str, KerasVariables]:
        """Returns {slot name: the plain optimizer's slots, one per variable}, if there are any."""
        raise NotImplementedError

    def trained_variables(
        self, plain: KerasOptimizer, variables: Optional[KerasVariables]
    ) -> KerasVariables:
        """Returns a list of the variables for which a plain optimizer has state.

        Raises the errors of `variables_of`; also if `variables` is None, and the optimizer does not
        store which variables it trains.
        """
        raise NotImplementedError

    def configure(self, source: KerasOptimizer, target: KerasOptimizer):
        """Copies settings that are not constructor arguments from one optimizer to another."""

    def pairs(
        self, source: KerasOptimizer, target: KerasOptimizer
    ) -> Iterator[Tuple[KerasVariable, KerasVariable]]:
        """Yields pairs of variables that have the same meaning in both optimizers.

        The first pair is the `iterations` of both optimizers. In Keras 3, the moving averages and
        accumulated gradients follow.
        """
        raise NotImplementedError

    # Copying an optimizer, for `to_v1`.

    def is_in_a_graph(self, optimizer: KerasOptimizer) -> bool:
        """Whether an optimizer's variables are in a graph, so that reading needs a Session."""
        step = versions.tf_variable(optimizer._iterations)  # in Keras 2, None until the first use
        return step is not None and versions.is_symbolic(step.handle)

    def check_copyable(self, optimizer: KerasOptimizer):
        """Raises a ValueError if `get_config` leaves out a setting that a copy must have."""
        raise NotImplementedError

    def scaling_arguments(self, optimizer: KerasOptimizer) -> Optional[Dict[str, Any]]:
        """Returns a LossScaleOptimizer's own arguments; None if `get_config` is sufficient."""

    def raw_hyperparameters(self, optimizer: KerasOptimizer) -> Dict[str, Any]:
        """Returns a dict from names of hyperparameters to values that may be no plain data."""
        raise NotImplementedError

    # Training in a TF1 graph, for `to_v1`.

    def check_graph_options(self, optimizer: KerasOptimizer):
        """Raises a ValueError for options that Keras accepts in a TF1 graph, but ignores there."""

    def check_trains(self, variable: KerasVariable):
        """Raises a TypeError if optimizers cannot train a variable of another Keras."""

    def slot_in(self, name: str, variables: Sequence[Variable]) -> Optional[Tuple[Variable, str]]:
        """Returns (trained variable, slot name) if a variable of this name is a slot, or None."""

    def build_in_graph(
        self, optimizer: KerasOptimizer, variables: KerasVariables, making_slot: MakingSlot
    ):
        """Creates an optimizer's state in the current graph.

        `making_slot` takes a trained variable and a slot name, and returns a scope for the creation
        of this slot. It is not called for slots that `slot_in` recognises.
        """
        raise NotImplementedError

    def loss_scaling(self, optimizer: KerasOptimizer, build: Callable[[], None]) -> LossScaling:
        """Returns two functions: the first scales a loss, the second unscales gradients.

        In Keras 3 the second function changes nothing, because `apply_gradients` unscales. `build`
        creates the optimizer's state.
        """
        raise NotImplementedError

    def clipped(self, optimizer: KerasOptimizer, grads: Sequence[Gradient]) -> Sequence[Gradient]:
        """Clips gradients if the optimizer's `apply_gradients` does not clip them."""
        return grads

    def returns_operations(self, optimizer: KerasOptimizer) -> bool:
        """Whether the optimizer's apply_gradients returns an operation of the graph.

        This is true for optimizers made by `to_keras`, and for Keras 2's own optimizers that do not
        scale the loss.
        """
        raise NotImplementedError


AWAITS = (
    "A checkpoint was restored into this optimizer, but the state is loaded only when the "
    "optimizer's variables are known. Pass the variables: variables=model.trainable_variables."
)
FACTORY = "Pass a factory: to_v1(lambda: %s(…))."  # %s is the name of the class


def with_inner(optimizer: KerasOptimizer) -> Iterator[KerasOptimizer]:
    """Yields an optimizer and its inner optimizers."""
    while optimizer is not None:
        yield optimizer
        optimizer = getattr(optimizer, "inner_optimizer", None)


def unchanged(value: Any) -> Any:
    """Returns its argument."""
    return value


def refuse_ref_variable(variable: KerasVariable):
    """Raises a ValueError for a ref variable, which Keras optimizers cannot update."""
    if variable.dtype != variable.dtype.base_dtype:
        raise ValueError(
            f"{variable.name!r} is a ref variable, which Keras optimizers cannot update. "
            "Make it with use_resource=True or tf.compat.v1.enable_resource_variables()."
        )


def other_variables(known: int, given: int) -> ValueError:
    """Returns the error for wrong `variables`. Both arguments are numbers of variables."""
    return ValueError(
        f"The optimizer has state for {known} variables, but `variables` contains {given} "
        "variables, and these are different variables."
    )

"""Translates settings and state of a bridged optimizer to its counterpart in Keras, and back."""

from __future__ import annotations

import inspect
import numbers
from typing import Any, Dict, Iterable, List, Optional, Tuple, Union

import numpy as np

from legacy_opt import versions
from legacy_opt.core.types import KerasOptimizer, KerasVariable

from ... import messages
from .. import beta_powers
from ..keras_adapters import adapter_of
from ..keras_adapters.base import AWAITS
from ..v1_optimizers import graph_names, schedules
from . import counterparts


class Translator:
    """Translates between the v1 optimizers of one class and their counterpart in Keras 2 or 3.

    The version of Keras is that of `optimizer`, which is bridged or plain (see `translation`).
    """

    def __init__(self, optimizer: Any, v1_class: type) -> None:
        self.counterpart = counterparts.counterpart_of(v1_class)
        self.v1_name = v1_class.__name__
        self.adapter = adapter_of(optimizer)
        if self.adapter is None:
            raise TypeError(
                "from_plain_keras takes one of Keras' own optimizers (for Keras 2.11 and later "
                f"versions of Keras 2, one of keras.optimizers.legacy), got {optimizer!r}."
            )
        self.adapter.check_readable()
        self.keras_class = self.adapter.class_of(self.counterpart.row.name)

    @property
    def keras_name(self) -> str:
        """The name of the Keras class, with the module from which users import it."""
        name = self.counterpart.row.name
        module_name = self.adapter.name + ".optimizers"
        if getattr(self.adapter.keras.optimizers, name) is not self.keras_class:
            module_name += ".legacy"
        return f"{module_name}.{name}"

    # Settings.

    def plain_like(self, bridged: KerasOptimizer, rate: Any) -> KerasOptimizer:
        """Returns a new plain optimizer with the settings of `bridged`."""
        settings = self.settings(bridged)
        settings.update(self.adapter.base_arguments(bridged), learning_rate=rate)
        try:
            plain = self.keras_class(**settings)
        except (TypeError, ValueError) as error:
            raise ValueError(
                f"{self.keras_name} does not take these settings of {self.v1_name}: "
                f"{messages.text_of(error)} ({settings!r})"
            ) from error
        self.adapter.configure(bridged, plain)
        return plain

    def settings(self, bridged: KerasOptimizer) -> Dict[str, Any]:
        """Returns the arguments that are specific to the Keras class, without the learning rate."""
        steps = getattr(bridged, "gradient_accumulation_steps", None)
        if steps and bridged._v1.values.counts_updates:
            raise ValueError(
                "The learning rate is a decay of v1, which counts updates, but Keras' schedules "
                f"count batches. With gradient_accumulation_steps={steps}, these numbers differ. "
                "Set a Keras schedule first: optimizer.learning_rate = …."
            )
        arguments = counterparts.v1_arguments(bridged)
        settings = self.counterpart.settings(arguments, self.adapter.api)
        parameters = inspect.signature(self.keras_class.__init__).parameters
        for name in [name for name in settings if name not in parameters]:
            if settings.pop(name):
                raise ValueError(f"{self.keras_name} of this version has no {name}.")
        return settings

    def has_fixed_rate(self, plain: KerasOptimizer) -> bool:
        """Whether the learning rate of `plain` is a number that does not change."""
        rate = self.adapter.rate(plain)
        return isinstance(rate, float) and "decay" not in self.adapter.base_arguments(plain)

    def check_class(self, plain: KerasOptimizer) -> None:
        """Raises a ValueError if `plain` is not an instance of the counterpart's class."""
        if type(plain) is not self.keras_class:
            raise ValueError(
                f"The counterpart of {self.v1_name} is {self.keras_name}, but the class of "
                f"`plain` is {type(plain).__module__}.{type(plain).__name__}."
            )

    def check_settings(self, plain: KerasOptimizer, bridged: KerasOptimizer) -> None:
        """Raises a ValueError if `plain` and the v1 optimizer have different settings."""
        expected = self.settings(bridged)
        config = plain.get_config()
        differences = [
            f"{name} ({config.get(name)!r}, v1: {value!r})"
            for name, value in sorted(expected.items())
            if not _equal_numbers(config.get(name, 0.0), value)
        ]
        rates = [self.adapter.rate(optimizer) for optimizer in (plain, bridged)]
        if not _equal_rates(*rates):
            plain_rate, v1_rate = map(_rate_in_full, rates)
            differences.append(f"learning_rate ({plain_rate}, v1: {v1_rate})")
        if differences:
            raise ValueError(
                f"The {self.keras_name} has other settings than the {self.v1_name}: "
                f"{', '.join(differences)}. Make the v1 optimizer with the settings of the Keras "
                "optimizer."
            )

    # State.

    def state_variables(
        self, bridged: KerasOptimizer, variables: Optional[Iterable[KerasVariable]]
    ) -> List[KerasVariable]:
        """Builds `bridged` if necessary, and returns the variables whose state must be translated.

        Raises a ValueError if the variables with state are unknown, or are not `variables`.
        """
        variables = None if variables is None else list(variables)
        if bridged.has_trained:
            return self.adapter.variables_of(bridged, variables)
        if variables:
            self.adapter.build(bridged, variables)
            return variables
        if bridged.awaits_state():
            raise ValueError(AWAITS)
        return []

    def check_untrained(self, plain: KerasOptimizer) -> None:
        """Raises a ValueError if `plain`, whose variables are unknown, must have slots."""
        if self.counterpart.row.slots and self.updates(plain):
            raise ValueError(AWAITS)

    def check_powers(self, bridged: KerasOptimizer) -> None:
        """Raises a ValueError if v1's powers of beta do not agree with `iterations`."""
        arguments = counterparts.v1_arguments(bridged)
        steps = self.updates(bridged)
        for name, argument in self.counterpart.powers.items():
            beta = arguments[argument]
            expected = beta_powers.power(beta, steps)
            variable = bridged.non_slots.get(name)
            power = beta if variable is None else float(versions.value_of(variable))
            # Tolerate rounding, and half of the change that one step makes. The tolerance is at
            # least `tiny`, because some kernels replace powers less than `tiny` by 0.
            share = (1 - beta) / 2 + 1e-7 * steps
            tolerance = max(expected * share, np.finfo(np.float32).tiny)
            if not abs(power - expected) <= tolerance:  # also true if `power` is NaN
                raise ValueError(
                    f"{name} is {power:g}, but {steps} steps with {argument}={beta!r} would make "
                    f"it {expected:g}, and Keras computes it from iterations. Set iterations to "
                    "the number of steps that the state has been trained for."
                )

    def updates(self, optimizer: KerasOptimizer) -> int:
        """Returns how many updates an optimizer has made."""
        batches_per_update = getattr(optimizer, "gradient_accumulation_steps", None) or 1
        iterations, _ = next(self.adapter.pairs(optimizer, optimizer))
        return int(versions.value_of(iterations)) // batches_per_update

    def carry(
        self,
        source: KerasOptimizer,
        target: KerasOptimizer,
        variables: List[KerasVariable],
        new_variables: List[KerasVariable],
    ) -> None:
        """Copies the state between a bridged and a plain optimizer.

        `source` has trained `variables`; `target` trains `new_variables`.
        """
        self.adapter.build(target, new_variables)
        self.carry_step(source, target)
        to_v1 = graph_names.is_bridged(target)
        if to_v1:
            plain, plain_variables = source, variables
            bridged, bridged_variables = target, new_variables
        else:
            bridged, bridged_variables = source, variables
            plain, plain_variables = target, new_variables
        rate = self.adapter.rate_now(plain)
        for slot, plain_slots in self.slots(plain, bridged, plain_variables):
            formula = self.counterpart.formula(slot)
            for variable, plain_slot in zip(bridged_variables, plain_slots):
                v1_slot = bridged.existing_slot(versions.tf_variable(variable), slot)
                if to_v1:
                    value = formula.to_v1(versions.value_of(plain_slot), rate)
                    versions.assign_to(v1_slot, value)
                else:
                    value = formula.to_keras(versions.value_of(v1_slot), rate)
                    versions.assign_to(plain_slot, value)
        arguments = counterparts.v1_arguments(bridged)
        if to_v1:  # plain optimizers have no variables for powers
            for name, argument in self.counterpart.powers.items():
                power = beta_powers.power(arguments[argument], self.updates(plain))
                versions.assign_to(bridged.non_slots[name], power)

    def carry_step(self, source: KerasOptimizer, target: KerasOptimizer, *variables: Any) -> None:
        """Copies `iterations`; in Keras 3 also moving averages and accumulated gradients."""
        del variables
        for old, new in self.adapter.pairs(source, target):
            versions.assign_to(new, versions.value_of(old))

    def slots(
        self, plain: KerasOptimizer, bridged: KerasOptimizer, variables: List[KerasVariable]
    ) -> List[Tuple[str, List[Any]]]:
        """Returns pairs: the v1 name of a slot, and a list of the plain optimizer's slots."""
        names = self.counterpart.slots(self.adapter.api)
        slots_by_name = self.adapter.slots(plain, variables, list(names.values()))
        arguments = counterparts.v1_arguments(bridged)
        for slot, name in names.items():
            factor = self.counterpart.factors.get(slot)
            needed = factor is None or arguments[factor]
            if needed and len(slots_by_name.get(name, ())) != len(variables):
                raise ValueError(
                    f"{self.keras_name} of this version has no slot {name!r} for each variable."
                )
        return [
            (slot, slots_by_name[name]) for slot, name in names.items() if name in slots_by_name
        ]


def _equal_numbers(one: Any, other: Any) -> bool:
    if isinstance(one, bool) or isinstance(other, bool):
        return bool(one) == bool(other)
    one, other = np.float32(one), np.float32(other)
    return one == other or max(abs(one), abs(other)) <= 2 * counterparts.SMALLEST


def _equal_rates(one: Any, other: Any) -> bool:
    if isinstance(one, numbers.Real) and isinstance(other, numbers.Real):
        return _equal_numbers(one, other)
    if hasattr(one, "get_config") and hasattr(other, "get_config"):
        configs = [schedules.in_plain_numbers(rate).get_config() for rate in (one, other)]
        for settings in configs:
            settings.pop("name", None)
        return type(one).__name__ == type(other).__name__ and configs[0] == configs[1]
    return one is other


def _rate_in_full(rate: Any) -> str:
    text = str(rate_text(rate))
    if hasattr(rate, "get_config"):
        settings = schedules.in_plain_numbers(rate).get_config()
        shown = [f"{name}={value!r}" for name, value in settings.items() if name != "name"]
        text += f"({', '.join(shown)})"
    return text


def rate_text(rate: Any) -> Union[numbers.Real, str]:
    """Returns a learning rate if it is a number, otherwise the name of its class."""
    return rate if isinstance(rate, numbers.Real) else type(rate).__name__

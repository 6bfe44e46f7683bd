"""The hyperparameters of a bridged optimizer, as users set them and as Keras has them."""

from __future__ import annotations

import numbers
from typing import Any, List, Optional

import numpy as np

from legacy_opt.core import argument_checks
from legacy_opt.core.types import V1Optimizer

from ..v1_optimizers import schedules
from ..v1_optimizers.schedules import Rate
from ..v1_optimizers.study import BridgeSettings
from .protocol import StateOwner


class HyperparameterValues:
    """The values of the hyperparameters that can be set while training."""

    def __init__(
        self,
        settings: BridgeSettings,
        owner: StateOwner,
        optimizer: V1Optimizer,
        leaf: Optional[V1Optimizer],
    ):
        self._settings = settings
        self._owner = owner
        self._optimizer = optimizer
        self._leaf = leaf
        # By name, the values that were set: schedules, or numbers that are not rounded to float32.
        self.exact = dict(settings.numbers)
        self.counts_updates = settings.counts_updates  # until the user sets another learning rate

    def other_names(self) -> List[str]:
        """Returns the names of the hyperparameters other than the learning rate."""
        return [name for name in self.exact if name != "learning_rate"]

    def set(self, name: str, value: Any):
        """Sets a hyperparameter to a number that is not rounded to float32 yet."""
        self.exact[name] = value
        attributes = self._settings.rates if name == "learning_rate" else ("_" + name,)
        for attribute in attributes:
            vars(self._leaf)[attribute] = value

    def set_rate(self, given: Rate, rate: Rate):
        """Sets the learning rate: as the user gave it, and in a form that Keras accepts."""
        self.set("learning_rate", rate)
        self.counts_updates = schedules.is_v1_decay(given)
        if self.counts_updates:  # to_v1 and from_plain_keras need the v1 form of the schedule
            vars(self._leaf).update(dict.fromkeys(self._settings.rates, given))

    def current(self, name: str):
        """Returns a hyperparameter's current value, without rounding to float32 if possible."""
        value = self._owner.present_value(name)
        number = self.exact.get(name)
        if isinstance(number, numbers.Real) and np.float32(number) == value:
            return number
        return value.item() if isinstance(value, (np.generic, np.ndarray)) else value

    def check_settable(self, name: str):
        """Raises an AttributeError for an attribute that would have no effect if it were set."""
        for known in self.exact:
            is_alike = name.replace("_", "") == known.replace("_", "") and name != known
            if is_alike and not name.startswith("_"):
                raise AttributeError(
                    f"This optimizer has no {name}. Set {known}, which is its name in the v1 "
                    "optimizer."
                )
        if name not in self._settings.own_names or name in self.exact:
            return
        v1_name = type(self._optimizer).__name__
        if name in ("learning_rate", "lr") and self._leaf is None:
            raise AttributeError(
                f"{v1_name} contains several optimizers, and each has its own learning rate. Make "
                "the learning rate of one of them a tf.Variable, and assign to this variable."
            )
        attributes = {} if self._leaf is None else vars(self._leaf)
        if argument_checks.is_function(attributes.get("_" + name)):
            raise AttributeError(
                f"{name} was given as a function, which is called in each step, and cannot be "
                "replaced. Pass a number to the constructor if it is to be set while training."
            )
        raise AttributeError(
            f"{v1_name} does not read {name} in each step, so it cannot be changed while "
            "training. Make a new optimizer."
        )

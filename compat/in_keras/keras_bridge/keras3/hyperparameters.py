"""The hyperparameters of bridged Keras 3 optimizers (made by `to_keras`)."""

from __future__ import annotations

import numbers
from typing import Dict, Optional, Union

import numpy as np
import tensorflow as tf

from legacy_opt import versions
from legacy_opt.core import argument_checks
from legacy_opt.core.types import KerasOptimizer, KerasVariable, Tensor, Variable

from ...v1_optimizers import schedules
from ...v1_optimizers.schedules import Rate
from ..refusals import set_too_late
from .contained import SHARED_WITH_KERAS
from .state import Keras3State, keras


class Keras3Hyperparameters(dict):
    """A dict from the names of hyperparameters to their variables, without the learning rate.

    It contains the hyperparameters that Keras lacks, and hyperparameters in SHARED_WITH_KERAS.
    """

    def __init__(self, optimizer: Keras3State):
        super().__init__()
        self._optimizer = optimizer
        self._values = optimizer._v1.values
        self.are_constants = False  # whether a TF1 graph contains the hyperparameters as constants
        for name in self._values.other_names():
            if hasattr(optimizer, name) and name not in SHARED_WITH_KERAS:  # an attribute of Keras
                del self._values.exact[name]
            else:
                self[name] = add_number(optimizer, name, self._values.exact[name])
                optimizer._saved.add("hyper_" + name, self[name])

    def tensors(self) -> Dict[str, Tensor]:
        """Returns a dict from names to tensors, for this training step; without constants."""
        if self.are_constants:
            return {}
        return {name: tf.convert_to_tensor(variable) for name, variable in self.items()}

    def set(self, name: str, value: float):
        """Sets a hyperparameter to a number."""
        if self.are_constants:
            raise set_too_late(name, value)
        value = argument_checks.hyperparameter(name, value)
        self._values.set(name, value)
        self[name].assign(value)

    def rate(self) -> Optional[Tensor]:
        """Returns this training step's learning rate; None if the v1 optimizer does not use it."""
        if not self._optimizer._v1.settings.rates:
            return None
        rate = tf.convert_to_tensor(self._optimizer.learning_rate)
        if not versions.for_a_session():
            return tf.cast(rate, tf.float32)
        with rate.graph.as_default():  # schedules look for a step in this graph
            return tf.cast(rate, tf.float32)

    def set_rate(self, rate: Rate):
        """Sets the learning rate to a number, schedule or function."""
        optimizer = self._optimizer
        if not optimizer._v1.settings.rates:
            raise AttributeError(f"{type(optimizer._v1.optimizer).__name__} has no learning rate.")
        if versions.for_a_session():
            raise RuntimeError(
                f"learning_rate={rate!r} cannot be set in a TF1 graph, where nothing would "
                "run the assignment. Run an assignment in a Session: "
                "session.run(optimizer.learning_rate.value.assign(…)), or pass learning_rate "
                "to to_keras."
            )
        if versions.is_keras_3_variable(rate):
            rate = tf.convert_to_tensor(rate)
        if tf.is_tensor(rate) and not isinstance(rate, tf.Variable):
            # Use only the tensor's current value, as Keras' own optimizers do.
            self._assign_rate(rate)
            self._values.exact["learning_rate"] = None  # only the rounded number is known
            return
        rate_in_keras = schedules.for_keras(rate, optimizer, keras)
        if isinstance(rate_in_keras, (numbers.Real, np.generic)):
            self._assign_rate(rate_in_keras)
        else:
            property_of_keras = keras.optimizers.Optimizer.learning_rate
            property_of_keras.fset(optimizer, as_keras_takes_it(rate_in_keras))
        self._values.set_rate(given=rate, rate=rate_in_keras)

    def _assign_rate(self, value: Rate):
        rate = self._optimizer._learning_rate
        if not hasattr(rate, "assign"):
            raise TypeError(
                f"The learning rate cannot be set to {value!r}: the current learning rate is a "
                "schedule or function, which only another schedule or function can replace."
            )
        rate.assign(value)


def add_number(optimizer: KerasOptimizer, name: str, number: float) -> KerasVariable:
    """Returns a new variable of a Keras optimizer, for a hyperparameter."""
    return optimizer.add_variable(
        shape=(),
        dtype="float32",
        initializer=keras.initializers.Constant(number),
        name=name,
        aggregation="only_first_replica",
    )


def as_keras_takes_it(rate: Rate) -> Rate:
    """Returns a learning rate in a form that Keras 3 accepts: a float, schedule or function."""
    if isinstance(rate, tf.Variable) or versions.is_symbolic(rate):
        return _Reading(rate)
    is_number = isinstance(rate, (numbers.Real, np.generic)) or tf.is_tensor(rate)
    return float(rate) if is_number else rate


class _Reading:
    """A learning rate function that reads a variable, or a tensor of a graph."""

    def __init__(self, source: Union[Tensor, Variable]):
        self.source = source
        if hasattr(source, "assign"):
            self.assign = source.assign

    def __call__(self) -> Tensor:
        return tf.convert_to_tensor(self.source)

"""The base class of the adapters for Keras 2 and Keras 3: their interface and common code."""

import contextlib
import numbers

import numpy as np
import tensorflow as tf

from legacy_opt import versions

from ..v1_optimizers import graph_names, schedules


class KerasAdapter:
    """Gives access to the optimizers of one generation of Keras.

    A bridged optimizer was made by `to_keras`. The class of a plain optimizer is one of Keras' own.

    Attributes:
      generation: 2 or 3.
      api: the argument `api` of `to_keras`.
      title: the name of this generation of Keras in messages.
    """

    generation: int
    api: str
    title: str

    @property
    def keras(self):
        """The module of this generation of Keras. Raises an ImportError if it is not installed."""
        raise NotImplementedError

    @property
    def base(self):
        """The base class of Keras' optimizers. Raises an ImportError if Keras is not installed."""
        raise NotImplementedError

    @property
    def name(self):
        """The name under which users import the Keras module."""
        raise NotImplementedError

    @property
    def optimizers(self):
        """The module of Keras' optimizer classes."""
        return self.keras.optimizers

    def check_readable(self):
        """Raises a ValueError if the current graph can neither read nor assign Keras variables."""

    def class_of(self, name):
        """Returns the class of a plain optimizer by its name.

        Raises:
          ValueError: this generation of Keras has no class of that name.
        """
        for home in (self.keras.optimizers, self.optimizers):
            cls = getattr(home, name, None)
            if isinstance(cls, type) and issubclass(cls, self.base):
                return cls
        raise ValueError(f"{self.keras.__name__} has no {name}.")

    def build(self, optimizer, variables):
        """Creates an optimizer's state for these variables."""
        versions.create_optimizer_weights(optimizer, variables)

    def scope(self, optimizer):
        """Returns the scope of an optimizer's distribution strategy.

        The scope has no effect if the optimizer has no strategy, or if any strategy is active.
        """
        strategy = getattr(optimizer, "_distribution_strategy", None)
        if strategy is None or tf.distribute.has_strategy():
            return contextlib.ExitStack()
        return strategy.scope()

    def is_schedule(self, rate):
        """Returns whether a learning rate is a schedule of this generation of Keras."""
        return isinstance(rate, self.keras.optimizers.schedules.LearningRateSchedule)

    def rate(self, optimizer):
        """Returns the learning rate: a number, a schedule or a user's function.

        Raises:
          ValueError: the learning rate is an object that plain optimizers cannot keep, such as a
            tensor of a graph.
        """
        rate = self.raw_rate(optimizer)
        if self.is_schedule(rate):
            return rate
        is_function = callable(rate) and not isinstance(rate, tf.Variable)
        ours = is_function and type(rate).__module__.startswith("legacy_opt")
        if versions.is_symbolic(rate) or ours or schedules.is_v1_decay(rate):
            raise ValueError(
                f"The learning rate is {rate!r}, which Keras' own optimizers cannot keep. "
                "Give the optimizer a number or a Keras schedule first: "
                "optimizer.learning_rate = …."
            )
        if is_function and not versions.is_keras_3_variable(rate):
            return rate
        return self._rate_number(optimizer, rate)

    def _rate_number(self, optimizer, rate):
        if graph_names.is_bridged(optimizer):
            rate = optimizer._v1.current_number("learning_rate")
        elif not isinstance(rate, numbers.Real):
            rate = versions.value_of(rate)
        number, single = float(rate), np.float32(rate)
        # If the number is a float32, return the shortest decimal number that rounds to it.
        return float(str(single)) if single == number else number

    def raw_rate(self, optimizer):
        """Returns the learning rate as Keras stores it: a variable, schedule or function."""
        raise NotImplementedError

    def rate_now(self, optimizer):
        """Returns the learning rate of the next step, a number."""
        raise NotImplementedError

    def base_arguments(self, optimizer):
        """Returns a dict of the arguments that all Keras optimizers have, such as clipnorm.

        Arguments with default values are left out.
        """
        raise NotImplementedError

    def variables_of(self, bridged, given):
        """Returns a list of the variables for which a bridged optimizer has state.

        Args:
          bridged: the optimizer.
          given: the variables that the user passed, or None.

        Raises:
          ValueError: the optimizer has state for other variables than `given`, or for variables
            that have been deleted.
        """
        raise NotImplementedError

    def slots(self, plain, variables, names):
        """Returns a dict from slot names to lists of a plain optimizer's slots, one per variable.

        Names for which the optimizer has no slots are left out.
        """
        raise NotImplementedError

    def trained_by(self, plain, given):
        """Returns a list of the variables for which a plain optimizer has state.

        Args:
          plain: the optimizer.
          given: the variables that the user passed, or None.

        Raises:
          ValueError: see `variables_of`; or `given` is None, and the optimizer does not store
            which variables it trains.
        """
        raise NotImplementedError

    def configure(self, source, target):
        """Copies settings that are not constructor arguments from one optimizer to another."""

    def pairs(self, source, target):
        """Yields pairs of variables that have the same meaning in both optimizers.

        The first pair is the `iterations` of both optimizers. In Keras 3, the moving averages and
        accumulated gradients follow.
        """
        raise NotImplementedError


AWAITS = (
    "A checkpoint was restored into this optimizer, but the state is loaded only when the "
    "optimizer's variables are known. Pass the variables: variables=model.trainable_variables."
)


def other_variables(known, given):
    """Returns the error for wrong `variables`. Both arguments are numbers of variables."""
    return ValueError(
        f"The optimizer has state for {known} variables, but `variables` contains {given} "
        "variables, and these are different variables."
    )

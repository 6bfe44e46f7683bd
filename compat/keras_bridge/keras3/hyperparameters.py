"""The hyperparameters of bridged Keras 3 optimizers (made by `to_keras`)."""

import numbers

import numpy as np
import tensorflow as tf

from legacy_opt import versions
from legacy_opt.core import argument_checks

from ...v1_optimizers import schedules
from ..refusals import set_too_late

keras = versions.keras_3()
_OF_KERAS_2 = ("minimize", "compute_gradients", "get_gradients", "get_updates")
_APPLY = (
    "Compute gradients with a tf.GradientTape and call optimizer.apply(gradients, variables), or "
    "pass api='optimizer_v2' to to_keras for the optimizer of Keras 2, which has minimize."
)


class Keras3Hyperparameters:
    """Mixin for Keras 3's Optimizer that keeps the v1 optimizer's hyperparameters as variables."""

    _graph_is_built = False  # whether a TF1 graph contains the hyperparameters as constants

    def __init__(self, learning_rate, **keras_arguments):
        super().__init__(learning_rate=_as_keras_takes_it(learning_rate), **keras_arguments)
        variable = self._learning_rate
        # Keras has created a variable of the dtype `floatx`. Replace it with a float32 variable.
        if getattr(variable, "dtype", "float32") != "float32":
            self._untrack_variable(variable)
            self._learning_rate = self._add_number("learning_rate", learning_rate)

    def _make_hyperparameters(self):
        """Creates variables for the hyperparameters that Keras lacks, and for weight_decay."""
        # Keras has an attribute weight_decay, but `_apply_weight_decay` ignores this attribute if
        # the v1 optimizer has a hyperparameter weight_decay.
        numbers_of_v1 = self._v1.values.exact
        for name in self._v1.values.other_names():
            if hasattr(self, name) and name != "weight_decay":
                del numbers_of_v1[name]
        names = self._v1.values.other_names()
        vars(self)["_hyper"] = {name: self._add_hyperparameter(name) for name in names}

    def _add_hyperparameter(self, name):
        variable = self._add_number(name, self._v1.values.exact[name])
        self._name("hyper_" + name, variable)
        return variable

    def _add_number(self, name, number):
        return self.add_variable(
            shape=(),
            dtype="float32",
            initializer=keras.initializers.Constant(number),
            name=name,
            aggregation="only_first_replica",
        )

    def _hyperparameters_now(self):
        """Returns a dict from the names of hyperparameters to tensors, for this training step.

        The dict contains neither the learning rate nor hyperparameters that are constants.
        """
        if self._graph_is_built:
            return {}
        return {name: tf.convert_to_tensor(variable) for name, variable in self._hyper.items()}

    def __getattr__(self, name):
        hyper = vars(self).get("_hyper", {})
        if name in hyper:
            return hyper[name]
        if name in _OF_KERAS_2:
            raise AttributeError(f"Optimizers of Keras 3 have no {name}. {_APPLY}")
        raise AttributeError(f"{type(self).__name__!r} has no attribute {name!r}")

    def __setattr__(self, name, value):
        if name in vars(self).get("_hyper", ()):
            if self._graph_is_built:
                raise set_too_late(name, value)
            value = argument_checks.hyperparameter(name, value)
            self._v1.values.set(name, value)
            self._hyper[name].assign(value)
            return
        if self._v1 is not None:  # otherwise Keras' own constructor sets attributes
            self._v1.values.check_settable(name)
            if name == "lr":
                raise AttributeError("Keras 3 has no lr. Set learning_rate.")
        super().__setattr__(name, value)

    # The weight decay.

    @property
    def weight_decay(self):
        """The v1 optimizer's weight decay if it can be set, otherwise Keras' weight decay."""
        return vars(self).get("_hyper", {}).get("weight_decay", vars(self).get("weight_decay"))

    @weight_decay.setter
    def weight_decay(self, value):
        vars(self)["weight_decay"] = value

    def _apply_weight_decay(self, variables):
        if "weight_decay" not in self._hyper:
            super()._apply_weight_decay(variables)

    def decays(self, variable):
        """Returns whether the weight decay applies to a variable.

        Users can exclude variables with Keras' `exclude_from_weight_decay`.
        """
        return self._use_weight_decay(self._trainable_variables[self._get_variable_index(variable)])

    # The learning rate.

    def _rate_now(self):
        """Returns this training step's learning rate; None if the v1 optimizer does not use it."""
        if not self._v1.settings.rates:
            return None
        return tf.cast(tf.convert_to_tensor(self._get_current_learning_rate()), tf.float32)

    def _get_current_learning_rate(self):
        is_schedule = isinstance(
            self._learning_rate, keras.optimizers.schedules.LearningRateSchedule
        )
        if self._v1 is not None and self._v1.values.counts_updates and is_schedule:
            return self._learning_rate(self.iterations)
        return super()._get_current_learning_rate()

    @property
    def learning_rate(self):
        """The current learning rate; it can be set to a number, schedule or function."""
        return self._get_current_learning_rate()

    @learning_rate.setter
    def learning_rate(self, rate):
        if not self._v1.settings.rates:
            raise AttributeError(f"{type(self._v1.optimizer).__name__} has no learning rate.")
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
            self._v1.values.exact["learning_rate"] = None
            return
        given, rate = rate, schedules.for_keras(rate, self, keras)
        if isinstance(rate, (numbers.Real, np.generic)):
            self._assign_rate(rate)
        else:
            rate_of_keras = super(Keras3Hyperparameters, type(self)).learning_rate
            rate_of_keras.fset(self, _as_keras_takes_it(rate))
        self._v1.values.set_rate(given, rate)

    def _assign_rate(self, value):
        if not hasattr(self._learning_rate, "assign"):
            raise TypeError(
                f"The learning rate cannot be set to {value!r}: the current learning rate is a "
                "schedule or function, which only another schedule or function can replace."
            )
        self._learning_rate.assign(value)

    def present_value(self, name):
        """See `StateOwner`."""
        if name != "learning_rate":
            return self._hyper[name].numpy()
        rate = self._configuration_of_keras()["learning_rate"]
        return np.float32(rate) if isinstance(rate, float) else rate

    def _configuration_of_keras(self):
        """Returns the result of Keras' own `get_config`.

        If the learning rate is a function, the result contains the function's current value.
        """
        rate, hyper = self._learning_rate, self._hyper
        is_function = callable(rate) and not hasattr(rate, "get_config")
        vars(self).update(_hyper={})  # the property weight_decay then returns Keras' value
        if is_function:
            vars(self)["_learning_rate"] = tf.convert_to_tensor(rate())
        try:
            return super().get_config()
        finally:
            vars(self).update(_learning_rate=rate, _hyper=hyper)


def _as_keras_takes_it(rate):
    """Returns a learning rate in a form that Keras 3 accepts: a float, schedule or function."""
    if isinstance(rate, (numbers.Real, np.generic)):
        return float(rate)
    if isinstance(rate, tf.Variable) or versions.is_symbolic(rate):
        return _Reading(rate)
    if tf.is_tensor(rate):
        return float(rate)
    return rate


class _Reading:
    """A learning rate function that reads a variable, or a tensor of a graph."""

    def __init__(self, source):
        self.source = source
        if hasattr(source, "assign"):
            self.assign = source.assign

    def __call__(self):
        return tf.convert_to_tensor(self.source)

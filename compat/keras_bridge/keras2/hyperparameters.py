"""The hyperparameters of bridged Keras 2 optimizers (made by `to_keras`)."""

import functools
import numbers

import numpy as np
import tensorflow as tf

from legacy_opt import versions

from ...v1_optimizers import schedules
from ..refusals import set_too_late


class Keras2Hyperparameters:
    """Mixin for OptimizerV2 that keeps the v1 optimizer's hyperparameters in Keras."""

    _graph_is_built = False  # whether a graph contains hyperparameters as constants

    def _rate_now(self):
        """Returns this training step's learning rate; None if the v1 optimizer does not use it."""
        return self._decayed_lr(tf.float32) if self._v1.settings.rates else None

    def _decayed_lr(self, var_dtype):
        schedule = self._hyper["learning_rate"]
        if not (self._v1.values.counts_updates and hasattr(schedule, "get_config")):
            return super()._decayed_lr(var_dtype)
        # Keras would cast `iterations` to a float, but v1's learning rate decays need an integer.
        self._hyper["learning_rate"] = lambda: tf.cast(schedule(self.iterations), var_dtype)
        try:
            return super()._decayed_lr(var_dtype)
        finally:
            self._hyper["learning_rate"] = schedule

    def _hyperparameters_now(self):
        """Returns a dict from the names of hyperparameters to tensors, for this training step.

        The dict contains neither the learning rate nor hyperparameters that are constants.
        """
        if self._constants and not tf.executing_eagerly():
            self._graph_is_built = True
        names = [name for name in self._v1.values.other_names() if name not in self._constants]
        return {name: tf.convert_to_tensor(self._get_hyper(name)) for name in names}

    def _set_hyper(self, name, value):
        if name in self._v1.values.exact and isinstance(value, (numbers.Real, np.generic)):
            value = value.item() if isinstance(value, np.generic) else value
            constant = name in self._constants
            if constant and self._graph_is_built:
                raise set_too_late(name, value)
            self._v1.values.set(name, value)
            if constant:
                return
        elif name in self._constants:
            self._constants.remove(name)
        super()._set_hyper(name, value)

    def _create_hypers(self):
        if not self._hypers_created:
            with tf.init_scope():
                if not tf.executing_eagerly() or versions.regroups_constant_factors():
                    # In a Session, the v1 optimizer's hyperparameters are constants, and TensorFlow
                    # regroups products that contain constants. With variables in place of the
                    # constants, the last bits would differ. So set a callable, for which Keras
                    # creates no variable.
                    for name in self._v1.values.other_names():
                        if isinstance(self._hyper[name], numbers.Real):
                            self._constants.add(name)
                            number = functools.partial(dict.get, self._v1.values.exact, name)
                            self._hyper[name] = number
        super()._create_hypers()

    def __setattr__(self, name, value):
        if self._v1 is None:  # Keras' own constructor sets attributes
            super().__setattr__(name, value)
            return
        if name not in vars(self).get("_hyper", ()):
            self._v1.values.check_settable(name)
        if name not in ("learning_rate", "lr") or not self._v1.settings.rates:
            super().__setattr__(name, value)
            return
        rate = schedules.for_keras(value, self, self._adapter.keras)
        super().__setattr__(name, rate)
        self._v1.values.set_rate(value, rate)

    def present_value(self, name):
        """See `StateOwner`."""
        value = self._serialize_hyperparameter(name)
        if tf.is_tensor(value):  # the result of a learning rate function
            value = self._adapter.keras.backend.get_value(value)
        return value

"""The Keras 3 bridge: a Keras 3 optimizer that computes what a v1 optimizer computes.

Keras keeps the books (learning rate, iterations, clipping, averages, checkpoints, replicas); the v1
optimizer, adopted, does the arithmetic. Importing this module imports Keras 3.
"""

import numbers

import numpy as np
import tensorflow as tf

from legacy_opt import checks, versions
from legacy_opt.compat import clipping, config, schedules
from legacy_opt.compat.driving import Drives
from legacy_opt.compat.keras3_state import OwnsVariables, keras, tf_variable


class BridgedOptimizer(Drives, OwnsVariables):
    """A Keras 3 optimizer around a copy of a `tf.compat.v1.train.Optimizer`.

    Made by `legacy_opt.compat.to_keras`, which describes the arguments. Variables and slots equal
    those of the v1 optimizer in a graph-mode Session bit for bit, under `tf.function` and `fit`.
    `get_slot(variable, name)` and `get_slot_names()` know slots by their v1 names. (`step_dtype` is
    the dtype of a v1 global step that a configuration tells.)
    """

    def __init__(
        self,
        optimizer,
        learning_rate=None,
        name=None,
        lr_attr=None,
        global_step_attr=None,
        fused=True,
        step_dtype=None,
        **keras_arguments,
    ):
        self._study(
            optimizer,
            learning_rate,
            keras,
            lr_attr=lr_attr,
            global_step_attr=global_step_attr,
            fused=fused,
            step_dtype=step_dtype,
        )
        _check(keras_arguments, has_rate=bool(self._rates))
        super().__init__(
            learning_rate=_as_keras_takes_it(self._v1_numbers.get("learning_rate", 0.0)),
            name=optimizer.get_name() if name is None else name,
            **keras_arguments,
        )
        self._adopt(optimizer)
        # Keras has attributes of its own by some names, as weight_decay.
        names = [name for name in self._other_names() if not hasattr(self, name)]
        for hyperparameter in self._other_names():
            if hyperparameter not in names:
                del self._v1_numbers[hyperparameter]
        vars(self)["_fixed"] -= {name for name in self._fixed if hasattr(self, name)}
        vars(self)["_hyper"] = {name: self._add_hyperparameter(name) for name in names}

    def _add_hyperparameter(self, name):
        return self.add_variable(
            shape=(),
            dtype="float32",
            initializer=keras.initializers.Constant(self._v1_numbers[name]),
            name=name,
            aggregation="only_first_replica",
        )

    # The step.

    def apply(self, grads, trainable_variables=None):
        """Updates variables, and builds the optimizer if that is still to be done.

        Args:
          grads: gradients, a list of tensors, IndexedSlices or None.
          trainable_variables: their variables; None for those that the optimizer was built with.

        Raises:
          ValueError: a variable is unknown, or the call is stateless.
        """
        if versions.in_stateless_scope():
            raise ValueError(
                "%s updates variables in place, so it has no stateless use. Call "
                "apply_gradients outside of a StatelessScope." % type(self._adopted).__name__
            )
        grads = [_Rows.of(grad) if isinstance(grad, tf.IndexedSlices) else grad for grad in grads]
        with self.alone():
            super().apply(grads, trainable_variables)

    def _clip_gradients(self, grads):
        if not (self.clipnorm or self.clipvalue or self.global_clipnorm):
            return grads
        # Keras clips each occurrence of an id by itself, and not all kinds of sparse gradients.
        pairs = clipping.summed([(grad, None) for grad in grads])
        clipped = super()._clip_gradients([_values(grad) for grad, _ in pairs])
        return [_with_values(grad, values) for (grad, _), values in zip(pairs, clipped)]

    def _distributed_tf_update_step(self, distribution, grads_and_vars, learning_rate):
        pairs = list(grads_and_vars)
        with self._driving(pairs):
            if self._whole:
                # It may advance the step or not; Keras does it anyway.
                step = tf_variable(self._iterations)
                before = step.read_value()
                self._apply_whole(pairs, step)
                step.assign(before)
                return
            self._prepare_v1()
            super()._distributed_tf_update_step(distribution, pairs, learning_rate)
            self._finish(distribution, [variable for _, variable in pairs])

    def update_step(self, gradient, variable, learning_rate):
        """Updates one variable; Keras calls it."""
        del learning_rate  # the adopted optimizer has it
        if isinstance(gradient, tf.IndexedSlices):
            self._update_sparse(gradient.values, variable, gradient.indices)
        else:
            self._update_dense(gradient, variable)

    def _current_rate(self):
        return tf.cast(tf.convert_to_tensor(self._get_current_learning_rate()), tf.float32)

    def _current_step(self):
        return tf.convert_to_tensor(self.iterations)

    # Hyperparameters and configuration.

    def _current_hyperparameters(self):
        return {name: tf.convert_to_tensor(variable) for name, variable in self._hyper.items()}

    def __getattr__(self, name):
        hyper = vars(self).get("_hyper", {})
        if name in hyper:
            return hyper[name]
        raise AttributeError("%r has no attribute %r" % (type(self).__name__, name))

    def __setattr__(self, name, value):
        if name in vars(self).get("_hyper", ()):
            value = checks.hyperparameter(name, value)
            self._number_is_set(name, value)
            self._hyper[name].assign(value)
            return
        self._check_settable(name)
        super().__setattr__(name, value)

    @property
    def learning_rate(self):
        """This step's learning rate; set to a number, schedule or function."""
        return self._get_current_learning_rate()

    @learning_rate.setter
    def learning_rate(self, rate):
        if not self._rates:
            raise AttributeError("%s has no learning rate." % type(self._adopted).__name__)
        rate = schedules.for_keras(rate, self, keras)
        OwnsVariables.learning_rate.fset(self, _as_keras_takes_it(rate))
        self._number_is_set("learning_rate", rate)

    def _present_value(self, name):
        if name != "learning_rate":
            return self._hyper[name].numpy()
        rate = OwnsVariables.get_config(self)["learning_rate"]
        return np.float32(rate) if isinstance(rate, float) else rate

    def get_config(self):
        """Returns plain data from which `from_config` makes the same optimizer, without its state.

        Raises:
          ValueError: an argument of the v1 optimizer cannot be read or is no plain data.
        """
        return self._with_v1(super().get_config())

    @classmethod
    def from_config(cls, config_, custom_objects=None):
        """Makes the optimizer that `get_config` described.

        Raises:
          ValueError: the v1 optimizer's class is not registered.
        """
        config_ = dict(config_)
        config_["optimizer"] = config.from_config(config_["optimizer"])
        return super().from_config(config_, custom_objects=custom_objects)


class _Rows(tf.IndexedSlices):
    """A sparse gradient that can be divided, which Keras does to undo its loss scale."""

    @classmethod
    def of(cls, slices):
        return cls(slices.values, slices.indices, slices.dense_shape)

    def __truediv__(self, divisor):
        return _with_values(self, self.values / tf.cast(divisor, self.values.dtype))


def _values(grad):
    return grad.values if isinstance(grad, tf.IndexedSlices) else grad


def _with_values(grad, values):
    if not isinstance(grad, tf.IndexedSlices):
        return values
    return tf.IndexedSlices(values, grad.indices, grad.dense_shape)


def _as_keras_takes_it(rate):
    """Returns a learning rate as Keras 3 takes it: a float, schedule or function."""
    if isinstance(rate, (numbers.Real, np.generic)):
        return float(rate)
    if tf.is_tensor(rate) or isinstance(rate, tf.Variable):
        return _Reading(rate)
    return rate


class _Reading:
    """A learning rate function that reads a variable or tensor."""

    def __init__(self, source):
        self.source = source

    def __call__(self):
        return tf.convert_to_tensor(self.source)


def _check(keras_arguments, has_rate):
    """Refuses what Keras would take without a word, and then not do."""
    if keras_arguments.get("decay") is not None:
        raise ValueError(
            "decay=%r: Keras 3 has no learning rate decay of that kind. Pass a schedule as "
            "learning_rate." % keras_arguments["decay"]
        )
    for name in ("clipnorm", "clipvalue", "global_clipnorm", "loss_scale_factor"):
        value = keras_arguments.get(name)
        if value is not None and not value > 0:
            raise ValueError("%s must be positive, got %r." % (name, value))
    steps = keras_arguments.get("gradient_accumulation_steps")
    if steps is not None:
        checks.positive_integer("gradient_accumulation_steps", steps)
    if keras_arguments.get("weight_decay") and not has_rate:
        raise ValueError(
            "weight_decay=%r: Keras multiplies it by the learning rate, which this optimizer does "
            "not have." % keras_arguments["weight_decay"]
        )


versions.register_with_keras_3(BridgedOptimizer)

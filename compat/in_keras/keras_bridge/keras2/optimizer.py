"""The optimizer that `to_keras` makes for Keras 2. Importing this module imports Keras 2.

Keras handles hyperparameters, slots, iterations, checkpoints and replicas; the v1 optimizer
computes the updates.
"""

from __future__ import annotations

import functools
import numbers
from typing import Any, Collection, Dict, List, Optional

import numpy as np
import tensorflow as tf

from legacy_opt import versions
from legacy_opt.core.gradient_order import writes_after
from legacy_opt.core.types import DType, GradsAndVars, Tensor, V1Optimizer, Variable
from legacy_opt.core.variable_access import after

from ...v1_optimizers import schedules
from ...v1_optimizers.study import BridgeSettings
from ...v1_optimizers.temporary_attributes import with_attributes
from .. import configuration
from ..protocol import GlobalStep
from ..refusals import set_too_late
from .state import Keras2State


class _NotYet:
    """Takes the place of `iterations`, which Keras would increment before `_finish`."""

    def assign_add(self, *_: Any, **__: Any) -> Optional[Tensor]:
        return None if tf.executing_eagerly() else tf.zeros([])


class BridgedOptimizer(Keras2State):
    """A Keras OptimizerV2 that computes updates with a copy of a `tf.compat.v1.train.Optimizer`.

    In `tf.function`, `fit` and graph-mode Keras, variables and slots are bit for bit equal to the
    variables and slots of the v1 optimizer in a Session. Slots and shared variables (such as Adam's
    powers of beta) have their v1 names. `V1InKeras` describes the arguments.
    """

    _HAS_AGGREGATE_GRAD = True  # tells fit that apply_gradients sums gradients over replicas
    _graph_is_built = False  # whether a graph contains hyperparameters as constants
    _takes_ref_step = True
    iterations: Variable

    def _init_keras(
        self,
        optimizer: V1Optimizer,
        name: Optional[str],
        global_step: GlobalStep,
        settings: BridgeSettings,
        keras_arguments: Dict[str, Any],
    ):
        self._init_state(name=optimizer.get_name() if name is None else name, **keras_arguments)
        decay = keras_arguments.get("decay")
        if decay and "decay" in settings.numbers:
            raise ValueError(
                f"decay={decay!r}: {type(optimizer).__name__} has its own decay, so Keras' "
                "learning rate decay cannot be used. Pass a learning rate schedule."
            )
        self._constants = set()  # names of hyperparameters that are constants, not variables
        if hasattr(global_step, "assign_add"):  # becomes `iterations`, as in Estimators
            self.iterations = global_step
            self._track_trackable(global_step, "iter", overwrite=True)
            versions.track_keras_variable(global_step)  # so that `fit` initializes it

    def _add_hyperparameters(self):
        if self._initial_decay:
            self._set_hyper("decay", self._initial_decay)
        for hyperparameter, value in self._v1.settings.numbers.items():
            self._set_hyper(hyperparameter, value)

    # The training step.

    def apply_gradients(
        self,
        grads_and_vars: GradsAndVars,
        *args: Any,
        decay_var_list: Optional[Collection[Variable]] = None,
        **kwargs: Any,
    ):
        """Updates variables, like the method of Keras' own optimizers.

        Args:
          grads_and_vars: (gradient, variable) pairs.
          *args: see `tf.keras.optimizers.Optimizer.apply_gradients`.
          decay_var_list: the variables to which weight decay applies, as in v1; None for all.
          **kwargs: see `*args`.

        Raises:
          TypeError: `decay_var_list` is given, but the v1 optimizer has no decoupled weight decay.
        """
        pairs = list(grads_and_vars)
        with self._decaying_only(decay_var_list):
            return super().apply_gradients(pairs, *args, **kwargs)

    def _distributed_apply(
        self,
        distribution: tf.distribute.Strategy,
        grads_and_vars: GradsAndVars,
        *args: Any,
        **kwargs: Any,
    ):
        pairs = list(grads_and_vars)
        with writes_after([grad for grad, _ in pairs]):
            rate = self._decayed_lr(tf.float32) if self._v1.settings.rates else None
            with self._v1.step(pairs, rate, self._hyperparameters_now()):
                if self._v1.settings.delegates_apply_gradients:
                    return self._v1.apply_gradients(pairs, self.iterations, kwargs.get("name"))
                iterations = self.iterations  # in other threads, the attribute may be replaced soon
                with with_attributes(self, {"_iterations": _NotYet()}):
                    done = super()._distributed_apply(distribution, pairs, *args, **kwargs)
                finished = self._v1.finish(distribution, [variable for _, variable in pairs])
            if tf.executing_eagerly():
                return iterations.assign_add(1)
            results = map(distribution.experimental_local_results, (done, finished))
            with after(*tf.nest.flatten(list(results))):
                return iterations.assign_add(1, read_value=False)

    def _resource_apply_dense(self, grad: Tensor, handle: Variable, apply_state: Any = None):
        return self._v1.update_dense(grad, handle)

    def _resource_apply_sparse_duplicate_indices(
        self, grad: Tensor, handle: Variable, indices: Tensor, **kwargs: Any
    ):
        return self._v1.update_sparse(grad, handle, indices)

    def _resource_apply_sparse(
        self, grad: Tensor, handle: Variable, indices: Tensor, apply_state: Any = None
    ):
        return self._v1.update_sparse(grad, handle, indices)

    # Hyperparameters.

    def _decayed_lr(self, var_dtype: DType) -> Tensor:
        schedule = self._hyper["learning_rate"]
        if not (self._v1.values.counts_updates and hasattr(schedule, "get_config")):
            return super()._decayed_lr(var_dtype)
        # Keras would cast `iterations` to a float, but v1's learning rate decays need an integer.
        self._hyper["learning_rate"] = lambda: tf.cast(schedule(self.iterations), var_dtype)
        try:
            return super()._decayed_lr(var_dtype)
        finally:
            self._hyper["learning_rate"] = schedule

    def _hyperparameters_now(self) -> Dict[str, Tensor]:
        """Returns this step's hyperparameters as tensors, without learning rate and constants."""
        if self._constants and not tf.executing_eagerly():
            self._graph_is_built = True
        names = [name for name in self._v1.values.other_names() if name not in self._constants]
        return {name: tf.convert_to_tensor(self._get_hyper(name)) for name in names}

    def _set_hyper(self, name: str, value: Any):
        if name in self._v1.values.exact and isinstance(value, (numbers.Real, np.generic)):
            value = value.item() if isinstance(value, np.generic) else value
            if name in self._constants and self._graph_is_built:
                raise set_too_late(name, value)
            self._v1.values.set(name, value)
            if name in self._constants:
                return
        self._constants.discard(name)
        super()._set_hyper(name, value)

    def build(self, var_list: List[Variable]):
        """Creates all variables. Keras 2.13 and 2.14 call this when they load a `.keras` file."""
        self._create_all_weights(var_list)

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
                            read = functools.partial(dict.get, self._v1.values.exact, name)
                            self._hyper[name] = read
        super()._create_hypers()

    def __setattr__(self, name: str, value: Any):
        if self._v1 is None:  # Keras' own constructor sets attributes
            super().__setattr__(name, value)
            return
        if name == "iterations" and value is self._v1.global_step:
            return  # an Estimator sets the variable that is `iterations` already
        if name not in vars(self).get("_hyper", ()):
            self._v1.values.check_settable(name)
        is_rate = name in ("learning_rate", "lr") and self._v1.settings.rates
        if not is_rate:
            super().__setattr__(name, value)
            return
        rate = schedules.for_keras(value, self, self._adapter.keras)
        super().__setattr__(name, rate)
        self._v1.values.set_rate(given=value, rate=rate)

    def present_value(self, name: str):
        value = self._serialize_hyperparameter(name)
        if tf.is_tensor(value):  # the result of a learning rate function
            return self._adapter.keras.backend.get_value(value)
        return value

    # Configuration.

    def get_config(self) -> configuration.Configuration:
        """Returns plain data from which `from_config` makes an equal optimizer without state.

        Raises:
          ValueError: an argument of the v1 optimizer cannot be read or is not plain data, or
            gradients are changed by functions.
        """
        result = configuration.with_v1(super().get_config(), self._v1, self._adapter.keras)
        if self._initial_decay:
            result["decay"] = float(self.present_value("decay"))
        self._adapter.check_saves(self, result)
        return result


versions.register_with(versions.keras_2(), BridgedOptimizer)

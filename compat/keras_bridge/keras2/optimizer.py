"""The OptimizerV2 bridge: a Keras 2 optimizer that computes what a v1 optimizer computes.

Keras keeps the books (hyperparameters, slots, iterations, checkpoints, replicas); the v1 optimizer,
adopted, does the arithmetic. Importing this module imports Keras 2.
"""

import tensorflow as tf

from legacy_opt import versions
from legacy_opt.core.variable_access import after

from ...v1_optimizers import schedules
from ..driver import Drives
from .hyperparameters import HasHypers
from .state import OwnsState


class BridgedOptimizer(HasHypers, Drives, OwnsState):
    """A Keras OptimizerV2 around a copy of a `tf.compat.v1.train.Optimizer`.

    Made by `legacy_opt.compat.to_keras`, which describes the arguments. Variables and slots equal
    those of the v1 optimizer in a graph-mode Session bit for bit, under `tf.function`, `fit` and in
    graph-mode Keras. Slots and shared variables (Adam's powers of beta) have the v1 names.
    (A configuration tells `step_dtype`, the dtype of a v1 global step; `by_updates`, whether the
    schedule was one of v1's decays; and `learning_rates`, the schedules of several optimizers
    inside.)
    """

    _HAS_AGGREGATE_GRAD = True  # tells fit that apply_gradients sums over replicas
    _kind = "Keras 2", "optimizer_v2"

    def __init__(
        self,
        optimizer,
        learning_rate=None,
        name=None,
        lr_attr=None,
        global_step_attr=None,
        fused=True,
        step_dtype=None,
        by_updates=None,
        learning_rates=None,
        **keras_arguments,
    ):
        self._study(
            optimizer,
            learning_rate,
            lr_attr=lr_attr,
            global_step_attr=global_step_attr,
            fused=fused,
            step_dtype=step_dtype,
            learning_rates=learning_rates,
            by_updates=by_updates,
        )
        super().__init__(optimizer.get_name() if name is None else name, **keras_arguments)
        self._adopt(optimizer)
        self._constants = set()  # the names of the hyperparameters that a graph holds as constants
        decay = keras_arguments.get("decay")
        if decay:
            if "decay" in self._v1_numbers:
                raise ValueError(
                    f"decay={decay!r}: {type(optimizer).__name__} has a decay of its own, so "
                    "Keras' learning rate decay has no place. Pass a learning rate schedule."
                )
            self._set_hyper("decay", decay)
        for hyperparameter, value in self._v1_numbers.items():
            self._set_hyper(hyperparameter, value)

    # The step.

    def _distributed_apply(self, distribution, grads_and_vars, *args, **kwargs):
        pairs = list(grads_and_vars)
        with self._driving(pairs):
            if self._whole:
                return self._apply_all(pairs, kwargs.get("name"))
            self._prepare_v1()
            done = super()._distributed_apply(distribution, pairs, *args, **kwargs)
            finished = self._finish(distribution, [variable for _, variable in pairs])
        if tf.executing_eagerly():
            return done
        with tf.control_dependencies([done]):
            driven = schedules.advance_steps_behind(self._v1_rates(), self)
        parts = []
        for value in [done, finished] + driven:
            for item in distribution.experimental_local_results(value):
                parts += [part for part in tf.nest.flatten(item) if part is not None]
        return tf.group(*parts)

    def _apply_all(self, pairs, name):
        """Calls the optimizer's own apply_gradients, and advances the steps that go with it."""
        if tf.executing_eagerly():
            return self._apply_whole(pairs, self.iterations, name)
        before = self.iterations.read_value()
        with after(before):
            done = self._apply_whole(pairs, self.iterations, name)
        with after(done):
            made = self.iterations.read_value() - before  # none while gradients are accumulated
            return tf.group(done, *schedules.advance_steps_behind(self._v1_rates(), self, made))

    def _resource_apply_dense(self, grad, handle, apply_state=None):
        return self._update_dense(grad, handle)

    def _resource_apply_sparse_duplicate_indices(self, grad, handle, indices, **kwargs):
        return self._update_sparse(grad, handle, indices)

    def _resource_apply_sparse(self, grad, handle, indices, apply_state=None):
        return self._update_sparse(grad, handle, indices)

    def _current_step(self):
        return self.iterations.read_value()

    def _step_variable(self):
        return self.iterations

    # Configuration.

    def get_config(self):
        """Returns plain data from which `from_config` makes the same optimizer, without its state.

        Raises:
          ValueError: an argument of the v1 optimizer cannot be read or is no plain data.
        """
        result = self._with_v1(super().get_config())
        if self._initial_decay:
            result["decay"] = self._initial_decay
        return result

    @classmethod
    def from_config(cls, config_, custom_objects=None):
        """Makes the optimizer that `get_config` described.

        Raises:
          ValueError: the v1 optimizer's class is not registered.
        """
        return super().from_config(cls._made_of(config_), custom_objects=custom_objects)

    @classmethod
    def _keras(cls):
        return versions.keras_2()


versions.register_with_keras_2(BridgedOptimizer)

"""Base classes of wrappers that keep a second value of each trained variable: its shadow."""

from __future__ import annotations

import contextlib
from typing import Any, Callable, ClassVar, List, Optional, Sequence

import numpy as np
import tensorflow as tf

from legacy_opt import versions
from legacy_opt.core import conditions, dynamic_embeddings, gradient_pairs
from legacy_opt.core.gradient_order import writes_after
from legacy_opt.core.slots import first_value
from legacy_opt.core.types import (
    GradAndVar,
    GradsAndVars,
    Operation,
    Tensor,
    V1Optimizer,
    Variable,
)
from legacy_opt.core.variable_access import WholeVariable, after
from legacy_opt.wrappers.base import OptimizerWrapper, parts_of_a_step, whole_step
from legacy_opt.wrappers.gradient_accumulation import GradientAccumulationOptimizer
from legacy_opt.wrappers.nested_optimizers import all_optimizers_in

v1 = tf.compat.v1
WHOLE_VARIABLE = WholeVariable()


class ShadowOptimizer(OptimizerWrapper):
    """Base class of wrappers that keep a shadow of each variable that has a gradient.

    The shadow is a slot of the variable's shape and dtype, which starts at the variable's value.
    Subclasses define `_shadow` (the slot's name) and `_apply_with_shadows`.
    """

    _shadow: ClassVar[str] = ""
    _op_name: ClassVar[Optional[str]] = None  # ends the names of shadows; by default, `_name`

    # In an Estimator, each replica has an optimizer, but only that of the first replica has slots.
    # The others refer to it.
    _first: Optional[ShadowOptimizer] = None

    def apply_gradients(
        self,
        grads_and_vars: GradsAndVars,
        global_step: Optional[Variable] = None,
        name: Optional[str] = None,
    ) -> Optional[Operation]:
        """Applies gradients and updates the shadows of the variables that have gradients.

        See `tf.compat.v1.train.Optimizer.apply_gradients`.
        """
        class_name = type(self).__name__
        with contextlib.ExitStack() as stack:
            pairs = stack.enter_context(gradient_pairs.protected(class_name, grads_and_vars))
            stack.enter_context(writes_after([grad for grad, _ in pairs]))
            variables = [variable for grad, variable in pairs if grad is not None]
            for each in variables:
                dynamic_embeddings.refuse(class_name, each, "it averages all rows")
            if not versions.for_a_session():
                self._shadows_of(variables)  # before the first update of the variables
            return self._apply_with_shadows(pairs, variables, global_step, name)

    def _apply_with_shadows(
        self,
        pairs: List[GradAndVar],
        variables: List[Variable],
        global_step: Optional[Variable],
        name: Optional[str],
    ) -> Optional[Operation]:
        """Applies the gradients with `_apply_inner`, and updates the shadows of `variables`."""
        raise NotImplementedError

    def _apply_inner(
        self, pairs: List[GradAndVar], global_step: Optional[Variable], name: Optional[str]
    ) -> Optional[Operation]:
        return super().apply_gradients(pairs, global_step=global_step, name=name)

    def _shadow_of(self, variable: Variable) -> Optional[Variable]:
        return (self._first or self).own_slot(variable, self._shadow)

    def _shadows_of(self, variables: Sequence[Variable]) -> List[Variable]:
        """Returns the shadows of all variables. Creates shadows that do not exist yet."""
        if not tf.distribute.has_strategy():
            return self._create_missing_shadows(variables)
        # `merge_call` calls only the function of the first replica.
        context = tf.distribute.get_replica_context()
        first, shadows = context.merge_call(
            lambda _: (self, self._create_missing_shadows(variables))
        )
        self._first = None if first is self else first
        return shadows

    def _create_missing_shadows(self, variables: Sequence[Variable]) -> List[Any]:
        with tf.init_scope():
            for variable in variables:
                if self._shadow_of(variable) is None:
                    # first_value and TensorFlow call tf.cond, which must accept ref variables.
                    with versions.v1_control_flow():
                        value = first_value(variable)
                        op_name = self._op_name or self._name
                        self._get_or_make_slot(variable, value, self._shadow, op_name)
                    self._note_new_shadow(variable)
            return [self._shadow_of(variable) for variable in variables]

    def _note_new_shadow(self, variable: Variable) -> None:
        """Called after the shadow of `variable` has been created."""

    def _create_slots(self, var_list: Sequence[Variable]) -> None:
        super()._create_slots(var_list)
        self._create_missing_shadows(var_list)


class PeriodicOptimizer(ShadowOptimizer):
    """Base class of wrappers that count steps, and update shadows only in some of the steps.

    The variable ``<name>/step``, int64, is the number of steps so far. Subclasses define `_is_due`
    and `_update`.
    """

    def __init__(self, optimizer: V1Optimizer, name: str) -> None:
        super().__init__([optimizer], name=name)
        for each in all_optimizers_in(optimizer):
            if isinstance(each, GradientAccumulationOptimizer) and each.steps > 1:
                name = type(self).__name__
                raise ValueError(
                    f"{name} cannot contain a GradientAccumulationOptimizer, because it would "
                    "count batches instead of updates. Put the accumulation outside: "
                    f"GradientAccumulationOptimizer({name}(optimizer), steps={each.steps})."
                )

    def _is_due(self, step: Tensor) -> Tensor:
        """Whether to update shadows after `step` (int64) complete steps and the current one."""
        raise NotImplementedError

    def _update(self, variable: Variable, shadow: Variable, step: Tensor) -> Any:
        """Updates a shadow, and perhaps its variable, after the inner optimizer's update."""
        raise NotImplementedError

    def _apply_with_shadows(
        self,
        pairs: List[GradAndVar],
        variables: List[Variable],
        global_step: Optional[Variable],
        name: Optional[str],
    ) -> Optional[Operation]:
        with parts_of_a_step(global_step):
            updated = self._apply_inner(pairs, None, None)
        shadows = self._shadows_of(variables)
        with after(updated):
            if not tf.distribute.has_strategy():
                finished = self._finish_step(variables, shadows)
            else:
                finished = tf.distribute.get_replica_context().merge_call(
                    lambda _, *lists: self._finish_step(*lists), args=(variables, shadows)
                )
        return whole_step([updated, finished], global_step, name or self._name)

    def _create_missing_shadows(self, variables: Sequence[Variable]) -> List[Any]:
        shadows = super()._create_missing_shadows(variables)
        with tf.init_scope():
            first = min(variables, key=lambda variable: variable.name)  # in any order of variables
            self._create_non_slot_variable(np.int64(0), self._step_name(), colocate_with=first)
        return shadows

    def _step_name(self) -> str:
        return self._name + "/step"

    def _finish_step(
        self, variables: Sequence[Variable], shadows: Sequence[Variable]
    ) -> Optional[Operation]:
        """Updates shadows if they are due, and counts the step, in all replicas."""
        count = self.own_non_slot(self._step_name())
        step = tf.maximum(count.read_value(), 0)  # a copy, because a ref variable may change

        def update_all() -> List[Any]:
            return [
                _in_all_replicas(self._update, variable, shadow, step)
                for variable, shadow in zip(variables, shadows)
            ]

        updated = conditions.run_if(self._is_due(step), update_all)
        with after(updated):
            return tf.group(updated, _in_all_replicas(WHOLE_VARIABLE.add, count, 1))


def _in_all_replicas(update: Callable[..., Any], variable: Variable, *others: Any) -> Any:
    """Updates a variable, in a strategy all components of a distributed variable."""
    if tf.distribute.has_strategy():
        return tf.distribute.get_strategy().extended.update(variable, update, args=others)
    with tf.device(variable.device):
        return update(variable, *others)

"""Base classes of wrappers that keep a second value of each trained variable: its shadow."""

from __future__ import annotations

import contextlib
from typing import Any, ClassVar, Iterator, List, Mapping, Optional, Sequence, Tuple

import tensorflow as tf

from legacy_opt import versions
from legacy_opt.core import conditions, dynamic_embeddings, gradient_pairs
from legacy_opt.core.gradient_order import writes_after
from legacy_opt.core.slots import first_value
from legacy_opt.core.types import GradsAndVars, Operation, Tensor, V1Optimizer, Variable
from legacy_opt.core.variable_access import WholeVariable, after
from legacy_opt.wrappers.base import OptimizerWrapper, parts_of_a_step, whole_step
from legacy_opt.wrappers.gradient_accumulation import GradientAccumulationOptimizer
from legacy_opt.wrappers.nested_optimizers import all_optimizers_in

WHOLE_VARIABLE = WholeVariable()


class ShadowOptimizer(OptimizerWrapper):
    """Base class of wrappers with a slot `_shadow` of each variable that has a gradient.

    A shadow has the shape and dtype of its variable, and starts at the value of the variable.
    """

    _shadow: ClassVar[str] = ""
    _op_name: ClassVar[Optional[str]] = None  # ends the names of shadows; by default, `_name`
    _collection: ClassVar[Optional[str]] = None  # of a graph: the variables that have shadows

    # An Estimator makes an optimizer in each replica, but only that of the first replica gets
    # slots. {id of a variable: (the variable, its shadow)} in the others.
    _of_first_replica: Mapping[int, Tuple[Variable, Variable]] = {}

    @contextlib.contextmanager
    def _step(self, grads_and_vars: GradsAndVars) -> Iterator[Tuple[Any, List[Variable]]]:
        """Scope of `apply_gradients`; yields checked pairs, and the variables with gradients."""
        class_name = type(self).__name__
        with contextlib.ExitStack() as stack:
            pairs = stack.enter_context(gradient_pairs.protected(class_name, grads_and_vars))
            stack.enter_context(writes_after([grad for grad, _ in pairs]))
            variables = [variable for grad, variable in pairs if grad is not None]
            for each in variables:
                dynamic_embeddings.refuse(class_name, each, "it averages all rows")
            if not versions.for_a_session():
                self._shadows_of(variables)  # before the first update of the variables
            yield pairs, variables

    def _shadow_of(self, variable: Variable) -> Optional[Variable]:
        known, shadow = self._of_first_replica.get(id(variable), (None, None))
        return shadow if known is variable else self.own_slot(variable, self._shadow)

    def _shadows_of(self, variables: Sequence[Variable]) -> List[Variable]:
        if not tf.distribute.has_strategy():
            return self._create_missing_shadows(variables)
        # `merge_call` calls only the function of the first replica.
        shadows = tf.distribute.get_replica_context().merge_call(
            lambda _: self._create_missing_shadows(variables)
        )
        pairs = {id(each): (each, shadow) for each, shadow in zip(variables, shadows)}
        self._of_first_replica = {**self._of_first_replica, **pairs}
        return shadows

    def _create_missing_shadows(self, variables: Sequence[Variable]) -> List[Any]:
        with tf.init_scope():
            for variable in variables:
                if self.own_slot(variable, self._shadow) is None:
                    # first_value and TensorFlow call tf.cond, which must accept ref variables.
                    with versions.v1_control_flow():
                        value = first_value(variable)
                        op_name = self._op_name or self._name
                        self._get_or_make_slot(variable, value, self._shadow, op_name)
                    if self._collection and versions.for_a_session():
                        tf.compat.v1.add_to_collection(self._collection, variable)
            return [self.own_slot(variable, self._shadow) for variable in variables]

    def _create_slots(self, var_list: Sequence[Variable]) -> None:
        super()._create_slots(var_list)
        self._create_missing_shadows(var_list)


class PeriodicOptimizer(ShadowOptimizer):
    """Base class of wrappers that count steps, and update shadows only in some of the steps.

    The shared variable ``<name>/step``, int64, is the number of complete steps.
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
        """Whether shadows are updated after `step` complete steps and the current one."""
        raise NotImplementedError

    def _update(self, variable: Variable, shadow: Variable, step: Tensor) -> Any:
        """Updates a shadow, after the inner optimizer has updated the variable."""
        raise NotImplementedError

    def apply_gradients(
        self,
        grads_and_vars: GradsAndVars,
        global_step: Optional[Variable] = None,
        name: Optional[str] = None,
    ) -> Optional[Operation]:
        """Applies gradients, and updates the shadows if they are due."""
        with self._step(grads_and_vars) as (pairs, variables):
            with parts_of_a_step(global_step):
                updated = super().apply_gradients(pairs)
            lists = variables, self._shadows_of(variables)
            with after(updated):
                if tf.distribute.has_strategy():
                    context = tf.distribute.get_replica_context()
                    done = context.merge_call(self._finish_step, lists)
                else:  # Keras in TensorFlow 1.15 trains outside of a replica context
                    done = self._finish_step(tf.distribute.get_strategy(), *lists)
            return whole_step([updated, done], global_step, name or self._name)

    def _create_missing_shadows(self, variables: Sequence[Variable]) -> List[Any]:
        with tf.init_scope():
            self._create_count("step", variables)
        return super()._create_missing_shadows(variables)

    def _finish_step(self, strategy: Any, variables: List[Any], shadows: List[Any]) -> Any:
        update = strategy.extended.update  # of all components of a distributed variable
        count = self._own_count("step")
        step = tf.maximum(count.read_value(), 0)  # a copy, because a ref variable may change

        def update_all() -> List[Any]:
            pairs = zip(variables, shadows)
            return [update(one, self._update, args=(other, step)) for one, other in pairs]

        updated = conditions.run_if(self._is_due(step), update_all)
        with after(updated):
            return tf.group(updated, update(count, WHOLE_VARIABLE.add, args=(1,)))

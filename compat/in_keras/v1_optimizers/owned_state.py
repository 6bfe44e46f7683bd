"""Copies v1 optimizers; the state variables of the copies belong to a Keras optimizer.

`copy_with_state_in` takes any `tf.compat.v1.train.Optimizer` and returns a copy whose class has
`StateInKeras` as first base class. `V1Driver` calls the methods of the copy that TF1 would call
(`_create_slots`, `_prepare`, `_resource_apply_*`, `_finish`), so the optimizer's own code runs.
When this code creates or looks up a state variable, `StateInKeras` gets the variable from the Keras
optimizer, which creates, names, saves and restores all state variables. The original optimizer does
not change. Optimizers nested in a wrapper are copied in the same way.
"""

from __future__ import annotations

import copy
import functools
import inspect
import numbers
import pickle
import weakref
from typing import Any, Callable, Dict, List, Mapping, Optional, Tuple, Type

import tensorflow as tf

from legacy_opt import versions
from legacy_opt.core import contract
from legacy_opt.core.graphs import assignments
from legacy_opt.core.types import DType, GradsAndVars, Shape, Tensor, V1Optimizer, Variable
from legacy_opt.core.variable_access import after
from legacy_opt.wrappers.base import OptimizerWrapper

from . import supported
from .copying import BRIDGE_ATTRIBUTES, chosen_variables, copied, copy_all
from .nesting import NestedOptimizer, NewVariable

v1 = tf.compat.v1


class StateInKeras:
    """First base class of a copied v1 optimizer; keeps the copy's state in a Keras optimizer.

    `self._driver` is the `V1Driver` that runs the copy; its `owner` is the Keras optimizer.
    """

    only_dense = True  # makes GradientAccumulationOptimizer create its sums in _create_slots

    @property
    def updates_together(self) -> bool:
        return getattr(super(), "updates_together", True) and self._driver.updates_together

    def _slot_in_keras(self, var: Variable, slot_name: str, *new: Any) -> Variable:
        """Returns the slot; `new` has the fields of a `NewVariable`."""
        key = self._state_key.slot(slot_name)
        return self._driver.owner.get_or_create_slot(var, key, NewVariable(*new))

    def _get_or_make_slot(
        self, var: Variable, val: Tensor, slot_name: str, op_name: str
    ) -> Variable:
        return self._slot_in_keras(var, slot_name, val.shape, val.dtype.base_dtype, lambda: val)

    def _get_or_make_slot_with_initializer(
        self,
        var: Variable,
        initializer: Any,
        shape: Shape,
        dtype: DType,
        slot_name: str,
        op_name: str,
    ) -> Variable:
        shape = tf.TensorShape(shape)
        if isinstance(initializer, type):
            initializer = initializer()

        def initial_value() -> Tensor:
            if shape.is_fully_defined() and not _takes_nothing(initializer):
                return initializer(shape.as_list(), dtype=dtype)
            return initializer()

        return self._slot_in_keras(var, slot_name, shape, dtype, initial_value)

    def _zeros_slot(self, var: Variable, slot_name: str, op_name: str) -> Variable:
        dtype = var.dtype.base_dtype
        zeros = functools.partial(tf.zeros, var.shape, dtype)
        return self._slot_in_keras(var, slot_name, var.shape, dtype, zeros)

    def _create_non_slot_variable(
        self, initial_value: Any, name: str, colocate_with: Any
    ) -> Variable:
        return self._driver.owner.get_or_create_shared(self._state_key, name, initial_value)

    def _get_non_slot_variable(
        self, name: str, graph: Optional[tf.Graph] = None
    ) -> Optional[Variable]:
        return _component(self._driver.owner.non_slots.get(self._state_key.shared(name)))

    def _non_slot_variables(self) -> List[Variable]:
        return list(self._driver.owner.non_slots.values())

    def own_slot(self, var: Variable, name: str) -> Optional[Variable]:
        return _component(self._driver.owner.existing_slot(var, self._state_key.slot(name)))

    def get_slot(self, var: Variable, name: str) -> Optional[Variable]:
        # A wrapper's `get_slot` calls `own_slot` first, and then asks the inner optimizers.
        is_wrapper = isinstance(self, OptimizerWrapper)
        return super().get_slot(var, name) if is_wrapper else self.own_slot(var, name)

    def decays(self, variable: Variable) -> bool:
        # v1's decay_var_list and Keras' exclude_from_weight_decay must both allow weight decay.
        return super().decays(variable) and self._driver.owner.decays(variable)

    def _given_value(self, name: str) -> Any:
        # In a training step, the attribute of the learning rate is a tensor of this step.
        is_only_leaf = self._driver.leaf is self
        number = self._driver.values.exact.get(name) if is_only_leaf else None
        return number if isinstance(number, numbers.Real) else super()._given_value(name)

    def _name_in_keras(self, variable: Variable) -> str:
        return self._driver.owner.variable_name(variable)

    def get_slot_names(self) -> List[str]:
        return sorted(self._driver.owner.get_slot_names())

    def variables(self) -> List[Variable]:
        return list(self._driver.owner.weights)

    def _slot_dict(self, slot_name: str):
        raise ValueError(
            f"{type(self).__name__} keeps its state in _slot_dict({slot_name!r}), which no "
            "Keras checkpoint would contain. Create slots with _zeros_slot, _get_or_make_slot or "
            "_get_or_make_slot_with_initializer."
        )

    def __reduce__(self) -> Tuple[Callable, Tuple[Any, ...]]:
        if chosen_variables(self):
            raise pickle.PicklingError(
                f"{type(self).__name__} was made for certain variables, which do not exist in "
                "another process. Make a new optimizer there."
            )
        return _restored, (type(self).__bases__, vars(self).copy())

    def __deepcopy__(self, memo: Dict[int, Any]) -> V1Optimizer:
        # Do not copy variables, but use the copies of variables that `memo` has already.
        for variable in chosen_variables(self):
            memo.setdefault(id(variable), variable)
        return _restored(type(self).__bases__, copy.deepcopy(vars(self), memo))


class NestedStateInKeras(StateInKeras):
    """`StateInKeras` for an optimizer that is nested in a wrapper and is not a wrapper itself.

    The wrapper calls `apply_gradients`, and `apply_gradients` calls the methods below. For an
    optimizer that is not nested, `V1Driver` does the work of these methods.
    """

    def _create_slots(self, var_list: List[Variable]):
        # TensorFlow calls this in an init_scope: set the step to a tensor of the scope's graph.
        with self._driver.with_step_of(self):
            super()._create_slots(var_list)

    def apply_gradients(
        self,
        grads_and_vars: GradsAndVars,
        global_step: Optional[Variable] = None,
        name: Optional[str] = None,
    ) -> Any:
        return apply_and_count(self, super(), grads_and_vars, global_step, name)

    def _prepare(self):
        self._driver.prepare(self, super())

    def without_bridge(self) -> Any:
        """Returns the optimizer with its own update methods, which the methods below call."""
        return super()

    def _resource_apply_dense(self, grad: Tensor, handle: Variable) -> Any:
        return self._driver.run_dense(self, super()._resource_apply_dense, grad, handle)

    def _resource_apply_sparse_duplicate_indices(
        self, grad: Tensor, handle: Variable, indices: Tensor
    ) -> Any:
        update = super()._resource_apply_sparse_duplicate_indices
        return self._driver.run_sparse(self, update, grad, handle, indices)


def apply_and_count(
    optimizer: V1Optimizer,
    bound: Any,
    pairs: GradsAndVars,
    global_step: Optional[Variable],
    name: Optional[str],
) -> Any:
    """Calls apply_gradients as a whole; increments `global_step` if the class never does.

    Some classes, such as BERT's, leave the increment to the user. Classes that skip the increment
    in some steps do so here, too. Wrappers increment the step as in a Session. `optimizer` is a
    copy that `copy_with_state_in` has made. `bound` is the object whose method is called: the
    optimizer, or its `super()`.
    """
    function = supported.own_apply_gradients(original_class(optimizer))
    given = {"global_step": global_step, "name": name}
    if function is not None:
        given = contract.accepted(function, **given)
    if function is None or global_step is None or isinstance(optimizer, OptimizerWrapper):
        return bound.apply_gradients(pairs, **given)

    def apply() -> Tuple[Any, bool]:
        before = assignments(global_step)
        done = bound.apply_gradients(pairs, **given)
        return done, assignments(global_step) != before

    if not tf.executing_eagerly():
        done, counts = apply()
    else:
        is_first = optimizer not in _counting
        before = int(global_step.read_value()) if is_first else None
        done = bound.apply_gradients(pairs, **given)
        if is_first:  # now the slots exist, so that a trace creates none
            changed = int(global_step.read_value()) != before
            _counting[optimizer] = changed or _counts_in_a_trace(optimizer, apply)
        counts = _counting[optimizer]
    if counts:
        return done
    with after(done):
        return global_step.assign_add(1, read_value=False)


# {an optimizer that runs eagerly: whether its class increments the step, at least in some steps}
_counting = weakref.WeakKeyDictionary()


def _counts_in_a_trace(optimizer: V1Optimizer, apply: Callable[[], Tuple[Any, bool]]) -> bool:
    """Whether `apply` increments the step in a graph that never runs; False after an error."""
    counts = []
    before = {name: copied(value) for name, value in vars(optimizer).items()}
    try:
        v1.wrap_function(lambda: counts.append(apply()[1]), [])
    except Exception:  # `apply` only works eagerly, where the first step was not counted
        counts.append(False)
    finally:
        vars(optimizer).clear()
        vars(optimizer).update(before)
    return counts[0]


def copy_with_state_in(
    optimizer: V1Optimizer, driver: Any, step_inputs: Mapping[int, Any]
) -> V1Optimizer:
    """Returns a copy of `optimizer` whose state belongs to the Keras optimizer `driver.owner`.

    `step_inputs` is a dict from the `id` of `optimizer`, and of each optimizer nested in it, to its
    `StepInputs`.
    """

    def make(nested: NestedOptimizer, state: Dict[str, Any]) -> V1Optimizer:
        each = nested.optimizer
        is_nested = nested.is_leaf and each is not optimizer
        base = NestedStateInKeras if is_nested else StateInKeras
        state.update(zip(BRIDGE_ATTRIBUTES, (driver, step_inputs[id(each)], nested.key)))
        return _restored((base, type(each)), state)

    return copy_all(optimizer, make)


def unbound_copy(optimizer: V1Optimizer) -> V1Optimizer:
    """Returns a copy without state, whose class is the original class of the v1 optimizer."""

    def make(nested: NestedOptimizer, state: Dict[str, Any]) -> V1Optimizer:
        cls = type(nested.optimizer)
        if isinstance(nested.optimizer, StateInKeras):
            cls = original_class(nested.optimizer)
            state = {name: value for name, value in state.items() if name not in BRIDGE_ATTRIBUTES}
        unbound = object.__new__(cls)
        vars(unbound).update(state)
        if not nested.is_leaf:
            unbound.track_wrapped()
        return unbound

    return copy_all(optimizer, make)


def original_class(bound: V1Optimizer) -> Type[V1Optimizer]:
    """Returns the class of the optimizer that `copy_with_state_in` copied."""
    return type(bound).__bases__[1]  # after `StateInKeras`


@functools.lru_cache(maxsize=None)
def _class_with_state_in_keras(base: type, original: Type[V1Optimizer]) -> type:
    # The class name stays the same, because error messages of the optimizer show it.
    return type(original.__name__, (base, original), {"__doc__": original.__doc__})


def _restored(bases: Tuple[type, ...], state: Dict[str, Any]) -> V1Optimizer:
    bound = object.__new__(_class_with_state_in_keras(*bases))
    vars(bound).update(state)
    return bound


def _takes_nothing(function: Callable) -> bool:
    try:
        return not inspect.signature(function).parameters
    except (TypeError, ValueError):
        return False


def _component(variable: Optional[Variable]) -> Optional[Variable]:
    """Returns a distributed variable's component for this replica, or any other variable."""
    if variable is None or not tf.distribute.has_strategy():
        return variable
    return versions.own_component(variable)

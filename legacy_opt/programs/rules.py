"""The formulas of `RuleOptimizer`s."""

from __future__ import annotations

import contextlib
from typing import Any, Callable, Dict, Iterator, Tuple

import tensorflow as tf

from legacy_opt.core.hyperparameters import wide_dtype
from legacy_opt.core.named_values import NamedValues
from legacy_opt.core.rule_application import checked_non_slots, checked_results
from legacy_opt.core.slots import Slot
from legacy_opt.core.types import DType, Tensor, V1Optimizer, Variable
from legacy_opt.core.update import Addition, Fading, NewValue
from legacy_opt.programs.attributes import without_eager_tensors
from legacy_opt.programs.formulas import Formulas, Tensors
from legacy_opt.programs.program import ADD, ASSIGN, FADE, UnsupportedError
from legacy_opt.programs.scalars import Given
from legacy_opt.programs.trace import Results


class RuleFormulas(Formulas):
    """The formulas of a `RuleOptimizer`."""

    def __init__(self, optimizer: V1Optimizer) -> None:
        super().__init__(optimizer)
        self._known_inputs: Dict[DType, Any] = {}

    def slot_layouts(self, variable: Variable) -> Dict[str, Slot]:
        return self.optimizer.slot_layouts(variable)

    def needs_whole_tensor(self, variable: Variable) -> bool:
        return self.optimizer.needs_whole_tensor(variable)

    def _scalars(self, dtype: DType) -> Tensors:
        return self._inputs(dtype).scalars()

    def _inputs(self, dtype: DType) -> Any:
        if dtype not in self._known_inputs:
            dtypes = dict.fromkeys([dtype, wide_dtype(dtype)])
            self._known_inputs[dtype] = self.optimizer._inputs(dtypes)
        return self._known_inputs[dtype]

    def _inputs_from(self, given: Tensors, dtype: DType) -> Any:
        """Returns the `Inputs` of a training step with the scalars in `given`.

        They have names of hyperparameters and shared variables, and the name "global_step".
        """
        optimizer = self.optimizer
        before = optimizer._rule_step
        global_step = given.get("global_step")
        # Without a given step, the optimizer has no global step, or a fixed number.
        if global_step is None and before.global_step is not None:
            global_step = tf.convert_to_tensor(optimizer.global_step_variable())
        tensors = {name: given[name] for name in before.tensors}
        step = before._replace(tensors=tensors, global_step=global_step, once={})
        optimizer._rule_step = step  # `_once_per_step` reads it
        try:
            optimizer._rule_step = step._replace(once=optimizer._once_per_step())
            inputs = optimizer._inputs(dict.fromkeys([dtype, wide_dtype(dtype)]), non_slots=False)
        finally:
            optimizer._rule_step = before
        return inputs._replace(non_slots={name: given[name] for name in optimizer.non_slots()})

    def given(self) -> Given:
        optimizer = self.optimizer
        hyperparameters = {}
        for name, tensor in optimizer._rule_step.tensors.items():
            value = getattr(optimizer, "_" + name, tensor)
            hyperparameters[name] = tensor, value, "_" + name
        shared = {name: optimizer._non_slot(name) for name in optimizer.non_slots()}
        step = optimizer._rule_step.global_step
        if step is None or isinstance(optimizer._global_step, (int, float)):
            return Given(hyperparameters, shared, global_step=None)
        return Given(hyperparameters, shared, global_step=step.dtype.base_dtype.name)

    def before(self, given: Tensors, dtype: DType) -> Tensors:
        return self._inputs_from(given, dtype).scalars()

    def after(self, given: Tensors) -> Tensors:
        optimizer = self.optimizer
        if not optimizer.non_slots():
            return {}
        values = {name: given[name] for name in optimizer.non_slots()}
        method = f"{type(optimizer).__name__}.update_non_slots"
        with _step_with_inputs(optimizer, self._inputs_from(given, tf.float32)):
            hyper = optimizer.hyperparameters(tf.float32, non_slots=False)
            found = optimizer.update_non_slots(NamedValues.of(f"values of {method}", values), hyper)
        return checked_non_slots(found, values, method)

    def function(self, variable: Variable, sparse: bool) -> Callable[..., Results]:
        optimizer = self.optimizer
        name = type(optimizer).__name__
        inputs = self._inputs(variable.dtype.base_dtype)
        try:
            rule = optimizer.pure_rule(variable, sparse)
        except NotImplementedError as error:
            raise UnsupportedError(str(error)) from None

        def update(grad: Tensor, value: Tensor, slots: Tensors, scalars: Tensors) -> Results:
            scope = _step_with_inputs(optimizer, inputs.replaced(scalars))
            with scope, without_eager_tensors(optimizer):
                hyper = optimizer.hyper_for(variable)
                result = rule(grad, value, NamedValues.of(f"slots of {name}", slots), hyper)
            change, changes = checked_results(result, value, slots, variable, name)
            slot_changes = {
                slot: _how_and_values(each)
                for slot, each in changes.items()
                if each is not slots[slot]  # otherwise, the rule returned the slot unchanged
            }
            if isinstance(change, NewValue):
                return Results(None, slot_changes, change.value)
            return Results(change, slot_changes)

        return update


@contextlib.contextmanager
def _step_with_inputs(optimizer: V1Optimizer, inputs: Any) -> Iterator[None]:
    """Scope in which an optimizer computes its hyperparameters from `inputs`."""
    before = optimizer._rule_step
    optimizer._rule_step = before.with_inputs(inputs)
    try:
        yield
    finally:
        optimizer._rule_step = before


def _how_and_values(change: Any) -> Tuple[str, Any, Any]:
    """Converts a change of a slot, as rules return it, to an item of `Results.changes`."""
    if isinstance(change, Addition):
        return ADD, change.value, None
    if isinstance(change, Fading):
        return FADE, change.value, change.factor
    return ASSIGN, change, None

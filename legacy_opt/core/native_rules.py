"""Converts optimizers' updates to pure functions, from which `legacy_opt.native` makes kernels."""

from __future__ import annotations

from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence

import tensorflow as tf

from legacy_opt import versions
from legacy_opt.core.named_values import NamedValues
from legacy_opt.core.native_attributes import values_of, without_eager_tensors
from legacy_opt.core.rule_application import checked_results
from legacy_opt.core.slots import RowSlot, ScalarSlot, Slot, TensorSlot
from legacy_opt.core.types import DType, Tensor, V1Optimizer, Variable
from legacy_opt.core.update import Addition, Fading
from legacy_opt.native.emit import emit
from legacy_opt.native.matrix_axes import axes_of
from legacy_opt.native.program import (
    ADD,
    ASSIGN,
    ELEMENT,
    FADE,
    GRADIENT,
    MATRIX_COLUMN,
    MATRIX_ROW,
    ROW,
    SCALAR,
    VALUE,
    Input,
    Program,
    UnsupportedError,
)
from legacy_opt.native.trace import Results, trace

SOME_ROWS = 7  # a number of touched rows, on which rules must not depend


class PureUpdate:
    """The update of an optimizer as a pure function, from which native kernels are generated.

    Args:
      optimizer: the optimizer.
    """

    def __init__(self, optimizer: V1Optimizer) -> None:
        self.optimizer = optimizer
        self._known_scalars: Dict[DType, Dict[str, Tensor]] = {}
        self._known_attributes: Any = None

    def slot_layouts(self, variable: Variable) -> Dict[str, Slot]:
        """Returns the slots of a variable, a dict from name to `legacy_opt.Slot`."""
        raise NotImplementedError

    def needs_whole_tensor(self, variable: Variable) -> bool:
        """Whether a sparse gradient updates all rows of a variable."""
        raise NotImplementedError

    def must_wait(self, variable: Variable) -> bool:
        """Whether a sparse update must not run before TensorFlow calls the update method."""
        del variable
        return False

    def scalars(self, dtype: DType) -> Dict[str, Tensor]:
        """Returns the scalars that `function` needs in this training step.

        Args:
          dtype: the dtype of the variables.

        Returns:
          A dict from name to tensor.
        """
        if dtype not in self._known_scalars:  # only once, because a call may add operations
            self._known_scalars[dtype] = self._scalars(dtype)
        return self._known_scalars[dtype]

    def _scalars(self, dtype: DType) -> Dict[str, Tensor]:
        """Computes the result of `scalars`."""
        raise NotImplementedError

    def kind(self, variable: Variable) -> Any:
        """Returns what the update of a variable depends on, besides `attributes` and `scalars`."""
        del variable
        return type(self)

    def attributes(self, again: bool = False) -> Any:
        """Returns the result of `native_attributes.values_of`, computed once, or `again`."""
        if again or self._known_attributes is None:
            self._known_attributes = values_of(self.optimizer)
        return self._known_attributes

    def function(self, variable: Variable, sparse: bool) -> Callable[..., Results]:
        """Returns the update of a variable, a function with four arguments.

        The arguments are the gradient, the value of the variable, a dict from slot name to value,
        and a dict with the `scalars`. If the gradient is sparse and `needs_whole_tensor` is false,
        the function gets only the touched rows of gradient, value and slots.

        Raises:
          UnsupportedError: the update cannot be compiled. The message says why.
        """
        raise NotImplementedError


class ChangedUpdate(PureUpdate):
    """Base class of updates that extend another update.

    Args:
      base: the update to extend.
    """

    def __init__(self, base: PureUpdate) -> None:
        super().__init__(base.optimizer)
        self.base = base

    def slot_layouts(self, variable: Variable) -> Dict[str, Slot]:
        return self.base.slot_layouts(variable)

    def needs_whole_tensor(self, variable: Variable) -> bool:
        return self.base.needs_whole_tensor(variable)

    def must_wait(self, variable: Variable) -> bool:
        return self.base.must_wait(variable)

    def _scalars(self, dtype: DType) -> Dict[str, Tensor]:
        return self.base.scalars(dtype)

    def kind(self, variable: Variable) -> Any:
        return type(self), self.base.kind(variable)

    def attributes(self, again: bool = False) -> Any:
        return self.base.attributes(again)

    def function(self, variable: Variable, sparse: bool) -> Callable[..., Results]:
        return self.base.function(variable, sparse)


class RuleUpdate(PureUpdate):
    """The update of a `RuleOptimizer`."""

    def slot_layouts(self, variable: Variable) -> Dict[str, Slot]:
        return self.optimizer.slot_layouts(variable)

    def needs_whole_tensor(self, variable: Variable) -> bool:
        return self.optimizer.needs_whole_tensor(variable)

    def _scalars(self, dtype: DType) -> Dict[str, Tensor]:
        return self.optimizer.scalars_of_step(dtype)

    def function(self, variable: Variable, sparse: bool) -> Callable[..., Results]:
        optimizer = self.optimizer
        name, run = type(optimizer).__name__, optimizer.native_rule(variable, sparse)

        def update(grad, value, slots, scalars):
            with optimizer.with_scalars(scalars), without_eager_tensors(optimizer):
                hyper = optimizer.hyper_for(variable)
                result = run(grad, value, NamedValues.of(f"slots of {name}", slots), hyper)
            step, changes = checked_results(result, value, slots, variable, name)
            changed = {
                slot: _change(change)
                for slot, change in changes.items()
                if change is not slots[slot]
            }
            return Results(step, changed)

        return update


class NoUpdate(PureUpdate):
    """The update of an optimizer without a pure function, and so without native kernels.

    Args:
      optimizer: the optimizer.
      reason: why there is no pure function, for the error message.
    """

    def __init__(self, optimizer: V1Optimizer, reason: str) -> None:
        super().__init__(optimizer)
        self._reason = reason

    def slot_layouts(self, variable: Variable) -> Dict[str, Slot]:
        return {}

    def needs_whole_tensor(self, variable: Variable) -> bool:
        return False

    def _scalars(self, dtype: DType) -> Dict[str, Tensor]:
        return {}

    def function(self, variable: Variable, sparse: bool) -> Callable[..., Results]:
        raise UnsupportedError(self._reason)


class PureRule(NamedTuple):
    """The update of one variable, as a function of all inputs.

    Attributes:
      inputs: the inputs: gradient, value, slots and scalars.
      shape: the shape of the variable, or of the rows that a sparse gradient touches; see `trace`.
      function: a function that takes a dict from inputs to tensors, and returns `Results`.
      by_rows: whether the function gets only the rows that a sparse gradient touches.
    """

    inputs: List[Input]
    shape: Optional[Sequence[Optional[int]]]
    function: Callable[[Dict[Input, Any]], Results]
    by_rows: bool = False

    def program(self) -> Program:
        """Traces the rule. Raises an UnsupportedError if the rule cannot be compiled."""
        found = trace(self.inputs, self.shape, self.function)
        if self.by_rows and self.shape is not None:
            known = trace(self.inputs, [SOME_ROWS, *self.shape[1:]], self.function)
            if emit(known) != emit(found):
                raise UnsupportedError("the rule depends on the number of touched rows")
        if self.by_rows and found.needs_all_elements:
            raise UnsupportedError(
                "the rule sums over all rows that a sparse gradient touches (if it should get the "
                "whole tensor, set whole_tensor = True)"
            )
        return found


def rule_of(update: PureUpdate, variable: Variable, sparse: bool) -> PureRule:
    """Returns the rule that updates a variable.

    Args:
      update: the update of the optimizer.
      variable: the variable.
      sparse: whether the gradient is sparse.

    Raises:
      UnsupportedError: the rule cannot be compiled. The message says why.
    """
    dtype = variable.dtype.base_dtype.name
    run = update.function(variable, sparse)
    by_rows = sparse and not update.needs_whole_tensor(variable)
    layouts = update.slot_layouts(variable)
    slots = [
        Input(
            name,
            level_of(layout, variable, by_rows),
            (layout.dtype or variable.dtype.base_dtype).name,
            is_slot=True,
        )
        for name, layout in layouts.items()
    ]
    scalars = [
        Input(name, SCALAR, tensor.dtype.base_dtype.name)
        for name, tensor in update.scalars(variable.dtype.base_dtype).items()
    ]
    for name in {each.name for each in slots + scalars} & {GRADIENT, VALUE}:
        raise UnsupportedError(f"a slot or hyperparameter is named {name!r}")
    grad, value = Input(GRADIENT, ELEMENT, dtype), Input(VALUE, ELEMENT, dtype)

    def rule(tensors: Dict[Input, Any]) -> Results:
        return run(
            tensors[grad],
            tensors[value],
            {each.name: tensors[each] for each in slots},
            {each.name: tensors[each] for each in scalars},
        )

    return PureRule([grad, value, *slots, *scalars], _shape(variable, by_rows), rule, by_rows)


def _shape(variable, by_rows):
    """Returns the shape that the rule of a variable sees; see `trace`."""
    shape = variable.shape
    if tf.executing_eagerly() and not shape.is_fully_defined():
        # In eager execution, a rule would see the shape of the value.
        raise UnsupportedError(f"the shape of {variable.name!r} is not fully known: {shape}")
    if shape.rank is None:
        return None
    return [None, *shape.as_list()[1:]] if by_rows else shape.as_list()


def source_of(
    make: Callable[[], Any],
    dtype: Any,
    sparse: bool,
    shape: Sequence[int] = (2, 2),
    change: Callable[[PureUpdate], PureUpdate] = lambda update: update,
) -> str:
    """Returns the C source of the kernel with which an optimizer updates a variable.

    Args:
      make: a function that creates an optimizer with the method `pure_update`. The function is
        called in a new graph with a global step.
      dtype: the dtype of the variable.
      sparse: whether the gradient is sparse.
      shape: the shape of the variable. The variable's name is "w".
      change: a function that takes the optimizer's update and returns the update to compile.

    Raises:
      UnsupportedError: there is no kernel.
      WrongTypeError: the optimizer cannot train variables of this dtype.
    """
    with tf.Graph().as_default():
        tf.compat.v1.train.get_or_create_global_step()
        optimizer = make()
        variable = tf.compat.v1.get_variable("w", shape, dtype, use_resource=True)
        optimizer._create_slots([variable])
        optimizer._prepare()
        return emit(rule_of(change(optimizer.pure_update()), variable, sparse).program())


def level_of(layout: Any, variable: Any, by_rows: bool) -> int:
    """Returns the level of a slot: `SCALAR`, `ROW` or `ELEMENT`.

    Args:
      layout: the layout of the slot.
      variable: the variable.
      by_rows: whether the kernel updates only the rows of a sparse gradient.

    Raises:
      UnsupportedError: kernels cannot have a slot of this layout.
    """
    if getattr(layout, "is_flat_element", False):
        # In a dense update, the partitions share an element of the first partition. Kernels cannot.
        if not by_rows and versions.part_of(variable) is not None:
            raise UnsupportedError(
                f"kernels do not support {type(layout).__name__} for a partition"
                " with a dense gradient"
            )
        return ROW if by_rows else SCALAR
    levels = [(Slot, ELEMENT), (ScalarSlot, SCALAR), (RowSlot, ROW)]
    rank = variable.shape.rank
    if isinstance(layout, TensorSlot) and not by_rows and rank is not None:
        axes = layout.axes(variable)
        for level in (MATRIX_ROW, MATRIX_COLUMN) if rank > 1 else ():
            shape = [variable.shape[axis] for axis in axes]
            if axes == axes_of(level, rank) and layout.shape.as_list() == shape:
                levels.append((TensorSlot, level))
    for known, level in levels:
        is_possible = isinstance(layout, known) and (by_rows or level != ROW)
        # Kernels do not call a layout's methods, so a kernel would ignore overridden methods.
        if is_possible and all(
            getattr(type(layout), name) is getattr(known, name)
            for name in ("read", "assign", "add")
        ):
            return level
    raise UnsupportedError(f"kernels do not support the slot layout {type(layout).__name__}")


def refuse_overridden(optimizer: Any, base: type, *names: str) -> None:
    """Raises an UnsupportedError if an optimizer's class overrides one of the named methods."""
    cls = type(optimizer)
    found = [name for name in names if getattr(cls, name) is not getattr(base, name)]
    if found:
        raise UnsupportedError(f"{cls.__name__} overrides {' and '.join(found)}")


def _change(change):
    if isinstance(change, Addition):
        return ADD, change.value, None
    if isinstance(change, Fading):
        return FADE, change.value, change.factor
    return ASSIGN, change, None

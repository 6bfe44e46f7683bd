"""Formulas: updates of variables as pure functions, from which kernels are compiled."""

from __future__ import annotations

import contextlib
from typing import (
    Any,
    Callable,
    Dict,
    Iterator,
    List,
    Mapping,
    NamedTuple,
    Optional,
    Sequence,
    Tuple,
)

import tensorflow as tf

from legacy_opt import versions
from legacy_opt.core.hyperparameters import wide_dtype
from legacy_opt.core.named_values import NamedValues
from legacy_opt.core.rule_application import checked_results
from legacy_opt.core.slots import RowSlot, ScalarSlot, Slot, TensorSlot
from legacy_opt.core.types import DType, Tensor, V1Optimizer, Variable
from legacy_opt.core.update import Addition, Fading
from legacy_opt.native.compiler.emit import emit
from legacy_opt.programs.attributes import values_of, without_eager_tensors
from legacy_opt.programs.matrix_axes import axes_of
from legacy_opt.programs.program import (
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
from legacy_opt.programs.trace import Results, trace

Tensors = Dict[str, Tensor]  # by the name of a slot or scalar
SOME_ROWS = 7  # a number of touched rows, on which rules must not depend


class Dependencies(NamedTuple):
    """What the update of a variable depends on, besides the values of its inputs.

    While this does not change, the program that was traced is up to date.

    Attributes:
      flags: what differs from variable to variable and from step to step, and is hashable.
      dtypes: the names and dtypes of the scalars.
      attributes: the attributes of the optimizer, which a rule may read in Python.
    """

    flags: Any
    dtypes: Tuple[Tuple[str, str], ...]
    attributes: Any


class Formula(NamedTuple):
    """The update of one variable as data: all that is traced, checked and compiled.

    Attributes:
      inputs: the inputs: gradient, value, slots and scalars (hyperparameters of the step).
      shape: the shape of the variable, or of the rows that a sparse gradient touches; see `trace`.
      function: a function that takes a dict from inputs to tensors, and returns `Results`. It
        contains the rule with its rounding.
      by_rows: whether the function gets only the rows that a sparse gradient touches.
      layouts: the slots, a dict from name to `legacy_opt.Slot`.
      dependencies: the `Dependencies`; None if there are none.
    """

    inputs: List[Input]
    shape: Optional[Sequence[Optional[int]]]
    function: Callable[[Dict[Input, Any]], Results]
    by_rows: bool = False
    layouts: Mapping[str, Slot] = {}
    dependencies: Optional[Dependencies] = None

    def program(self) -> Program:
        """Traces the function. Raises an UnsupportedError if it cannot be compiled."""
        program = trace(self.inputs, self.shape, self.function)
        if self.by_rows and self.shape is not None:
            with_some_rows = trace(self.inputs, [SOME_ROWS, *self.shape[1:]], self.function)
            if emit(with_some_rows) != emit(program):
                raise UnsupportedError("the rule depends on the number of touched rows")
        if self.by_rows and program.needs_all_elements:
            raise UnsupportedError(
                "the rule sums over all rows that a sparse gradient touches (if it should get the "
                "whole tensor, set whole_tensor = True)"
            )
        return program


class Formulas:
    """The formulas of an optimizer in one training step.

    Args:
      optimizer: the optimizer.
    """

    def __init__(self, optimizer: V1Optimizer) -> None:
        self.optimizer = optimizer
        self._known_scalars: Dict[DType, Tensors] = {}
        self._known_attributes: Any = None

    def slot_layouts(self, variable: Variable) -> Dict[str, Slot]:
        """Returns the slots of a variable, a dict from name to `legacy_opt.Slot`."""
        del variable
        return {}

    def needs_whole_tensor(self, variable: Variable) -> bool:
        """Whether a sparse gradient updates all rows of a variable."""
        del variable
        return False

    def must_wait(self, variable: Variable) -> bool:
        """Whether TensorFlow operations must change a variable before a sparse update."""
        del variable
        return False

    def scalars(self, dtype: DType) -> Tensors:
        """Returns the scalars that `function` needs in this training step.

        Args:
          dtype: the dtype of the variables.

        Returns:
          A dict from name to tensor.
        """
        if dtype not in self._known_scalars:  # only once, because a call may add operations
            self._known_scalars[dtype] = self._scalars(dtype)
        return self._known_scalars[dtype]

    def _scalars(self, dtype: DType) -> Tensors:
        """Computes the result of `scalars`."""
        del dtype
        return {}

    def scalar_inputs(self, dtype: DType) -> List[Input]:
        """Returns the `Input` of each of the `scalars`."""
        tensors = self.scalars(dtype)
        return [Input(name, SCALAR, each.dtype.base_dtype.name) for name, each in tensors.items()]

    def flags(self, variable: Variable) -> Any:
        """Returns what the update of a variable depends on, besides attributes and `scalars`."""
        del variable
        return type(self)

    def attributes(self, again: bool = False) -> Any:
        """Returns the result of `attributes.values_of`, computed once, or `again`."""
        if again or self._known_attributes is None:
            self._known_attributes = values_of(self.optimizer)
        return self._known_attributes

    def dependencies(self, variable: Variable, again: bool = False) -> Dependencies:
        """Returns the `Dependencies` of a variable's update in this training step.

        Args:
          variable: the variable.
          again: whether to read the attributes of the optimizer again in this step.
        """
        scalars = self.scalars(variable.dtype.base_dtype)
        dtypes = tuple((name, each.dtype.base_dtype.name) for name, each in scalars.items())
        return Dependencies(self.flags(variable), dtypes, self.attributes(again))

    def function(self, variable: Variable, sparse: bool) -> Callable[..., Results]:
        """Returns the update of a variable, a function with four arguments.

        The arguments are the gradient, the value of the variable, a dict from slot name to value,
        and a dict with the `scalars`. If the gradient is sparse and `needs_whole_tensor` is false,
        the function gets only the touched rows of gradient, value and slots.

        Raises:
          UnsupportedError: the update cannot be compiled. The message says why.
        """
        raise NotImplementedError

    def formula_of(self, variable: Variable, sparse: bool) -> Formula:
        """Returns the formula of a variable.

        Args:
          variable: the variable.
          sparse: whether the gradient is sparse.

        Raises:
          UnsupportedError: the update cannot be compiled. The message says why.
        """
        dtype = variable.dtype.base_dtype
        update = self.function(variable, sparse)
        by_rows = sparse and not self.needs_whole_tensor(variable)
        layouts = self.slot_layouts(variable)
        slots = []
        for name, layout in layouts.items():
            level, slot_dtype = level_of(layout, variable, by_rows), layout.dtype or dtype
            slots.append(Input(name, level, slot_dtype.name, is_slot=True))
        scalars = self.scalar_inputs(dtype)
        for name in {each.name for each in slots + scalars} & {GRADIENT, VALUE}:
            raise UnsupportedError(f"a slot or hyperparameter is named {name!r}")
        grad = Input(GRADIENT, ELEMENT, dtype.name)
        value = Input(VALUE, ELEMENT, dtype.name)

        def function(tensors: Dict[Input, Any]) -> Results:
            return update(
                tensors[grad],
                tensors[value],
                {each.name: tensors[each] for each in slots},
                {each.name: tensors[each] for each in scalars},
            )

        inputs = [grad, value, *slots, *scalars]
        shape = _shape(variable, by_rows)
        return Formula(inputs, shape, function, by_rows, layouts, self.dependencies(variable))


class ChangedFormulas(Formulas):
    """Base class of formulas that extend other formulas.

    Args:
      base: the formulas to extend.
    """

    def __init__(self, base: Formulas) -> None:
        super().__init__(base.optimizer)
        self.base = base

    def slot_layouts(self, variable: Variable) -> Dict[str, Slot]:
        return self.base.slot_layouts(variable)

    def needs_whole_tensor(self, variable: Variable) -> bool:
        return self.base.needs_whole_tensor(variable)

    def must_wait(self, variable: Variable) -> bool:
        return self.base.must_wait(variable)

    def _scalars(self, dtype: DType) -> Tensors:
        return self.base.scalars(dtype)

    def flags(self, variable: Variable) -> Any:
        return type(self), self.base.flags(variable)

    def attributes(self, again: bool = False) -> Any:
        return self.base.attributes(again)

    def function(self, variable: Variable, sparse: bool) -> Callable[..., Results]:
        return self.base.function(variable, sparse)


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

    def inputs_from(self, given: Mapping[str, Tensor], dtype: DType) -> Any:
        """Returns the `Inputs` of a training step with other scalars.

        Args:
          given: a dict from the names of hyperparameters, shared variables and "global_step" to
            tensors.
          dtype: the dtype of the variables.
        """
        optimizer, before = self.optimizer, self.optimizer._rule_step
        global_step = given.get("global_step")
        if global_step is None and before.global_step is not None:  # a number: it does not change
            global_step = tf.convert_to_tensor(optimizer.global_step_variable())
        tensors = {name: given[name] for name in before.tensors}
        step = before._replace(tensors=tensors, global_step=global_step, once={})
        optimizer._rule_step = step
        try:
            optimizer._rule_step = step._replace(once=optimizer._once_per_step())
            inputs = optimizer._inputs(dict.fromkeys([dtype, wide_dtype(dtype)]), non_slots=False)
        finally:
            optimizer._rule_step = before
        return inputs._replace(non_slots={name: given[name] for name in optimizer.non_slots()})

    def step_from(self, given: Mapping[str, Tensor], dtype: DType) -> Any:
        """Returns a scope in which hyperparameters are computed from other scalars.

        The arguments are those of `inputs_from`.
        """
        return _step_with_inputs(self.optimizer, self.inputs_from(given, dtype))

    def function(self, variable: Variable, sparse: bool) -> Callable[..., Results]:
        optimizer = self.optimizer
        name = type(optimizer).__name__
        inputs = self._inputs(variable.dtype.base_dtype)
        try:
            rule = optimizer.pure_rule(variable, sparse)
        except NotImplementedError as error:
            raise UnsupportedError(str(error)) from None

        def update(grad: Tensor, value: Tensor, slots: Tensors, scalars: Tensors) -> Results:
            step = _step_with_inputs(optimizer, inputs.replaced(scalars))
            with step, without_eager_tensors(optimizer):
                hyper = optimizer.hyper_for(variable)
                result = rule(grad, value, NamedValues.of(f"slots of {name}", slots), hyper)
            change, changes = checked_results(result, value, slots, variable, name)
            slot_changes = {
                slot: _how_and_values(each)
                for slot, each in changes.items()
                if each is not slots[slot]
            }
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


class NoFormulas(Formulas):
    """The formulas of an optimizer that has none, and so no kernels.

    Args:
      optimizer: the optimizer.
      reason: why there is no pure function, for the error message.
    """

    def __init__(self, optimizer: V1Optimizer, reason: str) -> None:
        super().__init__(optimizer)
        self._reason = reason

    def function(self, variable: Variable, sparse: bool) -> Callable[..., Results]:
        raise UnsupportedError(self._reason)


def _shape(variable: Variable, by_rows: bool) -> Optional[List[Optional[int]]]:
    """Returns the shape that the rule of a variable sees; see `trace`."""
    shape = variable.shape
    if tf.executing_eagerly() and not shape.is_fully_defined():
        # In eager execution, a rule would see the shape of the value.
        raise UnsupportedError(f"the shape of {variable.name!r} is not fully known: {shape}")
    if shape.rank is None:
        return None
    return [None, *shape.as_list()[1:]] if by_rows else shape.as_list()


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
    for supported_class, level in levels:
        is_possible = isinstance(layout, supported_class) and (by_rows or level != ROW)
        # Kernels do not call a layout's methods, so a kernel would ignore overridden methods.
        if is_possible and all(
            getattr(type(layout), name) is getattr(supported_class, name)
            for name in ("read", "assign", "add")
        ):
            return level
    raise UnsupportedError(f"kernels do not support the slot layout {type(layout).__name__}")


def _how_and_values(change: Any) -> Tuple[str, Any, Any]:
    """Converts a change of a slot, as rules return it, to an item of `Results.changes`."""
    if isinstance(change, Addition):
        return ADD, change.value, None
    if isinstance(change, Fading):
        return FADE, change.value, change.factor
    return ASSIGN, change, None

"""Formulas: updates of variables as pure functions, from which kernels are compiled."""

from __future__ import annotations

from typing import Any, Callable, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple

import tensorflow as tf

from legacy_opt import versions
from legacy_opt.core.slots import RowSlot, ScalarSlot, Slot, TensorSlot
from legacy_opt.core.types import DType, Tensor, V1Optimizer, Variable
from legacy_opt.programs import program as programs
from legacy_opt.programs.attributes import values_of
from legacy_opt.programs.matrix_axes import axes_of
from legacy_opt.programs.program import Input, Program, UnsupportedError
from legacy_opt.programs.scalars import Given
from legacy_opt.programs.trace import Results, trace

Tensors = Dict[str, Tensor]  # by the name of a slot or scalar
SOME_ROWS = 7  # a number of touched rows, on which rules must not depend


class Dependencies(NamedTuple):
    """The state on which the update of a variable depends, besides the values of the inputs.

    While this state does not change, the program that was traced is up to date.
    """

    flags: Any  # the result of `Formulas.flags`, which is hashable
    dtypes: Tuple[Tuple[str, str], ...]  # the names and dtypes of the scalars
    attributes: Any  # the optimizer's attributes, which a rule may read in Python


class PureUpdate(NamedTuple):
    """The update of one variable as data, which is traced, checked and compiled."""

    inputs: List[Input]  # gradient, value, slots and scalars (hyperparameters of the step)
    shape: Optional[Sequence[Optional[int]]]  # of the variable, or of its touched rows; see `trace`
    function: Callable[[Dict[Input, Any]], Results]  # calls the rule; rounds as the optimizer
    by_rows: bool = False  # whether the function gets only the rows that a sparse gradient touches
    layouts: Mapping[str, Slot] = {}
    dependencies: Optional[Dependencies] = None

    @property
    def slots(self) -> List[Input]:
        return [each for each in self.inputs if each.is_slot]

    def program(self) -> Program:
        """Traces the function. Raises an UnsupportedError if it cannot be compiled."""
        program = trace(self.inputs, self.shape, self.function, self.by_rows)
        if self.by_rows and self.shape is not None:
            some_rows = [SOME_ROWS, *self.shape[1:]]
            with_some_rows = trace(self.inputs, some_rows, self.function, self.by_rows)
            if repr(with_some_rows) != repr(program):  # as texts, because NaN does not equal NaN
                raise UnsupportedError("the rule depends on the number of touched rows")
        if self.by_rows and program.needs_all_elements:
            raise UnsupportedError(
                "the rule sums over all rows that a sparse gradient touches (if it should get the "
                "whole tensor, set whole_tensor = True)"
            )
        return program


class Formulas:
    """The formulas of an optimizer in one training step."""

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
        """Returns the scalars that `function` needs for variables of `dtype` in this step."""
        if dtype not in self._known_scalars:  # only once, because a call may add operations
            self._known_scalars[dtype] = self._scalars(dtype)
        return self._known_scalars[dtype]

    def _scalars(self, dtype: DType) -> Tensors:
        del dtype
        return {}

    def scalar_inputs(self, dtype: DType) -> List[Input]:
        """Returns the `Input` of each of the `scalars`."""
        tensors = self.scalars(dtype)
        dtypes = {name: each.dtype.base_dtype.name for name, each in tensors.items()}
        return [Input(name, programs.SCALAR, dtypes[name]) for name in dtypes]

    def flags(self, variable: Variable) -> Any:
        """Returns the state for `Dependencies` that is not in the attributes or `scalars`."""
        del variable
        return type(self)

    def attributes(self, again: bool = False) -> Any:
        """Returns the result of `attributes.values_of`, computed once, or `again`."""
        if again or self._known_attributes is None:
            self._known_attributes = values_of(self.optimizer)
        return self._known_attributes

    def dependencies(self, variable: Variable, again: bool = False) -> Dependencies:
        """Returns the `Dependencies` of an update. If `again`, attributes are read once more."""
        scalars = self.scalars(variable.dtype.base_dtype)
        dtypes = tuple((name, each.dtype.base_dtype.name) for name, each in scalars.items())
        return Dependencies(self.flags(variable), dtypes, self.attributes(again))

    def function(self, variable: Variable, sparse: bool) -> Callable[..., Results]:
        """Returns the update of a variable, a function with four arguments.

        The arguments are the gradient, the value of the variable, a dict from slot name to value,
        and a dict with the `scalars`. If the gradient is sparse and `needs_whole_tensor` is false,
        the function gets only the touched rows of gradient, value and slots. Raises an
        UnsupportedError if the update cannot be compiled.
        """
        raise NotImplementedError

    def given(self) -> Given:
        """Returns what records compute `scalars` from, or raises an UnsupportedError."""
        raise UnsupportedError(f"{type(self).__name__} have no record")

    def before(self, given: Tensors, dtype: DType) -> Tensors:
        """Computes the result of `scalars` from the `given` scalars."""
        raise NotImplementedError

    def after(self, given: Tensors) -> Tensors:
        """Computes the new values of the shared variables after a training step."""
        del given
        return {}

    def formula_of(self, variable: Variable, sparse: bool) -> PureUpdate:
        """Returns the formula of a variable, or raises an UnsupportedError."""
        dtype = variable.dtype.base_dtype
        update = self.function(variable, sparse)
        by_rows = sparse and not self.needs_whole_tensor(variable)
        layouts = self.slot_layouts(variable)
        slots = []
        for name, layout in layouts.items():
            level = level_of_slot(layout, variable, by_rows)
            slot_dtype = layout.dtype or dtype
            slots.append(Input(name, level, slot_dtype.name, is_slot=True))
        scalars = self.scalar_inputs(dtype)
        for name in {each.name for each in slots + scalars} & {programs.GRADIENT, programs.VALUE}:
            raise UnsupportedError(f"a slot or hyperparameter is named {name!r}")
        grad = Input(programs.GRADIENT, programs.ELEMENT, dtype.name)
        value = Input(programs.VALUE, programs.ELEMENT, dtype.name)

        def function(tensors: Dict[Input, Any]) -> Results:
            return update(
                tensors[grad],
                tensors[value],
                {each.name: tensors[each] for each in slots},
                {each.name: tensors[each] for each in scalars},
            )

        inputs = [grad, value, *slots, *scalars]
        shape = _shape(variable, by_rows)
        return PureUpdate(inputs, shape, function, by_rows, layouts, self.dependencies(variable))


class ChangedFormulas(Formulas):
    """Base class of formulas that extend the formulas `base`."""

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


class NoFormulas(Formulas):
    """Stands for the formulas of an optimizer without formulas and kernels, for a `reason`."""

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


def level_of_slot(layout: Any, variable: Any, by_rows: bool) -> str:
    """Returns the level of a slot, one of `LEVELS`; `by_rows` is whether only rows are updated.

    Raises an UnsupportedError if kernels cannot have a slot of this layout.
    """
    count_kind = getattr(layout, "count_kind", None)
    if count_kind is not None:
        # A dense update of a partition also counts in the first partition. Kernels cannot do this.
        if not by_rows and versions.part_of(variable) is not None:
            raise UnsupportedError(
                f"kernels do not support {type(layout).__name__} for a partition with a dense "
                "gradient"
            )
        return programs.level_in_program(count_kind, by_rows)
    levels = [(Slot, programs.ELEMENT), (ScalarSlot, programs.SCALAR), (RowSlot, programs.ROW)]
    rank = variable.shape.rank
    if isinstance(layout, TensorSlot) and not by_rows and rank is not None and rank > 1:
        axes = layout.axes(variable)
        for level in (programs.MATRIX_ROW, programs.MATRIX_COLUMN):
            shape = [variable.shape[axis] for axis in axes]
            if axes == axes_of(level, rank) and layout.shape.as_list() == shape:
                levels.append((TensorSlot, level))
    methods = ("read", "assign", "add")
    for supported_class, level in levels:
        if not isinstance(layout, supported_class) or (level == programs.ROW and not by_rows):
            continue
        # Kernels do not call a layout's methods, so a kernel would ignore overridden methods.
        if all(getattr(type(layout), name) is getattr(supported_class, name) for name in methods):
            return level
    raise UnsupportedError(f"kernels do not support the slot layout {type(layout).__name__}")

"""Slots: what an optimizer remembers about each variable, and how a rule sees it.

A slot is declared once, by its starting value, dtype and layout. The layout says which shape is
stored and what a rule gets to see of it, for a dense gradient (the whole variable) and for sparse
gradients (the touched rows), so that one rule serves both: see `Slot`.
"""

from __future__ import annotations

from typing import Callable, Iterable, Optional, Tuple

import tensorflow as tf

from legacy_opt import versions
from legacy_opt.core import argument_checks
from legacy_opt.core.types import (
    DType,
    DTypeLike,
    Hyperparameter,
    Operation,
    Shape,
    Tensor,
    TensorShape,
    V1Optimizer,
    Variable,
)
from legacy_opt.core.variable_access import Access, is_resource


class Slot:
    """A slot of the variable's own shape: one value per element.

    There are four layouts. A rule for n touched rows (a sparse gradient) sees only theirs:

    ============  ====================  ====================  ===================
    layout        stored shape          seen by a dense rule  seen by n rows
    ============  ====================  ====================  ===================
    `Slot`        the variable's        the variable's        ``[n, …]``
    `RowSlot`     ``[rows]``            ``[rows, 1, …]``      ``[n, 1, …]``
    `ScalarSlot`  ``[]``                ``[]``                ``[]``
    `TensorSlot`  any, given            as stored             as stored
    ============  ====================  ====================  ===================

    Args:
      initial_value: a number, scalar tensor or variable, or a callable that returns one; every
        element starts there.
      dtype: the slot's dtype; None takes the variable's.
      op_name: what the slot variable is called, under the variable's name; None takes the
        optimizer's name. With one, slots of partitioned variables are saved part by part
        (`w/part_0/adam_m`), as by optimizers that make their variables themselves.
    """

    def __init__(
        self,
        initial_value: Hyperparameter = 0,
        dtype: Optional[DTypeLike] = None,
        op_name: Optional[str] = None,
    ) -> None:
        self.initial_value = initial_value
        self.dtype = None if dtype is None else tf.as_dtype(dtype)
        self.op_name = op_name

    def static_shape(self, variable: Variable) -> TensorShape:
        """Returns the stored `tf.TensorShape`, as far as it is known before the graph runs."""
        return variable.shape

    def dynamic_shape(self, variable: Variable) -> Tensor:
        """Returns the stored shape as a tensor, for variables without a static shape."""
        return tf.shape(first_value(variable))

    def axes(self, variable: Variable) -> Optional[Tuple[int, ...]]:
        """Returns the axes of the variable that the slot's axes are, in their order, a tuple.

        It decides what a checkpoint holds of a partitioned variable's slots. Those with the axis
        along which the variable is cut are slices of one tensor, and a graph with other partitions
        restores them. Others belong to their part alone: a graph with other partitions does not
        find them. None means one slot for all parts.
        """
        return tuple(range(variable.shape.rank))

    def create(
        self, optimizer: V1Optimizer, variable: Variable, slot_name: str, op_name: str
    ) -> Variable:
        """Finds or makes the slot variable, through TF1's own slot machinery."""
        dtype = self.dtype or variable.dtype.base_dtype
        shape = self.static_shape(variable)
        initializer = self.initializer(variable, shape, dtype)
        slot = optimizer._get_or_make_slot_with_initializer(
            variable, initializer, shape, dtype, slot_name, self.op_name or op_name
        )
        if versions.part_of(variable) is not None:
            part_by_part = self.op_name is not None
            versions.fit_slice_info(slot, variable, self.axes(variable), part_by_part)
        return slot

    def initializer(
        self, variable: Variable, shape: TensorShape, dtype: DType
    ) -> Callable[..., Tensor]:
        """Returns what makes the slot's first value.

        Args:
          variable: the variable that it is a slot of.
          shape: the stored `tf.TensorShape`, as far as it is known.
          dtype: the stored dtype.
        """
        value, known = self.initial_value, shape.is_fully_defined()
        if known and not (callable(value) or argument_checks.is_tensor_like(value)):
            return tf.compat.v1.constant_initializer(value)  # which is given the dtype

        def fill(*_, **__):
            return tf.fill(shape if known else self.dynamic_shape(variable), self.start(dtype))

        return fill

    def start(self, dtype: DType) -> Tensor:
        """Returns the initial value as a tensor."""
        value = self.initial_value
        if argument_checks.is_function(value):
            value = value()
        return (
            tf.cast(value, dtype)
            if argument_checks.is_tensor_like(value)
            else tf.constant(value, dtype)
        )

    def read(self, slot: Variable, access: Access, like: Tensor) -> Tensor:
        """Returns what the rule sees of `slot`; `like` is the gradient, for its rank."""
        del like
        return access.read(slot)

    def assign(self, slot: Variable, access: Access, value: Tensor) -> Optional[Operation]:
        """Writes back what `read` showed; returns an op (None when executing eagerly)."""
        return access.assign(slot, value)

    def add(self, slot: Variable, access: Access, value: Tensor) -> Optional[Operation]:
        """Adds to what `read` showed; returns an op (None when executing eagerly)."""
        return access.add(slot, value)


class RowSlot(Slot):
    """One value per row of the variable (one per variable if it is a scalar)."""

    def axes(self, variable: Variable) -> Tuple[int, ...]:
        return (0,)

    def static_shape(self, variable: Variable) -> TensorShape:
        return variable.shape if variable.shape.rank is None else variable.shape[:1]

    def dynamic_shape(self, variable: Variable) -> Tensor:
        return tf.shape(first_value(variable))[:1]

    def read(self, slot: Variable, access: Access, like: Tensor) -> Tensor:
        return as_column(access.read(slot), like)

    def assign(self, slot: Variable, access: Access, value: Tensor) -> Optional[Operation]:
        return access.assign(slot, self._flat(slot, value))

    def add(self, slot: Variable, access: Access, value: Tensor) -> Optional[Operation]:
        return access.add(slot, self._flat(slot, value))

    @staticmethod
    def _flat(slot, value):
        scalar = slot.shape.rank == 0
        # A Reshape that changes nothing is removed from a Session's graph, and what it waits for
        # with it: the write would not wait for the reads any more.
        if value.shape.rank == (0 if scalar else 1):
            return value
        return tf.reshape(value, [] if scalar else [-1])


class TensorSlot(Slot):
    """A tensor of a given shape per variable, seen whole by dense and sparse rules alike.

    Args:
      shape: the stored shape, fully defined.
      initial_value: a number; every element starts there.
      dtype: the slot's dtype; None takes the variable's.
      axes: the axes of the variable that the slot's axes are, as (0,) for one value per row, where
        that is so: see `Slot.axes`. By default each part of a partitioned variable has a tensor
        of its own, which only a graph with the same partitions restores.

    Raises:
      ValueError: not all of the shape is known.
    """

    def __init__(
        self,
        shape: Shape,
        initial_value: float = 0,
        dtype: Optional[DTypeLike] = None,
        axes: Iterable[int] = (),
    ) -> None:
        super().__init__(initial_value, dtype)
        self.shape = tf.TensorShape(shape)
        self._axes = tuple(axes)
        if not self.shape.is_fully_defined():
            raise ValueError(f"TensorSlot: shape must be fully defined, got {self.shape}")

    def static_shape(self, variable: Variable) -> TensorShape:
        return self.shape

    def axes(self, variable: Variable) -> Tuple[int, ...]:
        return self._axes

    def read(self, slot: Variable, access: Access, like: Tensor) -> Tensor:
        return access.whole.read(slot)

    def assign(self, slot: Variable, access: Access, value: Tensor) -> Optional[Operation]:
        return access.whole.assign(slot, value)

    def add(self, slot: Variable, access: Access, value: Tensor) -> Optional[Operation]:
        return access.whole.add(slot, value)


class ScalarSlot(TensorSlot):
    """One value per variable.

    Args:
      initial_value: the number it starts at.
      dtype: the slot's dtype; None takes the variable's.
    """

    def __init__(self, initial_value: float = 0, dtype: Optional[DTypeLike] = None) -> None:
        super().__init__([], initial_value, dtype)


def first_value(variable):
    """Returns a variable's value; the initial one while a TF1 graph's initializers all run."""
    if versions.building() != versions.GRAPH:
        return variable.read_value()
    if tf.compat.v1.control_flow_v2_enabled() and not is_resource(variable):
        return variable.initial_value  # the branches below would read the variable beforehand
    initialized = tf.compat.v1.is_variable_initialized(variable)
    return tf.compat.v1.cond(initialized, variable.read_value, lambda: variable.initial_value)


def as_column(values, like):
    """Reshapes `values` of shape ``[n]`` to ``[n, 1, …]``, as many axes as `like` has."""
    if like.shape.rank is not None:
        return tf.reshape(values, [-1] + [1] * (like.shape.rank - 1)) if like.shape.rank else values
    ones = tf.ones([tf.maximum(tf.rank(like) - 1, 0)], tf.int32)
    return tf.reshape(values, tf.concat([tf.shape(values)[:1], ones], axis=0))


def checked_layouts(optimizer, layouts):
    """Returns a dict from slot name to `Slot`, if it is one.

    Raises:
      TypeError: it is none.
    """
    if not isinstance(layouts, dict):
        raise TypeError(
            f"{optimizer}: slots must be a dict from slot name to Slot, as in {{'m': "
            f"Slot()}}, got {layouts!r}."
        )
    for name, layout in layouts.items():
        if not isinstance(layout, Slot):
            raise TypeError(
                f"{optimizer}: the slot {name!r} must be a Slot, as in Slot(), got {layout!r}."
            )
    return layouts

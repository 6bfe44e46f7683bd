"""Declares slots, the state that an optimizer stores for each variable.

An optimizer declares a slot by an initial value, a dtype and a layout. The layout determines the
stored shape of the slot, and the shape in which the slot's value is passed to the optimizer's
update rule (`RuleOptimizer.rule`). With a dense gradient, the rule gets all values of a slot. With
a sparse gradient, it gets the values of a `Slot` or `RowSlot` for the touched rows only. So the
same rule works with dense and sparse gradients. The docstring of `Slot` has a table of the layouts.
"""

from __future__ import annotations

from typing import Any, Callable, Dict, Iterable, Optional, Tuple

import tensorflow as tf

from legacy_opt import versions
from legacy_opt.core import argument_checks, dynamic_embeddings
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
    """A slot of the variable's shape: one value per element.

    There are four layouts. The table shows the stored shape, and the shape that the rule gets with
    a dense gradient and with a sparse gradient that touches n rows:

    ============  ====================  ====================  ===================
    layout        stored shape          dense gradient        n touched rows
    ============  ====================  ====================  ===================
    `Slot`        the variable's shape  the variable's shape  ``[n, …]``
    `RowSlot`     ``[rows]``            ``[rows, 1, …]``      ``[n, 1, …]``
    `ScalarSlot`  ``[]``                ``[]``                ``[]``
    `TensorSlot`  the given shape       the given shape       the given shape
    ============  ====================  ====================  ===================

    Example::

        class HeavyBallOptimizer(legacy_opt.RuleOptimizer):
            slots = {"momentum": legacy_opt.Slot(initial_value=0.0)}

            def rule(self, grad, value, slots, hyper):
                momentum = 0.9 * slots.momentum + grad
                return hyper.learning_rate * momentum, {"momentum": momentum}

        w = tf.Variable([1.0, 2.0])
        optimizer = HeavyBallOptimizer(use_locking=False, name="HeavyBall", learning_rate=0.1)
        train_op = optimizer.apply_gradients([(tf.constant([1.0, 2.0]), w)])

    Args:
      initial_value: the initial value of each element: a number, scalar tensor or variable, or a
        callable that returns one of these.
      dtype: the slot's dtype; None means the dtype of the variable.
      op_name: the part of the slot variable's name that follows the variable's name; None means the
        optimizer's name. If `op_name` is given, each partition of a partitioned variable saves its
        slot separately (`w/part_0/adam_m`). This is also the format of optimizers that create slots
        with `tf.compat.v1.get_variable`, such as BERT's.
    """

    def __init__(
        self,
        initial_value: Hyperparameter = 0,
        dtype: Optional[DTypeLike] = None,
        op_name: Optional[str] = None,
    ) -> None:
        self.initial_value = initial_value
        # TensorFlow's stubs do not know that Python types are dtypes, too.
        self.dtype = None if dtype is None else tf.as_dtype(dtype)  # pyright: ignore[reportArgumentType]
        self.op_name = op_name

    def static_shape(self, variable: Variable) -> TensorShape:
        """Returns the stored `tf.TensorShape`, as far as it is known before the graph runs."""
        return versions.static_shape(variable)

    def dynamic_shape(self, variable: Variable) -> Tensor:
        """Returns the stored shape as a tensor, for variables without a static shape."""
        if versions.is_dynamic_embedding(variable):
            return tf.constant([1])  # the table repeats the initial value in each new row
        return tf.shape(first_value(variable))

    def axes(self, variable: Variable) -> Optional[Tuple[int, ...]]:
        """Returns the axes of the variable that the slot's axes correspond to.

        The tuple determines how the slots of a partitioned variable are saved. If it contains the
        axis of the partitions, the slots of all partitions are saved as slices of one tensor, and a
        graph with other partitions can restore them. If not, or if `op_name` is given, each slot is
        saved as a separate tensor, and only a graph with the same partitions can restore the slots.
        None means that all partitions share one slot.
        """
        return tuple(range(variable.shape.rank))

    def create(
        self, optimizer: V1Optimizer, variable: Variable, slot_name: str, op_name: str
    ) -> Variable:
        """Returns the slot variable, which TF1's Optimizer creates if it does not exist."""
        dynamic_embeddings.check_wrapped(optimizer, variable)
        dtype = self.dtype or variable.dtype.base_dtype
        shape = self.static_shape(variable)
        initializer = self.initializer(variable, shape, dtype)
        slot = optimizer._get_or_make_slot_with_initializer(
            variable, initializer, shape, dtype, slot_name, self.op_name or op_name
        )
        if versions.part_of(variable) is not None:
            is_saved_by_part = self.op_name is not None
            versions.fit_slice_info(slot, variable, self.axes(variable), is_saved_by_part)
        return slot

    def initializer(
        self, variable: Variable, shape: TensorShape, dtype: DType
    ) -> Callable[..., Tensor]:
        """Returns the slot variable's initializer.

        `shape` is the stored `tf.TensorShape`, as far as it is known; `dtype` is the stored dtype.
        """
        value = self.initial_value
        is_static = shape.is_fully_defined()
        if is_static and not (callable(value) or argument_checks.is_tensor_like(value)):
            return tf.compat.v1.constant_initializer(value)  # TensorFlow calls it with the dtype

        def fill(*_: Any, **__: Any) -> Tensor:
            dimensions = shape if is_static else self.dynamic_shape(variable)
            return tf.fill(dimensions, self.start(dtype))

        return fill

    def start(self, dtype: DType) -> Tensor:
        """Returns the initial value as a tensor."""
        value = self.initial_value
        if argument_checks.is_function(value):
            value = value()
        convert = tf.cast if argument_checks.is_tensor_like(value) else tf.constant
        return convert(value, dtype)

    def read(self, slot: Variable, access: Access, like: Tensor) -> Tensor:
        """Returns the slot's value, in the shape that the rule gets.

        `like` is the gradient. The value of a `RowSlot` gets the rank of the gradient.
        """
        return access.read(slot)

    def assign(self, slot: Variable, access: Access, value: Tensor) -> Optional[Operation]:
        """Assigns a value of the shape that `read` returns. Returns an op, or None if eager."""
        return access.assign(slot, value)

    def add(self, slot: Variable, access: Access, value: Tensor) -> Optional[Operation]:
        """Adds a value of the shape that `read` returns. Returns an op, or None if eager."""
        return access.add(slot, value)


class RowSlot(Slot):
    """One value per row of the variable, or a single value for a scalar variable.

    Example::

        class RowAdagradOptimizer(legacy_opt.RuleOptimizer):
            slots = {"sums": legacy_opt.RowSlot(initial_value=0.1)}

            def rule(self, grad, value, slots, hyper):
                sums = slots.sums + tf.reduce_sum(grad * grad, axis=1, keepdims=True)  # [n, 1]
                return hyper.learning_rate * grad * tf.math.rsqrt(sums), {"sums": sums}

        table = tf.Variable(tf.ones([1000, 8]))
        optimizer = RowAdagradOptimizer(False, "RowAdagrad", learning_rate=0.1)
        train_op = optimizer.apply_gradients([(tf.IndexedSlices(tf.ones([2, 8]), [3, 14]), table)])
    """

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
    def _flat(slot: Variable, value: Tensor) -> Tensor:
        shape = [] if slot.shape.rank == 0 else [-1]
        # Without this test, a Session could remove a Reshape that changes nothing, together with
        # its control dependencies. The write would then no longer wait for the reads.
        if value.shape.rank == len(shape):
            return value
        return tf.reshape(value, shape)


class TensorSlot(Slot):
    """A tensor of a given shape per variable; rules get all of it, also for sparse gradients.

    Example::

        class ColumnAdagradOptimizer(legacy_opt.RuleOptimizer):
            def slot_layouts(self, variable):
                return {"sums": legacy_opt.TensorSlot(variable.shape[1:], 0.1, axes=(1,))}

            def rule(self, grad, value, slots, hyper):
                sums = slots.sums + tf.reduce_sum(grad * grad, axis=0)
                return hyper.learning_rate * grad * tf.math.rsqrt(sums), {"sums": sums}

        w = tf.Variable(tf.ones([1000, 8]))
        optimizer = ColumnAdagradOptimizer(False, "ColumnAdagrad", learning_rate=0.1)
        train_op = optimizer.apply_gradients([(tf.ones([1000, 8]), w)])

    Args:
      shape: the stored shape, fully defined.
      initial_value: the initial value of each element, as in `Slot`.
      dtype: the slot's dtype; None means the dtype of the variable.
      axes: the axes of the variable that the slot's axes correspond to, for example (0,) for a slot
        with one value per row; see `Slot.axes`. By default, each partition saves its slot
        separately, and only a graph with the same partitions can restore the slots.

    Raises:
      ValueError: the shape is not fully defined.
    """

    def __init__(
        self,
        shape: Shape,
        initial_value: Hyperparameter = 0,
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

    Example::

        class OneOverTOptimizer(legacy_opt.RuleOptimizer):
            slots = {"updates": legacy_opt.ScalarSlot()}

            def rule(self, grad, value, slots, hyper):
                updates = slots.updates + 1.0
                return grad / updates, {"updates": updates}

        w = tf.Variable([1.0, 2.0])
        optimizer = OneOverTOptimizer(use_locking=False, name="OneOverT")
        train_op = optimizer.apply_gradients([(tf.constant([1.0, 2.0]), w)])

    Args:
      initial_value: the initial value, as in `Slot`.
      dtype: the slot's dtype; None means the dtype of the variable.
    """

    def __init__(
        self, initial_value: Hyperparameter = 0, dtype: Optional[DTypeLike] = None
    ) -> None:
        super().__init__([], initial_value, dtype)


def first_value(variable: Variable) -> Tensor:
    """Returns a variable's value, or its initial value if the variable is not initialized yet.

    In a TF1 graph with v2 control flow, the result for a ref variable is always the initial value,
    because a v2 cond would read the variable even if it is not initialized.
    """
    if versions.building() != versions.GRAPH:
        if tf.executing_eagerly() and not variable.is_initialized():
            raise ValueError(
                f"A slot starts at the value of {variable.name!r}, which has none yet, because it "
                "was created in the function that trains it. Create it before: a Keras model "
                "with keras.Input(shape), or by model.build(shape)."
            )
        return variable.read_value()
    if tf.compat.v1.control_flow_v2_enabled() and not is_resource(variable):
        return variable.initial_value
    initialized = tf.compat.v1.is_variable_initialized(variable)
    return tf.compat.v1.cond(initialized, variable.read_value, lambda: variable.initial_value)


def as_column(values: Tensor, like: Tensor) -> Tensor:
    """Reshapes `values` from ``[n]`` to ``[n, 1, …]``, with the rank of `like`."""
    rank = like.shape.rank
    if rank == 0:
        return values
    if rank is not None:
        return tf.reshape(values, [-1] + [1] * (rank - 1))
    ones = tf.ones([tf.maximum(tf.rank(like) - 1, 0)], tf.int32)
    return tf.reshape(values, tf.concat([tf.shape(values)[:1], ones], axis=0))


def checked_layouts(optimizer: Any, layouts: Any, variable: Variable) -> Dict[str, Slot]:
    """Returns `layouts` if it is a dict from name to `Slot`, and `variable` can have the slots."""
    if not isinstance(layouts, dict):
        raise TypeError(
            f"{optimizer}: slots must be a dict from slot name to Slot, as in "
            f"{{'m': Slot()}}, got {layouts!r}."
        )
    for name, layout in layouts.items():
        if not isinstance(layout, Slot):
            raise TypeError(
                f"{optimizer}: the slot {name!r} must be a Slot, as in Slot(), got {layout!r}."
            )
        has_shape = type(layout).static_shape is Slot.static_shape
        dynamic_embeddings.check_slot(optimizer, variable, name, layout.dtype, has_shape)
    return layouts

"""Slots that collect the rows of sparse gradients over several calls of `apply_gradients`."""

from __future__ import annotations

from typing import Any, Callable, Iterable, List, Optional, Tuple

import tensorflow as tf

from legacy_opt import versions
from legacy_opt.core.slots import Slot
from legacy_opt.core.types import DType, Gradient, Tensor, TensorShape, V1Optimizer, Variable
from legacy_opt.core.variable_access import is_resource


class GrowingSlot(Slot):
    """A slot that is created without rows, and whose number of rows changes.

    If a variable is partitioned by rows, the slot of its first partition contains the rows of all.
    A row has the shape of the variable's rows, or is a scalar (`has_rows` is False).
    """

    def __init__(self, has_rows: bool, dtype: Optional[DType] = None) -> None:
        super().__init__(dtype=dtype)
        self.has_rows = has_rows

    def axes(self, variable: Variable) -> Optional[Tuple[int, ...]]:
        # None means one slot for all partitions, () means one per partition.
        return None if is_cut_by_rows(variable) else ()

    def static_shape(self, variable: Variable) -> TensorShape:
        return rows_shape(variable) if self.has_rows else tf.TensorShape([None])

    def dynamic_shape(self, variable: Variable) -> Any:
        shape = self.static_shape(variable)
        if shape.rank is not None and shape[1:].is_fully_defined():
            return [0] + shape[1:].as_list()  # 0 rows, so that the slot is created without rows
        return tf.concat([[0], super().dynamic_shape(variable)[1:]], axis=0)

    def create(
        self, optimizer: V1Optimizer, variable: Variable, slot_name: str, op_name: str
    ) -> Variable:
        def create_variable(next_creator: Callable[..., Variable], **arguments: Any) -> Variable:
            # Without an explicit shape, a resource variable keeps the shape of the initial value.
            shape = self.static_shape(variable) if is_resource(variable) else None
            arguments.update(shape=shape, validate_shape=False)
            return next_creator(**arguments)

        with tf.variable_creator_scope(create_variable):
            return super().create(optimizer, variable, slot_name, op_name)


class Homes:
    """Maps each variable to its home: the variable whose slots store the rows of the gradients.

    The home of a partition is the partition that was added first; of others, the variable itself.
    """

    def __init__(self) -> None:
        self._parts = {}  # {(graph, name of the whole variable): list of the added partitions}

    def add(self, part: Variable) -> Variable:
        """Adds a partition of a partitioned variable, and returns the home of the partition."""
        key = part.graph, versions.part_of(part).full_name
        self._parts.setdefault(key, []).append(part)
        return self._parts[key][0]

    def partitions(self, variable: Variable) -> List[Variable]:
        """Returns all added partitions of the whole variable to which `variable` belongs, or []."""
        part = versions.part_of(variable)
        return [] if part is None else self._parts.get((variable.graph, part.full_name), [])

    def home_of(self, variable: Variable) -> Variable:
        partitions = self.partitions(variable)
        return partitions[0] if any(variable is each for each in partitions) else variable

    def group(
        self, pairs: Iterable[Tuple[Any, Variable]]
    ) -> List[Tuple[Variable, List[Tuple[Any, Variable]]]]:
        groups = {}  # by the id of the home
        for grad, variable in pairs:
            home = self.home_of(variable)
            _, pairs_of_home = groups.setdefault(id(home), (home, []))
            pairs_of_home.append((grad, variable))
        return list(groups.values())


def ids_and_rows(grad: Gradient, variable: Variable) -> Tuple[Tensor, Tensor]:
    """Returns the ids (row numbers in the whole, unpartitioned variable) and rows of a gradient."""
    if isinstance(grad, tf.IndexedSlices):
        ids = tf.cast(grad.indices, tf.int64)
        rows = grad.values
    else:
        ids = tf.range(tf.shape(grad, out_type=tf.int64)[0])
        rows = grad
    if is_cut_by_rows(variable):
        ids += versions.part_of(variable).offset[0]
    return ids, rows


def is_cut_by_rows(variable: Variable) -> bool:
    """Whether `variable` is one of several partitions along axis 0, or the only partition."""
    part = versions.part_of(variable)
    return part is not None and part.axis in (None, 0)


def rows_shape(variable: Variable) -> TensorShape:
    """Returns the static shape of a tensor with rows of a variable: ``[None, …]``."""
    if variable.shape.rank is None:
        return variable.shape
    return tf.TensorShape([None]).concatenate(variable.shape[1:])

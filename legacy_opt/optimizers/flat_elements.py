"""The slots of AdagradDecay's counts of decays; see `core.count_layout`."""

from __future__ import annotations

from typing import Any, Iterable, List, NamedTuple, Optional

import tensorflow as tf

from legacy_opt import versions
from legacy_opt.core.count_layout import CountLayout
from legacy_opt.core.slots import RowSlot, Slot, as_column
from legacy_opt.core.types import DTypeLike, Hyperparameter, Operation, Tensor, Variable
from legacy_opt.core.update import Update
from legacy_opt.core.user_warnings import RepartitionWarning, warn
from legacy_opt.core.variable_access import Access, gather_nd, variable_op, variable_shape


class SharedCount(NamedTuple):
    """The count of dense updates that the parts of a partitioned variable share.

    The count is flat element 0 of the first part's slot, as in an unpartitioned variable.
    """

    # Whether this part has row 0 of the variable, and so adds to its own element 0. If the variable
    # is partitioned along another axis than 0, all parts have row 0.
    is_kept: bool
    value: Optional[Tensor] = None  # at the start of the step; None if it need not be read


def group_by_variable(updates: Iterable[Update]) -> List[List[Update]]:
    """Collects the updates of the parts of each partitioned variable, the first part first.

    If the first part is among the updates, all parts share a list and a `SharedCount`.
    """
    lists = {}
    # First parts come first. All other updates keep their order.
    for update in sorted(updates, key=lambda update: _is_later_part(update.variable)):
        part = versions.part_of(update.variable)
        key = id(update.variable)
        # A first part opens a list, and later parts join it. All other updates are alone.
        is_later = _is_later_part(update.variable)
        if _is_one_of_several(part) and is_later == (part.full_name in lists):
            key = part.full_name
            update = update._replace(prepared=SharedCount(is_kept=part.offset[0] == 0))
        lists.setdefault(key, []).append(update)
    return list(lists.values())


def warn_of_counts_by_position(layout: Slot, variable: Variable) -> None:
    """Warns if other partitions cannot use the counts of a part. `variable` may be its slot."""
    is_part = _is_one_of_several(versions.part_of(variable))
    counts_by_position = is_part and not isinstance(layout, RowSlot)
    if counts_by_position and variable.shape.rank > 1:  # in a vector, flat elements are rows
        warn(
            "AdagradDecayOptimizer counts the decays of rows by their position in each "
            "partition of a partitioned variable: continue from its checkpoints with the same "
            "partitions only. AdagradDecayOptimizerV2 computes the same and has no such limit.",
            RepartitionWarning,
        )


def _is_one_of_several(part: Optional[versions.Part]) -> bool:
    return part is not None and part.axis is not None


def _is_later_part(variable: Variable) -> bool:
    part = versions.part_of(variable)
    return _is_one_of_several(part) and any(part.offset)


class FlatElement(Slot):
    """A slot with the variable's shape, of which an update uses only some elements.

    A dense update uses element 0 of the flattened slot, a sparse update element r for row r. Rules
    may add to the slot, but not assign the slot.

    In a dense update, the parts of a partitioned variable have a count in common, `shared`. A part
    that is updated without the first part counts alone: `add` raises all elements below the new
    count of flat element 0 to this count, so that a different partitioning keeps the count.
    """

    count_kind = CountLayout.V1

    def __init__(
        self,
        initial_value: Hyperparameter = 0,
        dtype: Optional[DTypeLike] = None,
        shared: Optional[SharedCount] = None,
    ) -> None:
        super().__init__(initial_value, dtype)
        self._shared = shared

    def read(self, slot: Variable, access: Access, like: Tensor) -> Tensor:
        if access.indices is not None:
            positions = self._positions(slot, access.indices)
            if versions.compiling_with_xla():  # XLA has no kernel for ResourceGatherNd
                return as_column(tf.gather_nd(slot.read_value(), positions), like)
            return as_column(gather_nd(slot, positions), like)
        if self._shared is not None and self._shared.value is not None:
            return self._shared.value
        if slot.shape.rank == 0:
            return access.read(slot)
        if slot.shape.is_fully_defined():
            # XLA may compile the function, but has no kernel for ResourceGatherNd.
            if versions.building() == versions.FUNCTION:
                return tf.reshape(tf.gather(slot, [0]), [-1])[0]
            return gather_nd(slot, tf.zeros([slot.shape.rank], tf.int32))
        # At runtime, the variable may have no elements. The minimum of an empty tensor is the
        # largest integer, so no decay is due then.
        return tf.reduce_min(tf.reshape(access.read(slot), [-1])[:1])

    def add(self, slot: Variable, access: Access, value: Tensor) -> Optional[Operation]:
        if access.indices is not None:
            warn_of_counts_by_position(self, slot)
            positions = self._positions(slot, access.indices)
            updates = tf.reshape(value, [-1])
            return variable_op("ScatterNdAdd", slot, indices=positions, updates=updates)
        if self._shared is not None and not self._shared.is_kept:
            return tf.no_op()
        if self._shared is None and _is_one_of_several(versions.part_of(slot)):
            increment = tf.reshape(value, [])  # 0 or 1; with 0, new_count is 0 and the slot stays
            new_count = increment * (self.read(slot, access, value) + increment)
            return access.assign(slot, tf.maximum(slot.read_value(), new_count))
        if slot.shape.rank == 0:
            return access.add(slot, tf.reshape(value, []))
        if not slot.shape.is_fully_defined():
            shape = variable_shape(slot)
            is_first = tf.equal(tf.range(tf.reduce_prod(shape)), 0)
            return access.add(slot, tf.reshape(tf.cast(is_first, value.dtype) * value, shape))
        positions = tf.zeros([1, slot.shape.rank], tf.int32)
        updates = tf.reshape(value, [1])
        return variable_op("ScatterNdAdd", slot, indices=positions, updates=updates)

    @staticmethod
    def _positions(slot: Any, rows: Tensor) -> Tensor:
        """Returns the indices of flat element r for each r in `rows`, shape ``[n, rank]``."""
        if slot.shape.rank == 1:
            return rows[:, tf.newaxis]
        # tf.unravel_index is not used, because in some TensorFlow versions it needs a known number
        # of rows. Of the alternatives, one division per axis was the fastest.
        is_known = slot.shape.is_fully_defined()
        shape = slot.shape.as_list() if is_known else variable_shape(slot)
        sizes = tf.cast(shape, rows.dtype)
        strides = tf.math.cumprod(sizes, exclusive=True, reverse=True)
        # A row number out of range stays as first index, so that the kernel raises an error, even
        # if the slot has a flat element with this number.
        first = tf.compat.v2.where(rows < sizes[0], rows // strides[0], rows)
        if slot.shape.rank is None:
            inner = rows[:, tf.newaxis] // strides[1:] % sizes[1:]
            return tf.concat([first[:, tf.newaxis], inner], axis=1)
        positions = [first]
        rest = rows - first * strides[0]
        for axis in range(1, slot.shape.rank):
            is_last = axis == slot.shape.rank - 1  # where the stride is 1
            positions.append(rest if is_last else rest // strides[axis])
            rest -= positions[-1] * strides[axis]
        return tf.stack(positions, axis=1)


class FlatElementOfRows(FlatElement, RowSlot):
    """One value per row, with the same `read` and `add` as `FlatElement`."""

    count_kind = CountLayout.V2

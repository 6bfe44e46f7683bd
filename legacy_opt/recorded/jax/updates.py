"""The update of one JAX array and its slots, by a program of a record."""

from __future__ import annotations

from typing import Any, Dict, Mapping, NamedTuple, Optional, Tuple

import jax.numpy as jnp

from legacy_opt.programs.program import TENSOR, Program
from legacy_opt.recorded.arrays.interpreter import (
    part_of,
    program_for,
    run_program,
    shape_in_program,
)
from legacy_opt.recorded.jax.library import JaxLibrary, plain
from legacy_opt.recorded.records import Group, Slot

_NOWHERE = 2**31 - 1  # the number of no row


class Rows(NamedTuple):
    """A sparse gradient. Ids may be repeated; their rows are added in their order.

    As shapes in `jax.jit` are fixed, ids may be padded, with -1 for example: rows whose ids are not
    in [0, rows of the variable) are ignored. If gradients are clipped by their global norm, such
    ids are the last.

    Example::

        import jax.numpy as jnp
        from legacy_opt.recorded.jax import Rows

        gradient = Rows(jnp.array([3, 14, 3, -1]), jnp.ones([4, 8]))

    Attributes:
      ids: the numbers of rows, integers of shape ``[n]``.
      values: the gradients of these rows, of shape ``[n, …]``.
    """

    ids: Any
    values: Any

    def in_range(self, rows: int) -> Rows:
        """Returns the gradient with zeros where no row has the id."""
        # Small integers cannot be compared with large numbers of rows.
        ids = self.ids.astype(jnp.int32) if self.ids.dtype.itemsize < 4 else self.ids
        is_row = (ids >= 0) & (ids < rows)
        ids = jnp.where(is_row, ids, _NOWHERE).astype(jnp.int32)
        is_row = is_row.reshape(-1, *[1] * (self.values.ndim - 1))
        return Rows(ids, jnp.where(is_row, self.values, 0))

    def _distinct(self, library: JaxLibrary) -> Tuple[Any, Any, Any]:
        """Returns the distinct ids, their first positions, and their sums."""
        ids, first, inverse = jnp.unique(
            self.ids,
            return_index=True,
            return_inverse=True,
            size=len(self.ids),
            fill_value=_NOWHERE,
        )
        # Adding to -0 changes no number, and no sign of a zero. If nothing were hidden, XLA would
        # begin with the number to which the sums are added later.
        values = plain(library.array(self.values))
        sums = jnp.full_like(values, -0.0).at[inverse.reshape(-1)].add(values)
        return ids, first, plain(library.array(sums))

    def summed(self, library: JaxLibrary) -> Rows:
        """Returns distinct ids, and the sums of their rows in the order of the ids."""
        ids, _, sums = self._distinct(library)
        return Rows(ids, sums)

    def summed_in_place(self, library: JaxLibrary) -> Rows:
        """Returns the same ids, with the sum of an id's rows in the first of them, else zeros."""
        ids, first, sums = self._distinct(library)
        first = jnp.where(ids == _NOWHERE, _NOWHERE, first)
        return Rows(self.ids, jnp.zeros_like(sums).at[first].set(sums, mode="drop"))


def updated(
    library: JaxLibrary,
    group: Group,
    name: str,
    value: Any,
    gradient: Any,
    slots: Mapping[str, Any],
    scalars: Mapping[str, Any],
) -> Tuple[Any, Dict[str, Any]]:
    """Returns the new values of a variable and of its slots.

    Args:
      library: the array library.
      group: the group of the variable in the record.
      name: the name of the variable, for messages.
      value: the variable, an array of JAX as all others here.
      gradient: an array, or `Rows`.
      slots: a dict from names to slots in their stored shapes.
      scalars: the results of `Record.before`.

    Raises:
      RecordError: the group has no update for such a gradient.
    """
    program = program_for(group, isinstance(gradient, Rows), name)
    if not isinstance(gradient, Rows):
        return _run(library, group, program, value, gradient, slots, scalars)
    ids, gradient = gradient.summed(library)
    if group.first is not None:
        first = group._replace(slots={})
        value, _ = _run(library, first, group.first, value, gradient, {}, scalars, ids)
    if program.by_rows:
        return _run(library, group, program, value, gradient, slots, scalars, ids)
    whole = jnp.zeros_like(value).at[ids].set(gradient, mode="drop")
    return _run(library, group, program, value, whole, slots, scalars)


def is_subtraction(program: Program) -> bool:
    """Returns whether the new value is a difference of the old value and something."""
    node = program.nodes[program.value]
    return node.operation == "Sub" and program.nodes[node.inputs[0]].detail == (TENSOR, "value")


def addend(
    library: JaxLibrary,
    group: Group,
    name: str,
    value: Any,
    gradient: Any,
    slots: Mapping[str, Any],
    scalars: Mapping[str, Any],
) -> Tuple[Any, Dict[str, Any]]:
    """Returns what must be added to a variable, and the new values of its slots; see `updated`."""
    program = program_for(group, False, name)
    if is_subtraction(program):
        program = program._replace(value=program.nodes[program.value].inputs[1])
        subtracted, slots = _run(library, group, program, value, gradient, slots, scalars)
        return -subtracted, slots
    new, slots = _run(library, group, program, value, gradient, slots, scalars)
    new, old = (library.cast(library.array(each), "float64") for each in (new, value))
    return plain(new - old), slots


def _run(
    library: JaxLibrary,
    group: Group,
    program: Program,
    value: Any,
    gradient: Any,
    slots: Mapping[str, Any],
    scalars: Mapping[str, Any],
    ids: Any = None,
) -> Tuple[Any, Dict[str, Any]]:
    """Runs a program for a whole variable, or for the rows with these ids."""
    old = value if ids is None else _taken(value, ids)
    changed = run_program(
        library,
        program,
        group.slots,
        library.array(gradient),
        library.array(old),
        {
            name: library.array(_read(slots[name], slot, old.shape, ids))
            for name, slot in group.slots.items()
        },
        scalars,
    )
    slots = dict(slots)
    for name, factor in changed.factors.items():
        if ids is not None:
            slots[name] = plain(library.array(slots[name]) * factor)
    for name, new in changed.slots.items():
        slots[name] = _written(slots[name], group.slots[name], plain(new), old.shape, ids)
    new = jnp.broadcast_to(plain(changed.value), old.shape)
    return (new if ids is None else value.at[ids].set(new, mode="drop")), slots


def _taken(array: Any, ids: Any) -> Any:
    return array.at[ids].get(mode="fill", fill_value=1)


def _read(array: Any, slot: Slot, shape: Any, ids: Optional[Any]) -> Any:
    """Returns the values of a slot in the shape that the program gets."""
    array, place = part_of(array, slot, ids)
    part = array if place is ... else _taken(array, place)
    return part.reshape(shape_in_program(slot, ids is not None, shape))


def _written(array: Any, slot: Slot, new: Any, shape: Any, ids: Optional[Any]) -> Any:
    """Returns a slot with new values."""
    new = jnp.broadcast_to(new, shape_in_program(slot, ids is not None, shape))
    whole, place = part_of(array, slot, ids)
    if place is not ...:
        new = whole.at[place].set(new.reshape(-1, *whole.shape[1:]), mode="drop")
    return new.reshape(array.shape)

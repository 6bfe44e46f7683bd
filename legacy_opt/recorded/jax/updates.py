"""The update of one JAX array and its slots, by a program of a record."""

from __future__ import annotations

from typing import Any, Dict, Mapping, NamedTuple, Tuple

import jax.numpy as jnp

from legacy_opt.programs.program import TENSOR, Program
from legacy_opt.recorded.arrays import updates
from legacy_opt.recorded.arrays.interpreter import ArrayUpdate
from legacy_opt.recorded.jax.library import JaxLibrary, plain

_NOWHERE = 2**31 - 1  # the number of no row


class Rows(NamedTuple):
    """A sparse gradient. Ids may be repeated; their rows are added in their order.

    As shapes in `jax.jit` are fixed, ids may be padded, for example with -1: ids outside of
    [0, rows of the variable) are ignored. If gradients are clipped by their global norm, these ids
    must be the last.

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

    def _distinct(self, library: JaxLibrary, zero: float) -> Tuple[Any, Any, Any]:
        """Returns distinct ids, their first positions, and the sums of a zero and their rows."""
        ids, first, inverse = jnp.unique(
            self.ids,
            return_index=True,
            return_inverse=True,
            size=len(self.ids),
            fill_value=_NOWHERE,
        )
        # `array` hides the values and sums from XLA, which would otherwise begin with the number to
        # which a sum is added later.
        values = plain(library.array(self.values))
        sums = jnp.full_like(values, zero).at[inverse.reshape(-1)].add(values)
        return ids, first, plain(library.array(sums))

    def summed(self, library: JaxLibrary) -> Rows:
        """Returns the distinct ids, and the sum of the rows of each id."""
        ids, _, sums = self._distinct(library, -0.0)  # adding to -0 changes no sign of a zero
        return Rows(ids, sums)

    def summed_in_place(self, library: JaxLibrary) -> Rows:
        """Returns the same ids; the first row of an id has the sum, its other rows are zeros."""
        ids, first, sums = self._distinct(library, 0.0)
        first = jnp.where(ids == _NOWHERE, _NOWHERE, first)
        return Rows(self.ids, jnp.zeros_like(sums).at[first].set(sums, mode="drop"))


def updated(
    library: JaxLibrary, update: ArrayUpdate, scalars: Mapping[str, Any]
) -> Tuple[Any, Dict[str, Any]]:
    """Returns the new values of a variable and of its slots; see `updates.updated`."""
    if isinstance(update.gradient, Rows):
        update = update._replace(gradient=update.gradient.summed(library))
    return updates.updated(library, update, scalars, _taken, written)


def _taken(array: Any, place: Any) -> Any:
    return array if place is ... else array.at[place].get(mode="fill", fill_value=1)


def written(array: Any, place: Any, new: Any) -> Any:
    """Returns an array with new values at a place: ids, or ... for all elements."""
    if place is ...:
        return jnp.broadcast_to(plain(new), array.shape)
    return array.at[place].set(plain(new), mode="drop")


def is_subtraction(program: Program) -> bool:
    """Returns whether the new value is a difference of the old value and something."""
    node = program.nodes[program.value]
    return node.operation == "Sub" and program.nodes[node.inputs[0]].detail == (TENSOR, "value")


def addend(
    library: JaxLibrary, update: ArrayUpdate, scalars: Mapping[str, Any]
) -> Tuple[Any, Dict[str, Any]]:
    """Returns the number to add to a variable, and the new values of its slots; see `updated`."""
    program = update.program
    if is_subtraction(program):
        program = program._replace(value=program.nodes[program.value].inputs[1])
        subtracted, slots = updated(library, update._replace(program=program), scalars)
        return -subtracted, slots
    new, slots = updated(library, update, scalars)
    new = library.cast(library.array(new), "float64")
    old = library.cast(library.array(update.variable), "float64")
    return plain(new - old), slots

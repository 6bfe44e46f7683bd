"""Updates of arrays that can be changed, by the programs of recorded rules."""

from __future__ import annotations

from typing import Any, Mapping

from legacy_opt.recorded.interpreter import run_program, shape_in_program
from legacy_opt.recorded.library import Library
from legacy_opt.recorded.records import ELEMENT, FLAT, FLAT_ROW, ROW, Group, Program, Slot


class SlotView:
    """The part of a slot that an update reads and writes.

    Args:
      array: the slot as it is stored.
      slot: the slot's declaration.
      library: the array library.
      by_rows: whether the program gets only the touched rows.
      rows: the touched rows; `...` for all.
      shape: the shape of the variable, or of its touched rows.
    """

    def __init__(
        self, array: Any, slot: Slot, library: Library, by_rows: bool, rows: Any, shape: Any
    ) -> None:
        self.dtype = slot.dtype
        self._library = library
        self._array = array
        self._shape = shape_in_program(slot, by_rows, shape)
        self._place: Any = rows
        if slot.layout in (FLAT, FLAT_ROW):
            self._array = array.reshape(-1)  # a view, because stored arrays are contiguous
            self._place = rows if by_rows else slice(0, 1)
        elif slot.layout not in (ELEMENT, ROW):
            self._place = ...

    def read(self) -> Any:
        """Returns the values in the shape that the program gets."""
        return self._array[self._place].reshape(self._shape)

    def write(self, new: Any) -> None:
        """Writes values that can be broadcast to this shape."""
        place = self._array[self._place]
        self._array[self._place] = self._library.expanded(new, self._shape).reshape(place.shape)


def update(
    library: Library,
    group: Group,
    program: Program,
    variable: Any,
    ids: Any,
    gradient: Any,
    slots: Mapping[str, Any],
    scalars: Mapping[str, Any],
) -> None:
    """Updates a variable and its slots.

    Args:
      library: the array library.
      group: the group of the variable.
      program: one of the group's programs.
      variable: the variable.
      ids: the distinct numbers of the rows in a sparse gradient; None if it is dense.
      gradient: the gradient of the variable, or of these rows.
      slots: a dict from names to slots as they are stored.
      scalars: the results of `Record.before`.
    """
    rounded, dtype = library.rounded, str(variable.dtype).rpartition(".")[2]
    gradient, rows = rounded(gradient, dtype), ...
    if ids is not None:
        if group.first is not None:
            old = rounded(variable[ids], dtype)
            variable[ids] = run_program(library, group.first, {}, gradient, old, {}, scalars).value
        if program.by_rows:
            rows = ids
        else:
            whole = library.zeros_like(variable)
            whole[ids] = gradient
            gradient = whole
    value = variable[rows]
    views = {
        name: SlotView(slots[name], slot, library, program.by_rows, rows, value.shape)
        for name, slot in group.slots.items()
    }
    read = {name: rounded(view.read(), view.dtype) for name, view in views.items()}
    old = rounded(value, dtype)
    changed = run_program(library, program, group.slots, gradient, old, read, scalars)
    for name, factor in changed.factors.items():
        if program.by_rows:
            slots[name][...] = rounded(slots[name] * factor, views[name].dtype)
    for name, new in changed.slots.items():
        views[name].write(new)
    variable[rows] = changed.value

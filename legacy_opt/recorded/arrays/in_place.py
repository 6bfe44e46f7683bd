"""Updates of arrays that can be changed, by the programs of recorded rules."""

from __future__ import annotations

from typing import Any, Mapping

from legacy_opt.programs.program import Program
from legacy_opt.recorded.arrays.interpreter import part_of, run_program, shape_in_program
from legacy_opt.recorded.arrays.library import Library
from legacy_opt.recorded.records import Group


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
    gradient = rounded(gradient, dtype)
    if ids is not None:
        if group.first is not None:
            old = rounded(variable[ids], dtype)
            variable[ids] = run_program(library, group.first, {}, gradient, old, {}, scalars).value
        if not program.by_rows:
            whole = library.zeros_like(variable)
            whole[ids] = gradient
            gradient, ids = whole, None
    rows = ... if ids is None else ids
    value = variable[rows]
    parts, shapes, read = {}, {}, {}
    for name, slot in group.slots.items():
        parts[name] = array, place = part_of(slots[name], slot, ids)
        shapes[name] = shape_in_program(slot, program.by_rows, value.shape)
        read[name] = rounded(array[place].reshape(shapes[name]), slot.dtype)
    old = rounded(value, dtype)
    changed = run_program(library, program, group.slots, gradient, old, read, scalars)
    for name, factor in changed.factors.items():
        if program.by_rows:
            slots[name][...] = rounded(slots[name] * factor, group.slots[name].dtype)
    for name, new in changed.slots.items():
        array, place = parts[name]
        array[place] = library.expanded(new, shapes[name]).reshape(array[place].shape)
    variable[rows] = changed.value

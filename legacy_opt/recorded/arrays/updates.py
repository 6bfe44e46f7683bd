"""Updates of variables by the programs of recorded rules, with the arrays of any library."""

from __future__ import annotations

import operator
from typing import Any, Callable, Dict, Mapping, Tuple

from legacy_opt.recorded.arrays import interpreter
from legacy_opt.recorded.arrays.interpreter import part_of, run_program, shape_in_program
from legacy_opt.recorded.arrays.library import Library


def _write(array: Any, place: Any, new: Any) -> Any:
    array[place] = new
    return array


def updated(
    library: Library,
    update: interpreter.ArrayUpdate,
    scalars: Mapping[str, Any],
    taken: Callable[..., Any] = operator.getitem,
    written: Callable[..., Any] = _write,
) -> Tuple[Any, Dict[str, Any]]:
    """Returns the new values of a variable and its slots; by default, changes the arrays.

    The ids of a sparse gradient are distinct. `scalars` are the results of `Record.before`.
    `taken(array, place)` returns the elements at a place: ids, or ... for all elements.
    `written(array, place, values)` returns the array with other values at a place.
    """
    _, group, program, variable, gradient, slots = update
    slots = dict(slots)
    ids = None
    if isinstance(gradient, tuple):
        ids, gradient = gradient

    dtype_of_variable = str(variable.dtype).rpartition(".")[2]

    def read(array: Any, dtype: str = dtype_of_variable) -> Any:
        return library.rounded(library.array(array), dtype)

    if ids is not None and group.first is not None:
        inputs = read(gradient), read(taken(variable, ids)), {}
        new, _, _ = run_program(library, group.first, {}, *inputs, scalars)
        variable = written(variable, ids, new)
    if ids is not None and not program.by_rows:
        gradient = written(library.zeros_like(variable), ids, gradient)
        ids = None  # from here on, all rows are updated
    rows = ... if ids is None else ids
    value = taken(variable, rows)
    shapes, old = {}, {}
    for name, slot in group.slots.items():
        array, place = part_of(slots[name], slot, ids)
        shapes[name] = shape_in_program(slot, program.by_rows, value.shape)
        old[name] = read(taken(array, place).reshape(shapes[name]), slot.dtype)
    inputs = read(gradient), read(value), old
    new_value, changed, factors = run_program(library, program, group.slots, *inputs, scalars)
    for name, factor in factors.items():
        if program.by_rows:  # otherwise no rows are left to fade
            faded = library.array(slots[name]) * factor
            faded = library.rounded(faded, group.slots[name].dtype)
            slots[name] = written(slots[name], ..., faded)
    for name, new in changed.items():
        array, place = part_of(slots[name], group.slots[name], ids)
        shape = array.shape if place is ... else (-1, *array.shape[1:])
        new = library.expanded(new, shapes[name]).reshape(shape)
        slots[name] = written(array, place, new).reshape(slots[name].shape)
    return written(variable, rows, new_value), slots

"""Interprets the nodes of recorded rules, one by one, with the arrays of any library."""

from __future__ import annotations

from typing import Any, Collection, Dict, List, Mapping, NamedTuple, Sequence, Tuple

import numpy as np

from legacy_opt.core.count_layout import CountLayout
from legacy_opt.programs import program as programs
from legacy_opt.programs.operations import FLOATS, INTEGERS, OPERATIONS, SUMS
from legacy_opt.programs.program import Function, Nodes, Program
from legacy_opt.recorded.arrays.library import Library
from legacy_opt.recorded.records import Group, Record, RecordError, Slot


class Computation(NamedTuple):
    """Computes operations of arrays and Python integers; `do` in the functions of `OPERATIONS`."""

    library: Library
    dtype: str  # of the results

    def __call__(self, name: str, *operands: Any) -> Any:
        operation = OPERATIONS[name]
        operands = tuple(self.number(each) if type(each) is int else each for each in operands)
        if operation.function is not None:
            value = self.library.function(operation, operands, self.dtype)
        else:
            value = operation.meaning(self, *operands)
        return self.library.rounded(value, self.dtype) if operation.rounds else value

    def number(self, value: Any) -> Any:
        """Returns a scalar."""
        return self.library.constant(value, self.dtype)

    def where(self, condition: Any, x: Any, y: Any) -> Any:
        """Returns x where the condition is true, else y."""
        return self.library.where(condition, x, y)


def values_of(
    library: Library,
    nodes: Nodes,
    inputs: Mapping[Tuple[str, str], Any],
    results: Collection[int],
    of_rows: bool = False,
) -> Sequence[Any]:
    """Computes the values of nodes. Only the values at the positions `results` are kept.

    `inputs` is a dict from inputs (kind, name) to arrays. For `of_rows`, see `Library.sum`.
    """
    # By position; a later node that uses the value replaces an earlier one.
    last_use = {each: i for i, node in enumerate(nodes) for each in node.inputs}
    values: List[Any] = []
    for i, node in enumerate(nodes):
        operands = [values[each] for each in node.inputs]
        for each in node.inputs:
            if last_use[each] == i and each not in results:
                values[each] = None  # a large array may be free now
        if node.operation == "Input":
            value = inputs[node.detail]
        elif node.operation == "Const":
            value = library.constant(node.detail, node.dtype)
        elif node.operation == "Cast":
            value = library.cast(operands[0], node.dtype)
            value = library.rounded(value, node.dtype) if node.dtype in FLOATS else value
        elif node.operation in SUMS:
            wide = library.cast(operands[0], "float64")
            value = library.sum(wide, node.level, of_rows)
            if node.operation == "Mean":
                value = value / library.constant(library.count(wide, node.level), "float64")
            value = library.rounded(library.cast(value, node.dtype), node.dtype)
        else:
            value = Computation(library, node.dtype)(node.operation, *operands)
        values.append(value)
    return values


def run_function(library: Library, function: Function, given: Mapping[str, Any]) -> Dict[str, Any]:
    """Computes the results of a function of scalars; `given` is a dict from names to scalars."""
    inputs = {(programs.NUMBER, name): value for name, value in given.items()}
    values = values_of(library, function.nodes, inputs, set(function.results.values()))
    return {name: values[position] for name, position in function.results.items()}


class ArrayUpdate(NamedTuple):
    """The update of a variable in a step."""

    name: str  # of the variable, for messages
    group: Group
    program: Program  # of the group, for this kind of gradient
    variable: Any
    gradient: Any  # an array of the variable's shape, or a named tuple of ids and values of rows
    slots: Mapping[str, Any]  # as they are stored

    @classmethod
    def of(
        cls, name: str, group: Group, variable: Any, gradient: Any, slots: Any, dtype_of: Any = str
    ) -> ArrayUpdate:
        """Returns an update; raises a RecordError if slots do not fit, or there is no program."""
        check_slots(name, group, variable.shape, slots, dtype_of)
        is_sparse = isinstance(gradient, tuple)
        program = group.sparse if is_sparse else group.dense
        if isinstance(program, str):
            kind = "sparse" if is_sparse else "dense"
            raise RecordError(f"{name!r}: there is no update for {kind} gradients: {program}")
        return cls(name, group, program, variable, gradient, slots)


def run_program(
    library: Library,
    program: Program,
    layouts: Mapping[str, Slot],
    gradient: Any,
    value: Any,
    slots: Mapping[str, Any],
    scalars: Mapping[str, Any],
) -> Tuple[Any, Dict[str, Any], Dict[str, Any]]:
    """Computes an update of a variable, or of the touched rows of a variable.

    `value`, `gradient` and the returned values are of the variable or of these rows. The values of
    `slots` can be broadcast to the shape of `value`. `scalars` are the results of `Record.before`.

    Returns the new value; a dict from names of changed slots to their new values; and a dict from
    names of slots to factors, by which the rows that are not touched are multiplied.
    """
    inputs = {(programs.NUMBER, name): each for name, each in scalars.items()}
    inputs.update({(programs.SLOT, name): each for name, each in slots.items()})
    inputs[programs.TENSOR, programs.GRADIENT] = gradient
    inputs[programs.TENSOR, programs.VALUE] = value
    values = values_of(library, program.nodes, inputs, program.results, program.has_matrices)

    def result(position: int) -> Any:
        # The value of such a node may be a view of a slot, which the caller changes later.
        may_be_view = program.nodes[position].operation in ("Input", "Cast", "AddN")
        return library.copied(values[position]) if may_be_view else values[position]

    new_slots, factors = {}, {}
    for name, change in program.changes.items():
        new = result(change.node)
        if change.how == programs.ADD:
            new = Computation(library, layouts[name].dtype)("Add", slots[name], new)
        new_slots[name] = new
        if change.factor is not None:
            factors[name] = result(change.factor)
    return result(program.value), new_slots, factors


def with_scalars(
    library: Library, program: Program, scalars: Mapping[str, Any]
) -> Tuple[Program, Dict[str, Any]]:
    """Computes what a program without sums and without slots of scalars does for all elements.

    Returns a program for the rest, and the `scalars` that it reads.
    """
    nodes, before, places = list(program.nodes), [], {}
    for i, node in enumerate(program.nodes):
        if node.level == programs.SCALAR:
            places[i] = len(before)
            before.append(node._replace(inputs=tuple(places[each] for each in node.inputs)))
            nodes[i] = node._replace(operation="Input", inputs=(), detail=(programs.NUMBER, f"{i}"))
    inputs = {(programs.NUMBER, name): each for name, each in scalars.items()}
    values = values_of(library, before, inputs, range(len(before)))
    rest = program._replace(nodes=tuple(nodes)).pruned()
    return rest, {f"{i}": values[place] for i, place in places.items()}


def stored_shape(layout: str, shape: Sequence[int]) -> Tuple[int, ...]:
    """Returns the shape in which a slot of a variable is stored."""
    shape = tuple(shape)
    return {
        **CountLayout.shapes(shape),
        programs.ROW: shape[:1],
        programs.SCALAR: (),
        programs.MATRIX_ROW: shape[:-1],
        programs.MATRIX_COLUMN: shape[:-2] + shape[-1:],
    }.get(layout, shape)


def shape_in_program(slot: Slot, by_rows: bool, shape: Sequence[int]) -> Tuple[int, ...]:
    """Returns the shape of a slot's value in a program.

    `shape` is the shape of the variable or, if the program is `by_rows`, of its touched rows.
    """
    shape = tuple(shape)
    return {
        programs.ELEMENT: shape,
        programs.ROW: shape[:1] + (1,) * (len(shape) - 1),
        programs.MATRIX_ROW: shape[:-1] + (1,),
        programs.MATRIX_COLUMN: shape[:-2] + (1,) + shape[-1:],
    }.get(programs.level_in_program(slot.layout, by_rows), ())


def part_of(array: Any, slot: Slot, ids: Any) -> Tuple[Any, Any]:
    """Returns a view of a slot, and the place in the view that an update reads and writes.

    `array` is the slot as it is stored, which is contiguous. `ids` are the touched rows that the
    program gets; None for all rows.
    """
    if slot.layout in CountLayout.KINDS:
        return CountLayout.place(array, ids)
    if ids is not None and slot.layout in (programs.ELEMENT, programs.ROW):
        return array, ids
    return array, ...


def check_gradient(name: str, gradient: Any, variable: Any) -> None:
    """Raises a RecordError if a gradient, perhaps a pair (ids, values), does not fit a variable."""
    expected = variable.shape
    values = gradient
    if isinstance(gradient, tuple):
        ids, values = gradient
        if ids.ndim != 1 or ids.dtype.kind not in "iu":
            raise RecordError(
                f"{name!r}: ids must be integers of shape [n], got {ids.dtype} {ids.shape}"
            )
        expected = (ids.size, *variable.shape[1:])
    check_array(f"{name!r}: the gradient", values, variable.dtype, expected)


def check_array(what: str, array: Any, dtype: Any, shape: Sequence[int]) -> None:
    """Raises a RecordError if an array of any library does not have a shape and dtype."""
    found, expected = (str(each).rpartition(".")[2] for each in (array.dtype, dtype))
    if found != expected or tuple(array.shape) != tuple(shape):
        raise RecordError(
            f"{what} is {found} of the shape {list(array.shape)}, expected {expected} of the shape "
            f"{list(shape)}"
        )


def check_slots(
    name: str, group: Group, shape: Sequence[int], slots: Mapping[str, Any], dtype_of: Any = str
) -> None:
    """Raises a RecordError if slots (arrays of any library) do not fit a variable of this shape."""
    for slot_name, slot in group.slots.items():
        if slot_name not in slots:
            raise RecordError(f"{name!r} has no slot {slot_name!r}")
        what = repr(f"{name}/{slot_name}")
        expected = stored_shape(slot.layout, shape)
        check_array(what, slots[slot_name], dtype_of(slot.dtype), expected)


def whole_step(step: Any) -> int:
    """Returns a global step as an integer; raises a RecordError if it is no whole number."""
    if step // 1 != step:
        raise RecordError(f"the global step must be a whole number, got {step}")
    return int(step)


def given_hyperparameters(
    record: Record, given: Mapping[str, Any], functions: bool = False
) -> Dict[str, Any]:
    """Returns the hyperparameters of a record, with some values replaced.

    With `functions`, a value may be a function, such as a schedule. Raises a RecordError if a name
    is unknown, a hyperparameter has no value, or `_check_number` refuses a value.
    """
    values = {name: scalar.value for name, scalar in record.hyperparameters.items()}
    for name, value in given.items():
        if name not in values and name not in record.fixed:
            raise RecordError(
                f"{record.optimizer} has no hyperparameter {name!r}, but "
                f"{', '.join(sorted(values))}"
            )
        values[name] = value
    for name, value in values.items():
        if value is None:
            ways = f"{name}=…, or --set {name}=… on the command line"
            raise RecordError(f"{name} was no number when it was recorded: pass {ways}")
        must_be_number = not functions or name in {*record.fixed, *record.nonzero}
        if must_be_number or not callable(value):
            _check_number(record, name, value)
    return {name: values[name] for name in record.hyperparameters}


def _check_number(record: Record, name: str, value: Any) -> None:
    """Raises a RecordError if a hyperparameter cannot have this value."""
    dtype, recorded = {**record.hyperparameters, **record.fixed}[name]
    is_fixed = name in record.fixed
    is_nonzero = name in record.nonzero
    shape = tuple(getattr(value, "shape", ()))
    if shape not in ((), (1,)):
        raise RecordError(f"{name} must be a number, got an array of the shape {list(shape)}")
    if hasattr(value, "shape") and not (is_fixed or is_nonzero or dtype in INTEGERS):
        return  # an array, which may be in the memory of a GPU
    try:
        # `0 +`, because `float` alone would accept a text.
        number = None if is_fixed and callable(value) else float(0 + value)
    except (TypeError, ValueError):
        raise RecordError(f"{name} must be a number, got {value!r}") from None
    is_changed = is_fixed and (number is None or np.asarray(number, dtype) != recorded)
    if is_changed or (is_nonzero and number * recorded <= 0):
        where = "" if is_changed else " to 0 or another sign"
        raise RecordError(
            f"{name} was {recorded} when {record.optimizer} was recorded, and the record does not "
            f"follow it{where}: make another record, of the "
            f"optimizer with {name}={value!r} (legacy_opt.recorded.record)"
        )
    if dtype in INTEGERS and number is not None and int(number) != number:
        raise RecordError(
            f"{name} was an integer when it was recorded, so it cannot be {value}: record the "
            "optimizer with a float, such as 1.0"
        )


def started(record: Record, values: Mapping[str, Any]) -> Record:
    """Returns a record in which initial values follow these values of hyperparameters."""
    starts = {}
    for name, hyperparameter in record.initial.items():
        value = values[hyperparameter]
        recorded = record.hyperparameters[hyperparameter].value
        # A recorded value is rounded to the dtype of the hyperparameter, an initial value is not.
        if not isinstance(value, (int, float)) or value != recorded:
            starts[name] = value
    return record.with_starts(starts)

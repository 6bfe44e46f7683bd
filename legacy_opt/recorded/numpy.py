"""Trains NumPy arrays with a recorded rule: the reference of all targets. Needs no TensorFlow.

The results have the bits of native kernels (docs/native.md), in float32 and in float64.
"""

from __future__ import annotations

from typing import Any, Dict, Mapping, NamedTuple, Tuple, Union

import numpy as np

from legacy_opt.recorded import clipping
from legacy_opt.recorded.interpreter import (
    Library,
    SlotView,
    given_hyperparameters,
    program_for,
    run_function,
    run_program,
    stored_shape,
)
from legacy_opt.recorded.records import (
    CLIP_NORM,
    SUMMED_ROWS,
    Group,
    Program,
    Record,
    RecordError,
)


class NumpyLibrary(Library):
    """The operations of NumPy.

    Args:
      flush_denormals: whether denormal numbers become zero, as in native kernels and in the
        threads of TensorFlow.
    """

    def __init__(self, flush_denormals: bool = True) -> None:
        self.flushes = flush_denormals

    def constant(self, value: Any, dtype: str) -> Any:
        return self.rounded(np.dtype(dtype).type(value), dtype)

    def cast(self, x: Any, dtype: str) -> Any:
        x = np.asarray(x)
        if x.dtype.kind == "f" and dtype.startswith("int"):
            limit = np.dtype(x.dtype).type(2.0 ** (31 if dtype == "int32" else 63))
            inside = np.abs(x) < limit
            whole = np.where(inside, x, 0).astype(dtype)
            return np.where(inside, whole, np.iinfo(dtype).min)[()]
        return x.astype(dtype)[()]

    def where(self, condition: Any, x: Any, y: Any) -> Any:
        floats = [np.asarray(each).dtype for each in (x, y) if not isinstance(each, float)]
        if floats:
            x, y = (floats[0].type(each) if isinstance(each, float) else each for each in (x, y))
        return np.where(condition, x, y)[()]

    def sqrt(self, x: Any) -> Any:
        return np.sqrt(x)

    def copied(self, x: Any) -> Any:
        return np.array(x)[()]

    def expanded(self, x: Any, shape: Tuple[int, ...]) -> Any:
        return np.broadcast_to(x, shape)

    def abs(self, x: Any) -> Any:
        """Returns the absolute value."""
        return np.abs(x)

    def copysign(self, x: Any, sign: Any) -> Any:
        """Returns x with the sign of `sign`."""
        return np.copysign(x, sign)

    def bits(self, x: Any) -> Any:
        """Returns the bits of float64 numbers as int64."""
        return np.ascontiguousarray(x).view(np.int64).reshape(np.shape(x))[()]

    def of_bits(self, bits: Any) -> Any:
        """Returns the float64 numbers with these bits."""
        return np.ascontiguousarray(bits).view(np.float64).reshape(np.shape(bits))[()]

    def to_int64(self, x: Any) -> Any:
        """Casts numbers that fit."""
        return np.asarray(x).astype(np.int64)[()]

    def to_float64(self, x: Any) -> Any:
        """Casts integers."""
        return np.asarray(x).astype(np.float64)[()]

    def rounded(self, x: Any, dtype: str) -> Any:
        if not self.flushes or np.dtype(dtype).kind != "f":
            return x
        tiny = np.finfo(dtype).tiny
        is_denormal = (np.abs(x) < tiny) & (x != 0)
        return np.where(is_denormal, np.copysign(x.dtype.type(0), x), x)[()]

    def in_order(self, x: Any, axis: int) -> Any:
        if not x.shape[axis]:
            return np.zeros([size for i, size in enumerate(x.shape) if i != axis % x.ndim])
        return np.take(np.cumsum(x, axis=axis), -1, axis=axis)

    def padded(self, x: Any, multiple: int) -> Any:
        missing = -x.shape[-1] % multiple
        return np.concatenate([x, np.zeros((*x.shape[:-1], missing))], axis=-1)


class Rows(NamedTuple):
    """A sparse gradient. Ids may be repeated; their rows are added.

    Example::

        import numpy as np
        from legacy_opt.recorded.numpy import Rows

        gradient = Rows(np.array([3, 14, 3]), np.ones([3, 8], np.float32))

    Attributes:
      ids: the numbers of rows, integers of shape ``[n]``.
      values: the gradients of these rows, of shape ``[n, …]``.
    """

    ids: np.ndarray
    values: np.ndarray

    def summed(self, flush_denormals: bool = True) -> Rows:
        """Returns the distinct ids, and the sums of their rows in the order of the ids."""
        ids, first, inverse = np.unique(self.ids, return_index=True, return_inverse=True)
        sums = self.values[first]
        again = np.ones(len(self.ids), bool)
        again[first] = False
        _add_rows(sums, inverse.reshape(-1)[again], self.values[again], flush_denormals)
        return Rows(ids, sums)

    def summed_in_place(self, flush_denormals: bool = True) -> Rows:
        """Returns the same ids, with the sum of an id's rows in the first of them, else zeros."""
        ids, first, inverse = np.unique(self.ids, return_index=True, return_inverse=True)
        sums = np.zeros((len(ids), *self.values.shape[1:]), self.values.dtype)
        _add_rows(sums, inverse.reshape(-1), self.values, flush_denormals)
        values = np.zeros_like(self.values)
        values[first] = sums
        return Rows(self.ids, values)


def _add_rows(
    sums: np.ndarray, positions: np.ndarray, values: np.ndarray, flush_denormals: bool
) -> None:
    """Adds rows to the sums at some positions, one after another."""
    limits = np.finfo(values.dtype)
    sizes = np.abs(np.concatenate([sums.reshape(-1), values.reshape(-1)]))
    # Sums are multiples of the last bit of the smallest number, which is no denormal number if:
    smallest = limits.tiny * 2.0 ** (limits.nmant + 1)
    if not flush_denormals or not np.any((sizes < smallest) & (sizes > 0)):
        np.add.at(sums, positions, values)
        return
    flushed, dtype = NumpyLibrary().rounded, values.dtype.name
    for position, value in zip(positions, flushed(values, dtype)):
        sums[position] = flushed(flushed(sums[position], dtype) + value, dtype)


class State:
    """The state of an optimizer; see `NumpyOptimizer`.

    Attributes:
      global_step: the number of completed steps.
      shared: a dict from names of shared variables to scalars.
      slots: a dict from names of variables to dicts from names of slots to arrays.
    """

    def __init__(self, global_step: int, shared: Dict[str, Any], slots: Dict[str, Any]) -> None:
        self.global_step = global_step
        self.shared = shared
        self.slots = slots


class NumpyOptimizer:
    """An optimizer of NumPy arrays.

    Example::

        import numpy as np
        from legacy_opt import recorded
        from legacy_opt.recorded.numpy import NumpyOptimizer

        weights = {"w": np.array([1.0, 2.0], np.float32)}
        optimizer = NumpyOptimizer(recorded.load("LazyAdamOptimizer"), weights)
        optimizer.step({"w": np.array([0.1, 0.2], np.float32)})  # changes the arrays

    Args:
      record: the `Record`.
      variables: a dict from names to arrays of the record's dtype, which `step` changes.
      flush_denormals: whether denormal numbers become zero, as in native kernels.
      **hyperparameters: other values of hyperparameters, as in `hyperparameters`.

    Attributes:
      hyperparameters: a dict from names to numbers. It may be changed between steps.
      state: the `State`.

    Raises:
      RecordError: the record does not fit the variables, or a hyperparameter has no value.
    """

    def __init__(
        self,
        record: Record,
        variables: Mapping[str, np.ndarray],
        flush_denormals: bool = True,
        **hyperparameters: float,
    ) -> None:
        self.record = record
        self.variables = dict(variables)
        self.hyperparameters = given_hyperparameters(record, hyperparameters)
        self._library = NumpyLibrary(flush_denormals)
        slots = {}
        for name, array in self.variables.items():
            if array.dtype != record.dtype:
                raise RecordError(
                    f"{name!r} has the dtype {array.dtype}, but the record is for {record.dtype}"
                )
            group = record.group_of(name, array.shape)
            slots[name] = {
                slot_name: np.full(stored_shape(slot.layout, array.shape), slot.initial, slot.dtype)
                for slot_name, slot in group.slots.items()
            }
        shared = {
            name: self._library.constant(scalar.value, scalar.dtype)
            for name, scalar in record.shared.items()
        }
        self.state = State(0, shared, slots)

    def step(self, gradients: Mapping[str, Union[np.ndarray, Rows, None]]) -> None:
        """Updates all variables that have a gradient.

        Args:
          gradients: a dict from names of variables to arrays or `Rows`. If the record clips
            gradients by their global norm, the squares are added in the order of the dict.

        Raises:
          RecordError: the record has no update for such a gradient, the gradient does not have the
            variable's shape and dtype, a row does not exist, or `hyperparameters` has an unknown
            name or an unsuitable value. Nothing has been changed.
        """
        gradients = {name: each for name, each in gradients.items() if each is not None}
        updates = {}
        for name, gradient in gradients.items():
            if name not in self.variables:
                raise RecordError(f"there is no variable {name!r}")
            group = self.record.group_of(name, self.variables[name].shape)
            _check_gradient(name, gradient, self.variables[name])
            updates[name] = group, program_for(group, isinstance(gradient, Rows), name)
        scalars, given = self._scalars()
        with np.errstate(all="ignore"):
            if self.record.clipping is not None and gradients:
                gradients = self._clipped(gradients, given[CLIP_NORM])
            for name, (group, program) in updates.items():
                self._update(name, group, gradients[name], program, scalars)
            after = run_function(self._library, self.record.after, given)
        self.state.shared.update(after)
        self.state.global_step += 1

    def _scalars(self) -> Tuple[Dict[str, Any], Dict[str, Any]]:
        """Returns the scalars of this step, and the values from which they are computed."""
        library, record = self._library, self.record
        numbers = given_hyperparameters(record, self.hyperparameters)
        given = {
            name: library.constant(numbers[name], scalar.dtype)
            for name, scalar in record.hyperparameters.items()
        }
        given.update(self.state.shared)
        if record.global_step is not None:
            step = np.int64(self.state.global_step)  # an int32 overflows, as in TensorFlow
            given["global_step"] = library.cast(step, record.global_step)
        with np.errstate(all="ignore"):
            return run_function(library, record.before, given), given

    def _clipped(self, gradients: Mapping[str, Any], limit: Any) -> Dict[str, Any]:
        """Returns the gradients, multiplied so that their global norm is at most a limit."""
        library, dtype = self._library, self.record.dtype
        if self.record.clipping == SUMMED_ROWS:
            gradients = {
                name: each.summed_in_place(library.flushes) if isinstance(each, Rows) else each
                for name, each in gradients.items()
            }
        arrays = {
            name: library.rounded(each.values if isinstance(each, Rows) else each, dtype)
            for name, each in gradients.items()
        }
        norm = clipping.global_norm(library, list(arrays.values()), dtype)
        factor = clipping.factor(library, norm, limit, dtype)
        clipped = {name: library.rounded(each * factor, dtype) for name, each in arrays.items()}
        return {
            name: each._replace(values=clipped[name]) if isinstance(each, Rows) else clipped[name]
            for name, each in gradients.items()
        }

    def _update(
        self,
        name: str,
        group: Group,
        gradient: Any,
        program: Program,
        scalars: Mapping[str, Any],
    ) -> None:
        variable, slots = self.variables[name], self.state.slots[name]
        if not variable.size:
            return
        is_sparse = isinstance(gradient, Rows)
        rows: Any = ...
        if is_sparse:
            gradient = gradient.summed(self._library.flushes)
            if group.first is not None:
                value = self._library.rounded(variable[gradient.ids], self.record.dtype)
                inputs = group.first, {}, gradient.values, value, {}, scalars
                variable[gradient.ids] = run_program(self._library, *inputs).value
            if program.by_rows:
                rows, gradient = gradient.ids, gradient.values
            else:
                whole = np.zeros_like(variable)
                whole[gradient.ids] = gradient.values
                gradient = whole
        value = variable[rows]
        part = self._library, program.by_rows, rows, np.shape(value)
        views = {
            slot_name: SlotView(slots[slot_name], slot, *part)
            for slot_name, slot in group.slots.items()
        }
        flushed = self._library.rounded
        changed = run_program(
            self._library,
            program,
            group.slots,
            flushed(np.asarray(gradient), self.record.dtype),
            flushed(value, self.record.dtype),
            {slot_name: flushed(view.read(), view.dtype) for slot_name, view in views.items()},
            scalars,
        )
        for slot_name, factor in changed.factors.items():
            if program.by_rows:
                faded = flushed(slots[slot_name] * factor, views[slot_name].dtype)
                slots[slot_name][...] = faded
        for slot_name, new in changed.slots.items():
            views[slot_name].write(new)
        variable[rows] = changed.value


def _check_gradient(name: str, gradient: Union[np.ndarray, Rows], variable: np.ndarray) -> None:
    """Raises a RecordError if a gradient does not fit; NumPy would broadcast, cast, or wrap ids."""
    expected, values = variable.shape, gradient
    if isinstance(gradient, Rows):
        ids, values = np.asarray(gradient.ids), gradient.values
        if ids.ndim != 1 or ids.dtype.kind not in "iu":
            raise RecordError(
                f"{name!r}: ids must be integers of shape [n], got {ids.dtype} {ids.shape}"
            )
        rows = variable.shape[0] if variable.ndim else 0
        wrong = ids[(ids < 0) | (ids >= rows)]
        if wrong.size:
            raise RecordError(f"{name!r}: the id {wrong[0]} is not in [0, {rows})")
        expected = (ids.size, *variable.shape[1:])
    if np.shape(values) != expected or np.asarray(values).dtype != variable.dtype:
        raise RecordError(
            f"{name!r}: the gradient is {np.asarray(values).dtype} of the shape "
            f"{list(np.shape(values))}, expected {variable.dtype} of the shape {list(expected)}"
        )

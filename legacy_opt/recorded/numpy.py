"""Trains NumPy arrays with a recorded rule: the reference of all targets. Needs no TensorFlow.

The results have the bits of native kernels (`legacy-opt docs native`), in float32 and in float64.
"""

from __future__ import annotations

import dataclasses
import itertools
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Tuple, Union

import numpy as np

from legacy_opt.recorded.arrays import clipping, interpreter, updates
from legacy_opt.recorded.arrays.interpreter import ArrayUpdate, stored_shape
from legacy_opt.recorded.arrays.library import Library
from legacy_opt.recorded.records import CLIP_NORM, Record, RecordError

__all__ = ["NumpyOptimizer", "Rows", "State"]


class NumpyLibrary(Library):
    """The operations of NumPy; see `NumpyOptimizer` for `flush_denormals`."""

    def __init__(self, flush_denormals: bool = True) -> None:
        super().__init__()
        self.flushes = flush_denormals

    def constant(self, value: Any, dtype: str) -> Any:
        return self.rounded(np.dtype(dtype).type(value), dtype)

    def zeros_like(self, x: Any) -> Any:
        return np.zeros_like(x)

    def cast(self, x: Any, dtype: str) -> Any:
        x = np.asarray(x)
        if x.dtype.kind == "f" and dtype.startswith("int"):
            limit = np.dtype(x.dtype).type(2.0 ** (31 if dtype == "int32" else 63))
            inside = np.abs(x) < limit
            whole = np.where(inside, x, 0).astype(dtype)
            return np.where(inside, whole, np.iinfo(dtype).min)[()]
        return x.astype(dtype)[()]

    def where(self, condition: Any, x: Any, y: Any) -> Any:
        dtypes = [np.asarray(each).dtype for each in (x, y) if not isinstance(each, float)]
        if dtypes:
            x, y = (dtypes[0].type(each) if isinstance(each, float) else each for each in (x, y))
        return np.where(condition, x, y)[()]

    def sqrt(self, x: Any) -> Any:
        return np.sqrt(x)

    def copied(self, x: Any) -> Any:
        return np.array(x)[()]

    def expanded(self, x: Any, shape: Tuple[int, ...]) -> Any:
        return np.broadcast_to(x, shape)

    def bits(self, x: Any) -> Any:
        return np.ascontiguousarray(x).view(np.int64).reshape(np.shape(x))[()]

    def of_bits(self, bits: Any) -> Any:
        return np.ascontiguousarray(bits).view(np.float64).reshape(np.shape(bits))[()]

    def rounded(self, x: Any, dtype: str) -> Any:
        if not self.flushes or np.dtype(dtype).kind != "f":
            return x
        tiny = np.finfo(dtype).tiny
        is_denormal = (np.abs(x) < tiny) & (x != 0)
        return np.where(is_denormal, np.copysign(x.dtype.type(0), x), x)[()]

    def summed(self, rows: Rows) -> Rows:
        """Returns the distinct ids of a sparse gradient, and the sum of the rows of each id."""
        return rows.summed(self.flushes)

    def summed_in_place(self, rows: Any) -> Any:
        return rows.summed_in_place(self.flushes)

    def in_order(self, x: Any, axis: int) -> Any:
        if not x.shape[axis]:
            return np.zeros(np.delete(x.shape, axis))
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
        """Returns the distinct ids, and the sum of the rows of each id."""
        ids, first, inverse = np.unique(self.ids, return_index=True, return_inverse=True)
        sums = self.values[first]
        is_repeated = np.ones(len(self.ids), bool)
        is_repeated[first] = False
        positions = inverse.reshape(-1)[is_repeated]
        _add_rows(sums, positions, self.values[is_repeated], flush_denormals)
        return Rows(ids, sums)

    def dense(self, variable: np.ndarray, flush_denormals: bool = True) -> np.ndarray:
        """Returns the gradient of the whole variable; other rows are zeros."""
        array = np.zeros_like(variable)
        ids, sums = self.summed(flush_denormals)
        array[ids] = sums
        return array

    def summed_in_place(self, flush_denormals: bool = True) -> Rows:
        """Returns the same ids; the first row of an id has the sum, its other rows are zeros."""
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
    # If no number is below `smallest`, the last bits are no denormal numbers, and no sum is one.
    smallest = limits.tiny * 2.0 ** (limits.nmant + 1)
    if not flush_denormals or not np.any((sizes < smallest) & (sizes > 0)):
        np.add.at(sums, positions, values)
        return
    flushed, dtype = NumpyLibrary().rounded, values.dtype.name
    for position, value in zip(positions, flushed(values, dtype)):
        sums[position] = flushed(flushed(sums[position], dtype) + value, dtype)


@dataclasses.dataclass(eq=False)
class State:
    """The state of an optimizer; see `NumpyOptimizer`.

    Attributes:
      global_step: the number of completed steps.
      shared: a dict from names of shared variables to scalars.
      slots: a dict from names of variables to dicts from names of slots to arrays.
    """

    global_step: int
    shared: Dict[str, Any]
    slots: Dict[str, Any]


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
      flush_denormals: whether denormal numbers become zero, as in native kernels and in the
        threads of TensorFlow.
      library: the operations, if not those of `NumpyLibrary(flush_denormals)`.
      **hyperparameters: other values of hyperparameters, as in `hyperparameters`.

    Attributes:
      hyperparameters: a dict from names to numbers. It may be changed between steps.
      state: the `State`.

    Raises:
      RecordError: the record does not fit the variables, two of them share memory, or a
        hyperparameter has no value.
    """

    def __init__(
        self,
        record: Record,
        variables: Mapping[str, np.ndarray],
        flush_denormals: bool = True,
        library: Optional[NumpyLibrary] = None,
        **hyperparameters: float,
    ) -> None:
        self.record = record
        self.variables = dict(variables)
        self.hyperparameters = interpreter.given_hyperparameters(record, hyperparameters)
        self._library = library or NumpyLibrary(flush_denormals)
        start = interpreter.started(record, self.hyperparameters)
        slots = {}
        for name, array in self.variables.items():
            group = start.group_of(name, array.shape, array.dtype)
            slots[name] = {
                slot_name: np.full(stored_shape(slot.layout, array.shape), slot.initial, slot.dtype)
                for slot_name, slot in group.slots.items()
            }
        for (one, x), (other, y) in itertools.combinations(self.variables.items(), 2):
            if np.shares_memory(x, y):
                raise RecordError(f"the variables {one!r} and {other!r} share memory")
        shared = {
            name: self._library.constant(scalar.value, scalar.dtype)
            for name, scalar in start.shared.items()
        }
        self.state = State(global_step=0, shared=shared, slots=slots)

    def step(self, gradients: Mapping[str, Union[np.ndarray, Rows, None]]) -> None:
        """Updates all variables that have a gradient.

        Args:
          gradients: a dict from names of variables to arrays or `Rows`. If the record clips
            gradients by their global norm, the squares are added in the order of the dict.

        Raises:
          RecordError: the record has no update for such a gradient, the gradient does not have the
            variable's shape and dtype, a row does not exist, a slot does not fit its variable, or
            `hyperparameters` has an unknown name or an unsuitable value. Nothing has been changed.
        """
        updates = []
        for name, gradient in gradients.items():
            if gradient is None:
                continue
            if name not in self.variables:
                raise RecordError(f"there is no variable {name!r}")
            variable = self.variables[name]
            is_sparse = isinstance(gradient, Rows)
            gradient = Rows(*map(np.asarray, gradient)) if is_sparse else np.asarray(gradient)
            group = self.record.group_of(name, variable.shape, variable.dtype)
            interpreter.check_gradient(name, gradient, variable)
            if is_sparse:
                check_ids(name, gradient.ids, variable)
            update = ArrayUpdate.of(name, group, variable, gradient, self.state.slots[name])
            if variable.size:
                updates.append(update)
        scalars, given = self._scalars()
        with np.errstate(all="ignore"):
            limit = None if self.record.clipping is None else given[CLIP_NORM]
            self._run(updates, scalars, limit)
            after = interpreter.run_function(self._library, self.record.after, given)
        self.state.shared.update(after)
        self.state.global_step += 1

    def _scalars(self) -> Tuple[Dict[str, Any], Dict[str, Any]]:
        """Returns the scalars of this step, and the values from which they are computed."""
        library, record = self._library, self.record
        numbers = interpreter.given_hyperparameters(record, self.hyperparameters)
        given = {
            name: library.constant(numbers[name], scalar.dtype)
            for name, scalar in record.hyperparameters.items()
        }
        given.update(self.state.shared)
        if record.global_step is not None:
            # A step that is too large for int32 becomes negative, as in TensorFlow.
            step = np.int64(interpreter.whole_step(self.state.global_step))
            given["global_step"] = library.cast(step, record.global_step)
        with np.errstate(all="ignore"):
            return interpreter.run_function(library, record.before, given), given

    def _run(self, found: List[ArrayUpdate], scalars: Mapping[str, Any], limit: Any) -> None:
        """Updates variables; `limit` is the limit of the global norm, or None."""
        if limit is not None:
            limits = [limit] * len(found)
            found = clipping.clipped_by_global_norm(self._library, self.record, found, limits)
        for update in found:
            if isinstance(update.gradient, Rows):
                update = update._replace(gradient=self._library.summed(update.gradient))
            updates.updated(self._library, update, scalars)


def check_ids(name: str, ids: np.ndarray, variable: np.ndarray) -> None:
    """Raises a RecordError if an id is no row: to NumPy, negative ids mean rows from the end."""
    rows = variable.shape[0] if variable.ndim else 0
    wrong = ids[(ids < 0) | (ids >= rows)]
    if wrong.size:
        raise RecordError(f"{name!r}: the id {wrong[0]} is not in [0, {rows})")

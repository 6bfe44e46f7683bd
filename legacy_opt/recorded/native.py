"""Trains NumPy arrays with native kernels, in place. Needs no TensorFlow.

A recorded rule is compiled to the kernel that TensorFlow would run (`legacy-opt docs native`): from
legacy-opt-native if it has the kernel, else by a C compiler. For PyTorch, pass ``level="native"``
to `legacy_opt.recorded.torch.RecordedOptimizer`.
"""

from __future__ import annotations

import itertools
import os
from typing import Any, Dict, Iterator, Mapping, Optional, Tuple

import numpy as np

from legacy_opt.native.runtime import compiled_kernels, standalone
from legacy_opt.native.runtime.compiled_kernels import Kernel
from legacy_opt.programs.program import OF_MATRICES, ROW, Program, UnsupportedError, check
from legacy_opt.recorded.arrays import interpreter
from legacy_opt.recorded.arrays.interpreter import ArrayUpdate
from legacy_opt.recorded.numpy import NumpyOptimizer, Rows, check_ids
from legacy_opt.recorded.records import Group, Record, RecordError, Slot, slot_inputs

__all__ = ["NativeOptimizer"]


class NativeOptimizer(NumpyOptimizer):
    """A `NumpyOptimizer` that runs native kernels.

    Example::

        import numpy as np
        from legacy_opt import recorded
        from legacy_opt.recorded.native import NativeOptimizer

        weights = {"w": np.array([1.0, 2.0], np.float32)}
        optimizer = NativeOptimizer(recorded.load("LazyAdamOptimizer"), weights)
        optimizer.step({"w": np.array([0.1, 0.2], np.float32)})  # changes the arrays

    Args:
      record: the `Record`.
      variables: a dict from names to contiguous arrays of the record's dtype, which `step` changes.
      threads: the number of threads; None for one per processor. It does not change the results.
      **hyperparameters: other values of hyperparameters.

    Raises:
      RecordError: the record does not fit the variables, a hyperparameter has no value, an array is
        not contiguous, or there are no kernels: the message says why.
    """

    def __init__(
        self,
        record: Record,
        variables: Mapping[str, np.ndarray],
        threads: Optional[int] = None,
        **hyperparameters: float,
    ) -> None:
        super().__init__(record, variables, flush_denormals=True, **hyperparameters)
        self._kernels = Kernels(record.dtype, threads)
        for name, array in self.variables.items():
            _check_memory({name: array})
            self._kernels.compile(record.group_of(name, array.shape, array.dtype))

    def _update(self, update: ArrayUpdate, scalars: Mapping[str, Any]) -> None:
        self._kernels.update(update, scalars)


def _check_memory(arrays: Mapping[str, np.ndarray]) -> None:
    """Raises a RecordError if kernels cannot change these arrays."""
    for name, array in arrays.items():
        if not array.flags.carray:
            raise RecordError(f"{name!r} is not a contiguous array that can be written")
    for one, other in itertools.combinations(arrays, 2):
        if np.may_share_memory(arrays[one], arrays[other]):
            raise RecordError(f"{one!r} and {other!r} are the same memory: copy one of them")


def programs_of(group: Group) -> Iterator[Tuple[Program, Mapping[str, Slot]]]:
    """Yields each program of a group, with the slots that it gets."""
    for program in group.programs:
        slots = {} if program is group.first else group.slots
        yield program, slots


class Kernels:
    """The kernels of the programs of a record. `threads` is None for one thread per processor."""

    def __init__(self, dtype: str, threads: Optional[int] = None) -> None:
        self._dtype = dtype
        self._threads = threads or os.cpu_count() or 1
        # Programs are found by their identity. The pairs keep them alive.
        self._compiled: Dict[int, Tuple[Program, Kernel]] = {}

    def compile(self, group: Group) -> None:
        """Compiles the programs of a group; raises a RecordError if one cannot be compiled."""
        for program, slots in programs_of(group):
            self._kernel(program, slots)

    def _kernel(self, program: Program, slots: Mapping[str, Any]) -> Kernel:
        if id(program) not in self._compiled:
            try:
                standalone.library()
                pruned = program.pruned()
                inputs = slot_inputs(slots, program.by_rows)
                unsupported = OF_MATRICES if program.by_rows else (ROW,)
                for each in inputs:
                    if each.level in unsupported:
                        raise UnsupportedError(f"of the slot {each.name!r}, of another layout")
                check(pruned, inputs)
                kernel = compiled_kernels.compiled(pruned, inputs)
            except (UnsupportedError, OSError) as error:
                raise RecordError(f"the record has no native kernel: {error}") from error
            self._compiled[id(program)] = program, kernel
        return self._compiled[id(program)][1]

    def update(self, update: ArrayUpdate, scalars: Mapping[str, Any]) -> None:
        """Updates a variable, which must have elements, and its slots in place.

        Kernels get addresses, so everything is checked here. `scalars` are the results of
        `Record.before`.

        Raises:
          RecordError: an array is not contiguous, does not fit, or cannot be changed in place.
        """
        name, group, program, value, gradient, slots = update
        interpreter.check_array(repr(name), value, self._dtype, value.shape)
        interpreter.check_slots(name, group, value.shape, slots)
        interpreter.check_gradient(name, gradient, value)
        arrays = {f"{name}/{slot}": slots[slot] for slot in group.slots}
        arrays[name] = value
        _check_memory(arrays)
        kernel = self._kernel(program, group.slots)
        if isinstance(gradient, Rows):
            ids, rows = gradient
            check_ids(name, ids, value)
            rows = _unshared(rows, arrays)
            if group.first is not None:
                self._run(self._kernel(group.first, {}), update, rows, scalars, ids)
            if program.by_rows or not (kernel.has_matrices or program.needs_all_elements):
                self._run(kernel, update, rows, scalars, ids, all_rows=not program.by_rows)
                return
            ids, rows = Rows(ids, rows).summed()
            gradient = np.zeros_like(value)
            gradient[ids] = rows
        gradient = _unshared(gradient, arrays)
        self._run(kernel, update, gradient, scalars)

    def update_tensors(self, update: ArrayUpdate, scalars: Mapping[str, Any]) -> None:
        """Updates PyTorch's tensors; see `update`. The variable need not be contiguous."""
        variable, gradient = update.variable, update.gradient
        value = variable.detach().contiguous()  # the same memory if it is contiguous
        if isinstance(gradient, tuple):
            gradient = Rows(*(each.detach().resolve_neg().numpy() for each in gradient))
        else:
            gradient = gradient.detach().resolve_neg().numpy()
        slots = {name: tensor.numpy() for name, tensor in update.slots.items()}
        numbers = {name: tensor.numpy() for name, tensor in scalars.items()}
        in_numpy = update._replace(variable=value.numpy(), gradient=gradient, slots=slots)
        self.update(in_numpy, numbers)
        if value.data_ptr() != variable.data_ptr():
            variable.copy_(value)

    def __getstate__(self) -> Dict[str, Any]:
        return dict(vars(self), _compiled={})  # compiled programs cannot be copied and pickled

    def _run(
        self,
        kernel: Kernel,
        update: ArrayUpdate,
        gradient: np.ndarray,
        scalars: Mapping[str, Any],
        ids: Optional[np.ndarray] = None,
        all_rows: bool = False,
    ) -> None:
        numbers = {
            each.name: np.asarray(scalars[each.name], each.dtype).reshape(())
            for each in kernel.inputs.scalars
        }
        arrays = update.variable, gradient, update.slots
        standalone.update(kernel, *arrays, numbers, ids, all_rows=all_rows, threads=self._threads)


def _unshared(gradient: np.ndarray, arrays: Mapping[str, np.ndarray]) -> np.ndarray:
    """Returns a gradient in contiguous memory, which these arrays do not share."""
    shares = any(np.may_share_memory(gradient, each) for each in arrays.values())
    return gradient.copy() if shares else np.require(gradient, requirements="CA")

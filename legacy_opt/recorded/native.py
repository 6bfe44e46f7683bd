"""Trains NumPy arrays with native kernels, in place. Needs no TensorFlow.

A recorded rule is compiled to the kernel that TensorFlow would run (`legacy-opt docs native`): from
legacy-opt-native if it has the kernel, else by a C compiler. The level "native" of PyTorch and JAX
runs the same kernels.
"""

from __future__ import annotations

import functools
import itertools
import logging
import os
from typing import Any, Callable, Dict, Iterable, Iterator, List, Mapping, Optional, Sequence, Tuple

import numpy as np

from legacy_opt.native.runtime import compiled_kernels, standalone
from legacy_opt.native.runtime.compiled_kernels import Kernel
from legacy_opt.programs import program as programs
from legacy_opt.programs.program import FACTOR, Program, UnsupportedError
from legacy_opt.recorded.arrays import clipping, interpreter
from legacy_opt.recorded.arrays.interpreter import ArrayUpdate, Computation
from legacy_opt.recorded.arrays.library import EXACT, NATIVE
from legacy_opt.recorded.numpy import NumpyLibrary, NumpyOptimizer, Rows, check_ids
from legacy_opt.recorded.records import SUMMED_ROWS, Group, Record, RecordError, Slot, slot_inputs

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
        super().__init__(record, variables, True, None, **hyperparameters)
        self._threads = threads or os.cpu_count() or 1
        self._kernels = Kernels(record)
        for name, array in self.variables.items():
            _check_memory({name: array})
            self._kernels.compile(record.group_of(name, array.shape, array.dtype))

    def _run(self, found: List[ArrayUpdate], scalars: Mapping[str, Any], limit: Any) -> None:
        jobs = [Job(self._kernels, update) for update in found]
        gradients = [job.gradient for job in jobs]
        given = with_factors(self._kernels, gradients, [scalars], [limit], self._threads)
        run([(job, 0) for job in jobs], given, self._threads)


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
    """The kernels of the programs of a record."""

    def __init__(self, record: Record) -> None:
        self.dtype = record.dtype
        self.clips = record.clipping is not None
        self.sums_rows = record.clipping == SUMMED_ROWS
        # Programs are found by their identity. The pairs keep them alive.
        self._compiled: Dict[Tuple[int, bool], Tuple[Program, Kernel]] = {}

    def compile(self, group: Group) -> None:
        """Compiles the programs of a group; raises a RecordError if one cannot be compiled."""
        for program, slots in programs_of(group):
            self.kernel(program, slots)
            if self.clips and not program.by_rows:
                self.kernel(program, slots, scaled=True)
        if self.clips:
            self.sum_of_squares()

    def kernel(self, program: Program, slots: Mapping[str, Any], scaled: bool = False) -> Kernel:
        """Returns the kernel of a program or, if `scaled`, of `Program.scaled`."""
        key = id(program), scaled
        if key not in self._compiled:
            pruned = program.pruned()
            pruned = pruned.scaled() if scaled else pruned
            self._compiled[key] = program, _compiled(pruned, slots)
        return self._compiled[key][1]

    def calls(
        self, update: ArrayUpdate, dense: Callable[[Any, Any], Any]
    ) -> List[standalone.Update]:
        """Returns the calls of kernels that make an update of the arrays of any library.

        If the record clips gradients, one that is not sparse is multiplied by the scalar `FACTOR`.
        `dense` makes a dense gradient of a sparse one and the variable.
        """
        _, group, program, value, gradient, slots = update
        if not isinstance(gradient, tuple):
            kernel = self.kernel(program, group.slots, self.clips)
            return [standalone.Update(kernel, value, gradient, slots)]
        kernel, updates = self.kernel(program, group.slots), []
        ids, rows = gradient
        if group.first is not None:
            first = self.kernel(group.first, {})
            updates.append(standalone.Update(first, value, rows, {}, ids))
        if program.by_rows or not (kernel.has_matrices or program.needs_all_elements):
            last = standalone.Update(kernel, value, rows, slots, ids, not program.by_rows)
        else:
            last = standalone.Update(kernel, value, dense(gradient, value), slots)
        return [*updates, last]

    def sum_of_squares(self) -> Kernel:
        """Returns the kernel that adds the squares of gradients."""
        return self.kernel(programs.sum_of_squares(self.dtype), {})

    def __getstate__(self) -> Dict[str, Any]:
        return dict(vars(self), _compiled={})  # compiled programs cannot be copied and pickled


def level_for(kernels: Any, groups: Iterable[Group], elsewhere: str = "") -> str:
    """Returns the level that "auto" means, and says it in a line of the log `legacy_opt`.

    `kernels` are the `Kernels` of a target, or an object like them. `elsewhere` is the device of
    variables that are not in the memory of the processor.
    """
    if elsewhere:
        _log(logging.INFO, f'the level is "exact": native kernels cannot train on {elsewhere}')
        return EXACT
    try:
        for group in groups:
            kernels.compile(group)
    except RecordError as error:
        _log(logging.WARNING, f'the level is "exact", which is slower than "native": {error}')
        return EXACT
    _log(logging.INFO, 'the level is "native"')
    return NATIVE


@functools.lru_cache(maxsize=None)  # says the same only once
def _log(level: int, text: str) -> None:
    logging.getLogger("legacy_opt").log(level, "recorded rules: %s", text)


def _compiled(program: Program, slots: Mapping[str, Any]) -> Kernel:
    try:
        standalone.library()
        inputs = slot_inputs(slots, program.by_rows)
        unsupported = programs.OF_MATRICES if program.by_rows else (programs.ROW,)
        for each in inputs:
            if each.level in unsupported:
                raise UnsupportedError(f"of the slot {each.name!r}, of another layout")
        programs.check(program, inputs)
        return compiled_kernels.compiled(program, inputs)
    except (UnsupportedError, OSError) as error:
        raise RecordError(f"the record has no native kernel: {error}") from error


class Job:
    """The update of one variable in a step, of NumPy arrays, which the step changes.

    The variable has elements. Raises a RecordError if an array is not contiguous, does not fit, or
    cannot be changed in place.
    """

    def __init__(self, kernels: Kernels, update: ArrayUpdate) -> None:
        name, group, _, value, gradient, slots = update
        # Kernels get addresses, so everything is checked here.
        interpreter.check_array(repr(name), value, kernels.dtype, value.shape)
        interpreter.check_slots(name, group, value.shape, slots)
        interpreter.check_gradient(name, gradient, value)
        arrays = {f"{name}/{slot}": slots[slot] for slot in group.slots}
        arrays[name] = value
        _check_memory(arrays)
        if isinstance(gradient, Rows):
            check_ids(name, gradient.ids, value)
            ids, rows = gradient.summed_in_place() if kernels.sums_rows else gradient
            ids = np.require(ids, np.int64, ["C_CONTIGUOUS", "ALIGNED"])
            gradient = Rows(ids, _unshared(rows, arrays))
        else:
            gradient = _unshared(gradient, arrays)
        self._kernels = kernels
        self.update = update._replace(gradient=gradient)

    def calls(self, factor: Any) -> List[standalone.Update]:
        """Returns calls of kernels; `factor` multiplies the gradient, if it is not None."""
        update = self.update
        if isinstance(update.gradient, Rows) and factor is not None:
            # Before rows of equal ids are added.
            do = Computation(NumpyLibrary(), self._kernels.dtype)
            product = do("Mul", update.gradient.values, factor)
            update = update._replace(gradient=update.gradient._replace(values=product))
        return self._kernels.calls(update, Rows.dense)

    @property
    def gradient(self) -> Tuple[int, int]:
        """The address of the gradient, and its number of elements."""
        gradient = self.update.gradient
        values = gradient.values if isinstance(gradient, Rows) else gradient
        return values.ctypes.data, values.size


def run(
    jobs: Iterable[Tuple[Job, int]],
    scalars: Sequence[Mapping[str, Any]],
    threads: int,
    team: Optional[int] = None,
) -> None:
    """Runs jobs in one call; `jobs` are pairs of a job and the number of its scalars."""
    calls = [
        (i, call, which)
        for job, which in jobs
        for i, call in enumerate(job.calls(scalars[which].get(FACTOR)))
    ]
    standalone.Table(calls).run(scalars, threads, team)


def with_factors(
    kernels: Kernels,
    gradients: Sequence[Tuple[int, int]],
    scalars: Sequence[Mapping[str, Any]],
    limits: Sequence[Any],
    threads: int,
    team: Optional[int] = None,
) -> Sequence[Mapping[str, Any]]:
    """Returns the scalars and, if the record clips gradients by their global norm, the factor.

    `gradients` are pairs of address and size, whose squares are added in their order; `limits` has
    the limit of the norm for each of `scalars`.
    """
    if not kernels.clips or not gradients:
        return scalars
    total = standalone.sum_of_gradients(kernels.sum_of_squares(), gradients, threads, team)
    do = Computation(NumpyLibrary(), kernels.dtype)
    factors = clipping.factors_for(do, np.float64(total), limits)
    return [{**each, FACTOR: factor} for each, factor in zip(scalars, factors)]


def _unshared(gradient: np.ndarray, arrays: Mapping[str, np.ndarray]) -> np.ndarray:
    """Returns a gradient in contiguous memory, which these arrays do not share."""
    shares = any(np.may_share_memory(gradient, each) for each in arrays.values())
    return gradient.copy() if shares else np.require(gradient, requirements="CA")

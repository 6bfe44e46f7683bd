"""Updates PyTorch's tensors by native kernels, all tensors of a step in one call."""

from __future__ import annotations

import ctypes
import functools
import os
from typing import Any, Callable, Dict, Mapping, Optional, Sequence, Tuple

import numpy as np
import torch

from legacy_opt.native.runtime import standalone
from legacy_opt.recorded import native
from legacy_opt.recorded.arrays.interpreter import ArrayUpdate
from legacy_opt.recorded.native import Kernels
from legacy_opt.recorded.numpy import Rows
from legacy_opt.recorded.records import Record, RecordError
from legacy_opt.recorded.torch.columns import Columns, form_of

_PROCESS = os.getpid()


class TensorKernels:
    """The kernels of a record, and what is known of the tensors of the last step."""

    def __init__(self, record: Record) -> None:
        self.kernels = Kernels(record)
        self._known: Optional[_Known] = None

    def __getstate__(self) -> Dict[str, Any]:
        return dict(vars(self), _known=None)  # a copy has other tensors

    def run(
        self,
        columns: Columns,
        update_of: Callable[[int], ArrayUpdate],
        scalars: Sequence[Mapping[str, Any]],
        limits: Sequence[Any],
    ) -> None:
        """Updates parameters that have gradients; see `native.with_factors`.

        `update_of(i)` checks and returns the update of the i-th parameter, and creates missing
        slots. It is not called if the tensors are those of the last step; the gradient may be
        another one.
        """
        gradients, groups = columns.gradients, columns.groups
        if self._known is None or self._known.form != form_of(columns):
            self._known = _Known(self.kernels, columns, update_of)
        places = self._known.places if self._known.take_gradients(gradients) else []
        jobs = {}
        for i in sorted({*range(len(gradients))}.difference(places)):
            update = update_of(i)
            if update.variable.numel():
                jobs[i] = _TensorJob(self.kernels, update)
        addresses = [
            jobs[i].gradient if i in jobs else (gradients[i].data_ptr(), gradients[i].numel())
            for i in (sorted({*places, *jobs}) if self.kernels.clips else ())
        ]
        threads = _threads()
        scalars = native.with_factors(self.kernels, addresses, scalars, limits, *threads)
        if places:
            self._known.table.run(scalars, *threads)
            _mark(self._known.tensors)
        if jobs:
            native.run([(job, groups[i]) for i, job in jobs.items()], scalars, *threads)
        for job in jobs.values():
            job.finish()
            _mark(job.tensors)


def _threads() -> Tuple[int, Optional[int]]:
    """Returns the arguments `threads` and `team` of `standalone.Table.run`."""
    team = _team() if os.getpid() == _PROCESS else None  # OpenMP's threads do not survive forks
    return torch.get_num_threads(), team


def _mark(tensors: Sequence[Any]) -> None:
    """Tells autograd that tensors have changed."""
    torch.autograd.graph.increment_version(tensors)


class _TensorJob(native.Job):
    """A `native.Job` of tensors. The variable need not be contiguous."""

    def __init__(self, kernels: Kernels, update: ArrayUpdate) -> None:
        variable, gradient = update.variable, update.gradient
        slots = {name: update.slots[name] for name in update.group.slots}  # users may add values
        self.tensors = (variable, *slots.values())
        for each in self.tensors:
            if each.device.type != "cpu":
                raise RecordError(f"{update.name!r}: native kernels cannot train on {each.device}")
        value = variable.detach().contiguous()  # the same memory if it is contiguous
        if isinstance(gradient, tuple):
            gradient = Rows(*(each.detach().resolve_neg().numpy() for each in gradient))
        else:
            gradient = gradient.detach().resolve_neg().numpy()
        arrays = {name: tensor.numpy() for name, tensor in slots.items()}
        in_numpy = update._replace(variable=value.numpy(), gradient=gradient, slots=arrays)
        super().__init__(kernels, in_numpy)
        self._variable, self._value = variable, value

    def finish(self) -> None:
        """Writes the new value into the variable, if it is not contiguous."""
        if self._value.data_ptr() != self._variable.data_ptr():
            self._variable.copy_(self._value)


class _Known:
    """Tensors that have been checked; see `TensorKernels.run` for the arguments.

    `places` are the positions of the parameters that `table` updates in place, in one call. As long
    as `tensors`, these parameters and their slots, live, no others have their ids.
    """

    def __init__(
        self, kernels: Kernels, columns: Columns, update_of: Callable[[int], ArrayUpdate]
    ) -> None:
        self.places = [i for i in range(len(columns.parameters)) if _is_plain(columns, i)]
        jobs = [_TensorJob(kernels, update_of(i)) for i in self.places]
        factor = 1 if kernels.clips else None
        calls = [(0, job.calls(factor)[0], columns.groups[i]) for job, i in zip(jobs, self.places)]
        self.table = standalone.Table(calls)
        self.form = form_of(columns)
        self.tensors = [tensor for job in jobs for tensor in job.tensors]
        self._addresses, self._fits = [], False  # of gradients
        self._owners = [i for i, job in enumerate(jobs) for _ in job.tensors]
        self._starts = np.array([each.data_ptr() for each in self.tensors], np.int64)
        self._ends = self._starts + [each.nbytes for each in self.tensors]
        self._bytes = np.array([columns.parameters[i].nbytes for i in self.places], np.int64)

    def take_gradients(self, gradients: Sequence[Any]) -> bool:
        """Writes the addresses of gradients into the table.

        Returns False if a gradient is in the memory of its parameter or slots, or if the table is
        empty.
        """
        addresses = [gradients[i].data_ptr() for i in self.places]
        if addresses != self._addresses:
            self._addresses = addresses
            starts = np.array(addresses, np.int64)
            first, last = starts[self._owners], (starts + self._bytes)[self._owners]
            self._fits = not ((first < self._ends) & (self._starts < last)).any()
            self.table.numbers[:, standalone.GRADIENT] = starts[self.table.order]
        return self._fits


def _is_plain(columns: Columns, i: int) -> bool:
    """Returns whether a kernel can update the tensors of a parameter themselves."""
    parameter, gradient = columns.parameters[i], columns.gradients[i]
    return (
        gradient.layout is torch.strided
        and gradient.is_contiguous()
        and not gradient.is_neg()
        and not columns.axes[columns.groups[i]]
        and parameter.is_contiguous()
        and parameter.numel() > 0
    )


@functools.lru_cache(maxsize=None)
def _team() -> Optional[int]:
    """Returns the address of GOMP_parallel in PyTorch's OpenMP, or None."""
    try:
        return ctypes.cast(ctypes.CDLL(torch._C.__file__).GOMP_parallel, ctypes.c_void_p).value
    except (AttributeError, OSError):
        return None

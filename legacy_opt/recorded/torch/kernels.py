"""Updates PyTorch's tensors by native kernels, all tensors of a step in one call."""

from __future__ import annotations

import ctypes
import functools
import os
from typing import Any, Callable, List, Mapping, NamedTuple, Optional, Sequence, Tuple, Union

import torch

from legacy_opt.native.runtime import standalone
from legacy_opt.native.runtime.compiled_kernels import Kernel
from legacy_opt.recorded import native
from legacy_opt.recorded.arrays.interpreter import ArrayUpdate
from legacy_opt.recorded.native import Kernels
from legacy_opt.recorded.numpy import Rows
from legacy_opt.recorded.records import Record, RecordError
from legacy_opt.recorded.torch.known import KnownTensors

_PROCESS = os.getpid()


class TensorKernels:
    """The kernels of a record, and what is known of the tensors of the last step."""

    def __init__(self, record: Record) -> None:
        self.kernels = Kernels(record)
        self._known: KnownTensors[_Known] = KnownTensors()

    def job(
        self, parameter: Any, slots: Mapping[str, Any], update: Callable[[], ArrayUpdate]
    ) -> Optional[Job]:
        """Returns the update of a parameter with a gradient; None if it has no elements.

        Args:
          parameter: the parameter.
          slots: its slots; they may not exist yet.
          update: a function that checks and returns the update, and creates missing slots. It is
            not called if the tensors are those of the last step; the gradient may be another one.
        """
        known = self._known.get(parameter, slots)
        if known is not None and known.fits(parameter.grad):
            return _KnownJob(known, parameter.grad.data_ptr())
        checked = update()
        if not checked.variable.numel():
            return None
        job = _TensorJob(self.kernels, checked)
        if job.is_plain:
            known = _Known.of(self.kernels, parameter, job)
            self._known.put(parameter, checked.slots, known)
        return job

    def run(self, jobs: Sequence[Tuple[Job, Mapping[str, Any], Any]]) -> None:
        """Runs the jobs of a step; see `native.run`."""
        team = _team() if os.getpid() == _PROCESS else None  # OpenMP's threads do not survive forks
        native.run(self.kernels, jobs, torch.get_num_threads(), team)
        for job, _, _ in jobs:
            job.finish()
        # Tells autograd that the tensors have changed.
        torch.autograd.graph.increment_version([each for job, _, _ in jobs for each in job.tensors])


class _TensorJob(native.Job):
    """A `native.Job` of tensors. The variable need not be contiguous."""

    def __init__(self, kernels: Kernels, update: ArrayUpdate) -> None:
        variable, gradient = update.variable, update.gradient
        self.tensors = (variable, *update.slots.values())
        for each in self.tensors:
            if each.device.type != "cpu":
                raise RecordError(f"{update.name!r}: native kernels cannot train on {each.device}")
        value = variable.detach().contiguous()  # the same memory if it is contiguous
        if isinstance(gradient, tuple):
            gradient = Rows(*(each.detach().resolve_neg().numpy() for each in gradient))
        else:
            gradient = gradient.detach().resolve_neg().numpy()
        slots = {name: tensor.numpy() for name, tensor in update.slots.items()}
        in_numpy = update._replace(variable=value.numpy(), gradient=gradient, slots=slots)
        super().__init__(kernels, in_numpy)
        self._variable, self._value = variable, value
        is_same = value.data_ptr() == variable.data_ptr()
        self.is_plain = is_same and self.update.gradient is gradient

    def finish(self) -> None:
        """Writes the new value into the variable, if it is not contiguous."""
        if self._value.data_ptr() != self._variable.data_ptr():
            self._variable.copy_(self._value)


class _Known(NamedTuple):
    """The update of a parameter whose tensors are contiguous, and have been checked."""

    tensors: Tuple[Any, ...]  # the parameter and its slots
    spans: List[Tuple[int, int]]  # their memory
    size: int  # elements
    bytes: int  # of the gradient
    kernel: Kernel
    row: List[int]

    @classmethod
    def of(cls, kernels: Kernels, parameter: Any, job: _TensorJob) -> _Known:
        """Returns what is known after a job was made."""
        factor = 1 if kernels.clips else None
        ((kernel, row),) = job.rows(factor)
        tensors, gradient = (parameter, *job.tensors[1:]), parameter.grad
        spans = [(each.data_ptr(), each.data_ptr() + each.nbytes) for each in tensors]
        return cls(tensors, spans, gradient.numel(), gradient.nbytes, kernel, row)

    def fits(self, gradient: Any) -> bool:
        """Returns whether the tensors have the same memory, and the gradient has other memory."""
        first = gradient.data_ptr()
        is_same = all(
            each.data_ptr() == start for each, (start, _) in zip(self.tensors, self.spans)
        )
        return is_same and all(
            end <= first or first + self.bytes <= start for start, end in self.spans
        )


class _KnownJob:
    """The job of a known parameter."""

    def __init__(self, known: _Known, gradient: int) -> None:
        self.tensors = known.tensors
        self.gradient = gradient, known.size
        self._known = known

    def rows(self, factor: Any) -> List[Tuple[Kernel, List[int]]]:
        """Returns the kernel and the row of a table."""
        row = self._known.row.copy()
        row[standalone.GRADIENT] = self.gradient[0]
        return [(self._known.kernel, row)]

    def finish(self) -> None:
        """Does nothing: the kernel has changed the tensors themselves."""


Job = Union[_TensorJob, _KnownJob]


@functools.lru_cache(maxsize=None)
def _team() -> Optional[int]:
    """Returns the address of GOMP_parallel in PyTorch's OpenMP, or None."""
    try:
        return ctypes.cast(ctypes.CDLL(torch._C.__file__).GOMP_parallel, ctypes.c_void_p).value
    except (AttributeError, OSError):
        return None

"""Updates PyTorch's tensors by native kernels, all tensors of a step in one call."""

from __future__ import annotations

import ctypes
import functools
import os
from typing import Any, Callable, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple

import numpy as np
import torch

from legacy_opt.native.runtime import standalone
from legacy_opt.recorded import native
from legacy_opt.recorded.arrays.interpreter import ArrayUpdate
from legacy_opt.recorded.native import Kernels
from legacy_opt.recorded.numpy import Rows
from legacy_opt.recorded.records import Record, RecordError

_PROCESS = os.getpid()


class Item(NamedTuple):
    """A parameter with a gradient.

    Attributes:
      name: its name or None.
      parameter: the parameter.
      slots: its slots, which may not exist yet.
      axes: the `axes` of its parameter group.
      group: the number of its parameter group, and so of its scalars.
    """

    name: Optional[str]
    parameter: Any
    slots: Mapping[str, Any]
    axes: Any
    group: int


class TensorKernels:
    """The kernels of a record, and what is known of the tensors of the last step."""

    def __init__(self, record: Record) -> None:
        self.kernels = Kernels(record)
        self._known: Optional[_Known] = None

    def __getstate__(self) -> Dict[str, Any]:
        return dict(vars(self), _known=None)  # a copy has other tensors

    def run(
        self,
        items: Sequence[Item],
        update_of: Callable[[Item], ArrayUpdate],
        scalars: Sequence[Mapping[str, Any]],
        limits: Sequence[Any],
    ) -> None:
        """Updates parameters.

        Args:
          items: the parameters.
          update_of: a function that checks and returns an update, and creates missing slots. It is
            not called if the tensors are those of the last step; the gradient may be another one.
          scalars: see `native.with_factors`.
          limits: see `native.with_factors`.
        """
        known, places = self._known, {}
        addresses = None if known is None else known.addresses(items)
        if known is not None and addresses is not None:
            places = {place: i for i, place in enumerate(known.places)}
        jobs = {}
        for i, item in enumerate(items):
            update = None if i in places else update_of(item)
            if update is not None and update.variable.numel():
                jobs[i] = _TensorJob(self.kernels, update)
        gradients = [
            (int(addresses[places[i]]), known.sizes[places[i]]) if i in places else jobs[i].gradient
            for i in (sorted({*places, *jobs}) if self.kernels.clips else ())
        ]
        threads = _threads()
        scalars = native.with_factors(self.kernels, gradients, scalars, limits, *threads)
        if places:
            known.table.run(scalars, *threads)
            _mark(known.changed)
        if jobs:
            native.run([(job, items[i].group) for i, job in jobs.items()], scalars, *threads)
        for job in jobs.values():
            job.finish()
            _mark(job.tensors)
        if not places:
            self._known = _Known(self.kernels, items, jobs)


def _threads() -> Tuple[int, Optional[int]]:
    """Returns the arguments `threads` and `team` of `standalone.run`."""
    team = _team() if os.getpid() == _PROCESS else None  # OpenMP's threads do not survive forks
    return torch.get_num_threads(), team


def _mark(tensors: Sequence[Any]) -> None:
    """Tells autograd that tensors have changed."""
    torch.autograd.graph.increment_version(tensors)


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
        is_dense = not isinstance(update.gradient, tuple)
        self.is_plain = is_same and is_dense and update.gradient.data_ptr() == self.gradient[0]

    def finish(self) -> None:
        """Writes the new value into the variable, if it is not contiguous."""
        if self._value.data_ptr() != self._variable.data_ptr():
            self._variable.copy_(self._value)


class _Known:
    """The parameters of a step whose tensors are contiguous, and have been checked.

    Args:
      kernels: the kernels.
      items: all parameters of the step.
      jobs: the jobs of the step, by the place of their item.
    """

    def __init__(
        self, kernels: Kernels, items: Sequence[Item], jobs: Mapping[int, _TensorJob]
    ) -> None:
        self.places = [i for i, job in jobs.items() if job.is_plain]
        self.sizes = [items[i].parameter.numel() for i in self.places]
        tensors = [[items[i].parameter, *items[i].slots.values()] for i in self.places]
        self.changed = [each for of_item in tensors for each in of_item]
        self._tensors = _tensors(items)  # as long as they live, no other tensors have their ids
        self._form = _form(items, self._tensors)
        calls = []
        for number, i in enumerate(self.places):
            ((kernel, row),) = jobs[i].calls(1 if kernels.clips else None)
            calls.append((kernel, row, items[i].group, number))
        calls.sort(key=lambda call: (call[0].key, call[2]))  # as in `native.run`
        self._numbers = [number for *_, number in calls]
        self.table = native.Table([call[:3] for call in calls])
        self._owners = [i for i, of_item in enumerate(tensors) for _ in of_item]
        self._starts = np.array([each.data_ptr() for each in self.changed], np.int64)
        self._ends = self._starts + [each.nbytes for each in self.changed]
        self._bytes = np.array([items[i].parameter.nbytes for i in self.places], np.int64)

    def addresses(self, items: Sequence[Item]) -> Optional[np.ndarray]:
        """Returns the addresses of the gradients, which are now in the table.

        Returns None if tensors are not the same, or a gradient is in the memory of its parameter or
        slots.
        """
        if _form(items, _tensors(items)) != self._form or not self.places:
            return None
        gradients = [items[i].parameter.grad.data_ptr() for i in self.places]
        addresses = np.array(gradients, np.int64)
        first, last = addresses[self._owners], (addresses + self._bytes)[self._owners]
        if ((first < self._ends) & (self._starts < last)).any():
            return None
        self.table.numbers[:, standalone.GRADIENT] = addresses[self._numbers]
        return addresses


def _tensors(items: Sequence[Item]) -> List[Any]:
    return [tensor for each in items for tensor in (each.parameter, *each.slots.values())]


def _form(items: Sequence[Item], tensors: Sequence[Any]) -> Sequence[Any]:
    """Returns what must be the same in the next step; the addresses of gradients need not."""
    gradients = [each.parameter.grad for each in items]
    dense = [each for each in gradients if each.layout is torch.strided]
    both = [*tensors, *dense]
    return (
        [*map(id, tensors)],
        [each.data_ptr() for each in tensors],
        [(each.name, each.axes, each.group, *each.slots) for each in items],
        [each.parameter.shape for each in items],
        [each.layout for each in gradients],
        [each.is_neg() for each in dense],
        # Tensors that are not contiguous are checked in each step.
        [each.is_contiguous() for each in both],
        [each.numel() for each in both],
        [each.dtype for each in both],
    )


@functools.lru_cache(maxsize=None)
def _team() -> Optional[int]:
    """Returns the address of GOMP_parallel in PyTorch's OpenMP, or None."""
    try:
        return ctypes.cast(ctypes.CDLL(torch._C.__file__).GOMP_parallel, ctypes.c_void_p).value
    except (AttributeError, OSError):
        return None

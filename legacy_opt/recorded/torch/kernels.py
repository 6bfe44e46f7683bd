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
    """A parameter with a gradient."""

    name: Optional[str]
    parameter: Any
    slots: Mapping[str, Any]  # they may not exist yet
    axes: Any  # of the parameter group
    group: int  # the number of the parameter group, and so of its scalars


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
        places = [i for i, each in enumerate(items) if _is_plain(each)]
        if not self._fits([items[i] for i in places], update_of):
            places = []
        jobs = {}
        for i in sorted({*range(len(items))}.difference(places)):
            update = update_of(items[i])
            if update.variable.numel():
                jobs[i] = _TensorJob(self.kernels, update)
        gradients = [
            jobs[i].gradient if i in jobs else _address_and_size(items[i].parameter.grad)
            for i in (sorted({*places, *jobs}) if self.kernels.clips else ())
        ]
        threads = _threads()
        scalars = native.with_factors(self.kernels, gradients, scalars, limits, *threads)
        if places:
            self._known.table.run(scalars, *threads)
            _mark(self._known.tensors)
        native.run([(job, items[i].group) for i, job in jobs.items()], scalars, *threads)
        for job in jobs.values():
            job.finish()
            _mark(job.tensors)

    def _fits(self, items: Sequence[Item], update_of: Callable[[Item], ArrayUpdate]) -> bool:
        """Makes what is known fit plain items; returns whether they can be updated by its table."""
        if not items:
            return False
        if self._known is None or self._known.form != _form(items):
            jobs = [_TensorJob(self.kernels, update_of(each)) for each in items]
            factor = 1 if self.kernels.clips else None
            calls = [
                (call, each.group) for job, each in zip(jobs, items) for call in job.calls(factor)
            ]
            self._known = _Known(items, calls)
        return self._known.take_gradients(items)


def _is_plain(item: Item) -> bool:
    """Returns whether a kernel can update the tensors themselves, in one call."""
    parameter, gradient = item.parameter, item.parameter.grad
    return (
        gradient.layout is torch.strided
        and gradient.is_contiguous()
        and not gradient.is_neg()
        and not item.axes
        and parameter.is_contiguous()
        and parameter.numel() > 0
    )


def _address_and_size(gradient: Any) -> Tuple[int, int]:
    return gradient.data_ptr(), gradient.numel()


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

    def finish(self) -> None:
        """Writes the new value into the variable, if it is not contiguous."""
        if self._value.data_ptr() != self._variable.data_ptr():
            self._variable.copy_(self._value)


class _Known:
    """Plain items whose tensors have been checked.

    Args:
      items: the items.
      calls: the call of a kernel for each item, and its group.
    """

    def __init__(self, items: Sequence[Item], calls: Sequence[Tuple[Any, int]]) -> None:
        self.form = _form(items)
        self.tensors = _tensors(items)  # as long as they live, no other tensors have their ids
        # As in `native.run`.
        self._order = sorted(
            range(len(calls)), key=lambda i: (calls[i][0].kernel.identity, calls[i][1])
        )
        self.table = standalone.Table([calls[i] for i in self._order])
        self._owners = [i for i, each in enumerate(items) for _ in _tensors([each])]
        self._starts = np.array([each.data_ptr() for each in self.tensors], np.int64)
        self._ends = self._starts + [each.nbytes for each in self.tensors]
        self._bytes = np.array([each.parameter.nbytes for each in items], np.int64)

    def take_gradients(self, items: Sequence[Item]) -> bool:
        """Writes the addresses of gradients into the table.

        Returns False if a gradient is in the memory of its parameter or slots.
        """
        starts = np.array([each.parameter.grad.data_ptr() for each in items], np.int64)
        first, last = starts[self._owners], (starts + self._bytes)[self._owners]
        self.table.numbers[:, standalone.GRADIENT] = starts[self._order]
        return not ((first < self._ends) & (self._starts < last)).any()


def _tensors(items: Sequence[Item]) -> List[Any]:
    return [tensor for each in items for tensor in (each.parameter, *each.slots.values())]


def _form(items: Sequence[Item]) -> Sequence[Any]:
    """Returns what must be the same in the next step; the addresses of gradients need not."""
    tensors = _tensors(items)
    both = [*tensors, *(each.parameter.grad for each in items)]
    return (
        [*map(id, tensors)],
        [each.data_ptr() for each in tensors],
        [(each.name, each.group, *each.slots) for each in items],
        [each.is_contiguous() for each in tensors],
        [each.shape for each in both],
        [each.dtype for each in both],
    )


@functools.lru_cache(maxsize=None)
def _team() -> Optional[int]:
    """Returns the address of GOMP_parallel in PyTorch's OpenMP, or None."""
    try:
        return ctypes.cast(ctypes.CDLL(torch._C.__file__).GOMP_parallel, ctypes.c_void_p).value
    except (AttributeError, OSError):
        return None

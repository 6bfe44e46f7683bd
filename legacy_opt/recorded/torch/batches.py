"""Runs the updates of a PyTorch step in parts that stay in the processor's cache."""

from __future__ import annotations

import collections
import functools
from typing import Any, Dict, Iterable, Iterator, List, Mapping, Sequence

import torch
from torch._utils import _flatten_dense_tensors, _unflatten_dense_tensors

from legacy_opt.programs.program import ELEMENT
from legacy_opt.recorded.arrays import interpreter
from legacy_opt.recorded.arrays.interpreter import ArrayUpdate
from legacy_opt.recorded.arrays.updates import updated
from legacy_opt.recorded.torch.library import TorchLibrary, TorchRows

# Of a part and thread: temporary tensors of float32 then take 256 KiB each in a processor's cache.
_ELEMENTS = 1 << 16
_Column = Sequence[Any]  # the tensors of one kind, such as a slot, of several parameters


def run(library: TorchLibrary, found: Iterable[ArrayUpdate], scalars: Mapping[str, Any]) -> None:
    """Runs updates of a parameter group; `scalars` are the results of `Record.before`.

    Where each element is computed alone, large tensors are cut, and small ones are joined.
    """
    found = [_with_distinct_ids(each) for each in found if each.variable.numel()]
    if torch.compiler.is_compiling():  # it would unroll the loops over parts
        for update in found:
            updated(library, update, scalars)
        return
    _keep_freed_memory()
    alike: Dict[Any, List[ArrayUpdate]] = collections.defaultdict(list)
    for update in found:
        is_dense = not isinstance(update.gradient, tuple)
        alike[id(update.program), is_dense, update.variable.device].append(update)
    for (_, is_dense, _), same in alike.items():
        if is_dense and _is_elementwise(same[0]):
            _run_in_parts(library, same, scalars)
        else:
            for update in same:
                updated(library, update, scalars)


def _with_distinct_ids(update: ArrayUpdate) -> ArrayUpdate:
    is_sparse = isinstance(update.gradient, TorchRows)
    return update._replace(gradient=update.gradient.summed()) if is_sparse else update


def _run_in_parts(
    library: TorchLibrary, same: Sequence[ArrayUpdate], scalars: Mapping[str, Any]
) -> None:
    """Runs updates of the same program, in which each element is computed alone."""
    slots = same[0].group.slots
    program, inner = interpreter.with_scalars(library, same[0].program, scalars)
    for columns in _parts(same, _ELEMENTS * torch.get_num_threads()):
        value, gradient, *old = map(_joined, columns)
        new, changed, _ = interpreter.run_program(
            library, program, slots, gradient, value, dict(zip(slots, old)), inner
        )
        _write(columns[0], new)
        for name, column in zip(slots, columns[2:]):
            if name in changed:
                _write(column, changed[name])


@functools.lru_cache(maxsize=None)
def _keep_freed_memory() -> None:
    """Makes glibc keep the memory of temporary tensors for the next ones.

    By default it returns large blocks to the system, and each new page then costs more than the
    arithmetic. Once a block of up to 32 MiB was freed, it keeps blocks of up to this size.
    """
    torch.empty(31 << 20, dtype=torch.uint8)


def _is_elementwise(update: ArrayUpdate) -> bool:
    """Returns whether each element of the slots and of the variable is computed alone."""
    layouts = {slot.layout for slot in update.group.slots.values()}
    return layouts <= {ELEMENT} and not update.program.needs_all_elements


def _parts(updates: Iterable[ArrayUpdate], elements: int) -> Iterator[Sequence[_Column]]:
    """Yields the columns of tensors that are updated together: values, gradients, and slots."""
    rows: List[Sequence[Any]] = []
    total = 0
    for update in updates:
        slots = [update.slots[name] for name in update.group.slots]
        row = [update.variable, update.gradient, *slots]
        if row[0].numel() > elements:
            for part in _cut(row, elements):
                yield [[each] for each in part]
        else:
            rows.append(row)
            total += row[0].numel()
        if total >= elements:
            yield list(zip(*rows))
            rows, total = [], 0
    if rows:
        yield list(zip(*rows))


def _cut(tensors: Sequence[Any], elements: int) -> Iterable[Sequence[Any]]:
    """Returns parts of large tensors, if they are in the processor's memory."""
    if tensors[0].device.type != "cpu":
        return [tensors]
    if len({each.untyped_storage().data_ptr() for each in tensors}) < len(tensors):
        return [tensors]  # a part could change the gradient of the next one
    if all(each.is_contiguous() for each in tensors):
        tensors = [each.view(-1) for each in tensors]
    elements_of_row = tensors[0].numel() // len(tensors[0])
    return zip(*(each.split(max(1, elements // elements_of_row)) for each in tensors))


def _joined(tensors: _Column) -> Any:
    return tensors[0] if len(tensors) == 1 else _flatten_dense_tensors(tensors)


def _write(tensors: _Column, new: Any) -> None:
    """Writes values into tensors, of which `new` has been computed."""
    if len(tensors) == 1:
        tensors[0].copy_(new)
    else:
        new = new.expand(sum(each.numel() for each in tensors))  # it may be a scalar
        torch._foreach_copy_(tensors, _unflatten_dense_tensors(new, tensors))

"""The tensors of a step in PyTorch: what need not be checked again in the next step."""

from __future__ import annotations

import itertools
import operator
from typing import Any, Callable, Dict, List, Mapping, NamedTuple, Optional, Sequence

import torch

from legacy_opt.recorded.arrays.interpreter import ArrayUpdate

_DTYPE = operator.attrgetter("dtype")


class Columns(NamedTuple):
    """The parameters of a step, and what belongs to each of them."""

    parameters: Sequence[Any]
    gradients: Sequence[Any]
    slots: Sequence[Mapping[str, Any]]  # they may not exist yet
    names: Sequence[Optional[str]]
    axes: Sequence[Any]  # of the parameter groups
    groups: Sequence[int]  # the numbers of the parameter groups, and so of scalars


def form_of(columns: Columns, addresses: bool = True) -> Sequence[Any]:
    """Returns what must be the same in the next step; the addresses of gradients need not.

    Gradients that are sparse have no form.
    """
    strided = _strided(columns)
    parameters, gradients, slots = ([column[i] for i in strided] for column in columns[:3])
    values = itertools.chain(*(each.values() for each in slots))
    tensors = [*parameters, *(each for each in values if isinstance(each, torch.Tensor))]
    both = [*tensors, *gradients]
    return (
        *(strided, *columns[3:]),
        [*itertools.chain(*slots)],
        [*map(id, tensors)],
        [*map(torch.Tensor.data_ptr, tensors)] if addresses else [],
        [*map(torch.Tensor.size, both)],
        [*map(torch.Tensor.stride, both)],
        [*map(_DTYPE, both)],
        [*map(torch.Tensor.is_neg, gradients)],
    )


def _strided(columns: Columns) -> List[int]:
    return [i for i, each in enumerate(columns.gradients) if each.layout is torch.strided]


class Checked:
    """The updates of the last step, which have been checked."""

    def __init__(self) -> None:
        self._form: Optional[Sequence[Any]] = None
        self._updates: Dict[int, ArrayUpdate] = {}

    def __getstate__(self) -> Dict[str, Any]:
        return vars(Checked())  # a copy has other tensors

    def updates(
        self, columns: Columns, update_of: Callable[[int], ArrayUpdate]
    ) -> Sequence[ArrayUpdate]:
        """Returns a step's updates. `update_of(i)` checks and returns the update of parameter i."""
        form = form_of(columns, addresses=False)
        is_known = form == self._form
        known = self._updates if is_known else {}
        gradients = columns.gradients
        found = [
            known[i]._replace(gradient=gradients[i]) if i in known else update_of(i)
            for i in range(len(gradients))
        ]
        if not is_known:
            plain = [i for i in _strided(columns) if not columns.axes[columns.groups[i]]]
            self._form = form_of(columns, addresses=False)  # with slots that did not exist
            self._updates = {i: found[i]._replace(gradient=None) for i in plain}  # frees memory
        return found

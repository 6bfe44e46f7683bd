"""Sparse gradients of PyTorch."""

from __future__ import annotations

from typing import Any, NamedTuple, Tuple

import torch

from legacy_opt.recorded.records import RecordError


class TorchRows(NamedTuple):
    """A sparse gradient: the ids of rows, which may be repeated, and their values."""

    ids: Any
    values: Any

    @classmethod
    @torch.compiler.disable
    def of(cls, gradient: Any, rows: int) -> TorchRows:
        """Returns the ids and values of a sparse tensor; PyTorch does not check its ids."""
        ids, values = gradient._indices(), gradient._values()
        if ids.shape[0] != 1:
            raise RecordError(f"a sparse gradient must have one sparse axis, got {ids.shape[0]}")
        if ids.numel() and not 0 <= int(ids.min()) <= int(ids.max()) < rows:
            raise RecordError(f"an id of a sparse gradient is not in [0, {rows})")
        return cls(ids[0], values)

    def _distinct(self) -> Tuple[Any, Any, Any]:
        """Returns the distinct ids, their first positions, and the place of each id among them."""
        rows, inverse = torch.unique(self.ids, return_inverse=True)
        positions = torch.arange(len(self.ids) - 1, -1, -1, device=self.ids.device)
        # Written backwards, so that the first position of an id stays.
        first = torch.empty_like(rows).scatter_(0, inverse.flip(0), positions)
        return rows, first, inverse

    # A compiled index_add_ would add the rows of an id in any order.
    @torch.compiler.disable
    def summed(self) -> TorchRows:
        """Returns the distinct ids, and the sum of the rows of each id."""
        rows, first, inverse = self._distinct()
        is_repeated = torch.ones_like(self.ids, dtype=torch.bool)
        is_repeated[first] = False
        positions, repeated = inverse[is_repeated], self.values[is_repeated]
        return TorchRows(rows, self.values[first].index_add_(0, positions, repeated))

    @torch.compiler.disable
    def summed_in_place(self) -> TorchRows:
        """Returns the same ids; the first row of an id has the sum, its other rows are zeros."""
        rows, first, inverse = self._distinct()
        sums = torch.zeros_like(self.values[first]).index_add_(0, inverse, self.values)
        return TorchRows(self.ids, torch.zeros_like(self.values).index_copy_(0, first, sums))

"""The operations of PyTorch, with which recorded rules run."""

from __future__ import annotations

from typing import Any, NamedTuple, Tuple

import torch

from legacy_opt.recorded.arrays.library import Library
from legacy_opt.recorded.records import RecordError


class TorchLibrary(Library):
    """The operations of PyTorch."""

    def fast(self, name: str) -> Any:
        return getattr(torch, name, None) or getattr(torch.nn.functional, name)

    def constant(self, value: Any, dtype: str) -> Any:
        return torch.tensor(value, dtype=getattr(torch, dtype))

    def zeros_like(self, x: Any) -> Any:
        return torch.zeros_like(x)

    def cast(self, x: Any, dtype: str) -> Any:
        if x.is_floating_point() and dtype.startswith("int"):
            limit = 2.0 ** (31 if dtype == "int32" else 63)
            inside = x.abs() < limit
            whole = torch.where(inside, x, torch.zeros_like(x)).to(getattr(torch, dtype))
            lowest = torch.full_like(whole, torch.iinfo(whole.dtype).min)
            return torch.where(inside, whole, lowest)
        return x.to(getattr(torch, dtype))

    def where(self, condition: Any, x: Any, y: Any) -> Any:
        # Python floats get the dtype of the other operand; two floats get float64.
        dtype = next(each.dtype for each in (x, y, condition) if isinstance(each, torch.Tensor))
        dtype = torch.float64 if dtype == torch.bool and isinstance(x, float) else dtype
        x, y = (
            torch.tensor(each, dtype=dtype) if isinstance(each, float) else each for each in (x, y)
        )
        return torch.where(condition, x, y)

    def sqrt(self, x: Any) -> Any:
        # PyTorch's square roots are not always correctly rounded.
        if self._is_exact and x.dtype == torch.float32:
            return torch.sqrt(x.double()).float()
        return self._corrected(x, torch.sqrt(x)) if self._is_exact else torch.sqrt(x)

    def _corrected(self, x: Any, y: Any) -> Any:
        """Returns the float64 number nearest to the square root of x: y or a neighbour of y.

        The sign and size of x - y * y, which is computed without rounding, decide.
        """
        split = y * 134217729.0  # 2**27 + 1: the upper half of the bits of y, by Veltkamp
        high = split - (split - y)
        low = y - high
        square = y * y
        rest = (x - square) - (((high * high - square) + 2.0 * high * low) + low * low)
        above, below = (self.of_bits(self.bits(y) + step) for step in (1, -1))
        corrected = torch.where(rest <= -y * (y - below), below, y)
        corrected = torch.where(rest > y * (above - y), above, corrected)
        return torch.where((x > 0.0) & (x < float("inf")), corrected, y)

    def copied(self, x: Any) -> Any:
        return x.clone()

    def expanded(self, x: Any, shape: Any) -> Any:
        return x.expand(shape)

    def bits(self, x: Any) -> Any:
        return x.contiguous().view(torch.int64)

    def of_bits(self, bits: Any) -> Any:
        return bits.contiguous().view(torch.float64)

    def in_order(self, x: Any, axis: int) -> Any:
        return torch.cumsum(x, axis).select(axis, -1)

    def padded(self, x: Any, multiple: int) -> Any:
        return torch.nn.functional.pad(x, (0, -x.shape[-1] % multiple))


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

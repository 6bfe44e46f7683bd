"""Sums in the order of native kernels, with the arrays of any library."""

from __future__ import annotations

import functools
import operator
from typing import Any

from legacy_opt.programs.program import MATRIX, MATRIX_COLUMN, MATRIX_ROW

_PART = 8192  # elements of a partial sum, as in native/sources/update.h
_LANES = 16  # as in native/compiler/emitter.py
_BLOCK, _MOST_PARTS = 65536, 16  # for sums over rows of matrices, as in native/sources/update.h
_AXES = {MATRIX_COLUMN: -2, MATRIX: -2, MATRIX_ROW: -1}


def axis_of(level: str) -> Any:
    """Returns the axis over which a sum of this level adds; None for all axes."""
    return _AXES.get(level)


def ordered_sum(library: Any, x: Any, level: str, of_rows: bool) -> Any:
    """Adds float64 numbers; see `Library.sum`."""
    if level == MATRIX_COLUMN:
        return _of_columns(library, x)
    if level == MATRIX:
        return library.in_order(x, -2)[..., None, :]
    if level == MATRIX_ROW:
        return _of_lanes(library, x)[..., None]
    if of_rows:
        parts = x.reshape(-1, x.shape[-1])
    else:
        parts = library.padded(x.reshape(-1), _PART).reshape(-1, _PART)
    return library.in_order(_of_lanes(library, parts), 0)


def _of_lanes(library: Any, x: Any) -> Any:
    """Adds along the last axis: first every 16th number, then halves of the 16 sums."""
    x = library.padded(x, _LANES)
    sums = library.in_order(x.reshape(*x.shape[:-1], -1, _LANES), -2)
    half = _LANES // 2
    while half:
        sums = sums[..., :half] + sums[..., half : 2 * half]
        half //= 2
    return sums[..., 0]


def _of_columns(library: Any, x: Any) -> Any:
    """Adds along the last axis but one: first the rows of each part, then the parts' sums."""
    rows, columns = x.shape[-2:]
    parts = max(1, min(rows, _MOST_PARTS, rows * columns // _BLOCK))
    bounds = [rows * part // parts for part in range(parts + 1)]
    sums = [library.in_order(x[..., a:b, :], -2) for a, b in zip(bounds, bounds[1:])]
    return functools.reduce(operator.add, sums)[..., None, :]

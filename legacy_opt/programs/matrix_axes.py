"""Relates the axes of a tensor to the axes of a variable that is a stack of matrices.

In this module, the axes of a tensor are a tuple with one item per axis of the tensor: the
corresponding axis of the variable, or None for an axis of size 1. A scalar has an empty tuple.
"""

from __future__ import annotations

from typing import Iterable, Optional, Tuple

from legacy_opt.programs import program as programs
from legacy_opt.programs.program import UnsupportedError

Axes = Tuple[Optional[int], ...]


def axes_of(level: str, rank: int) -> Tuple[int, ...]:
    """Returns the axes of an input with this level; `rank` is the rank of the variable."""
    stack = tuple(range(rank - 2))
    return {
        programs.SCALAR: (),
        programs.MATRIX: stack,
        programs.MATRIX_ROW: (*stack, rank - 2),
        programs.MATRIX_COLUMN: (*stack, rank - 1),
        programs.ELEMENT: tuple(range(rank)),
    }[level]


def level_with(axes: Axes, rank: int, levels: Iterable[str]) -> Optional[str]:
    """Returns the level of a tensor with these axes; None if no level has them.

    The `rank` is that of the variable, the `levels` those of the operands. A tensor without axes
    gets the highest of these levels, because it may be a `SCALAR` or a `MATRIX`: if the variable is
    a single matrix, a value per matrix has no axes, either.
    """
    variable_axes = {axis for axis in axes if axis is not None}
    if not variable_axes:
        return programs.highest(levels)
    for level in (programs.MATRIX, programs.MATRIX_ROW, programs.MATRIX_COLUMN, programs.ELEMENT):
        if variable_axes == set(axes_of(level, rank)):
            return level
    return None


def broadcast(operands: Iterable[Axes]) -> Axes:
    """Returns the axes of an elementwise result. Raises an UnsupportedError if axes differ."""
    operands = list(operands)
    length = max(map(len, operands), default=0)
    result = []
    for position in range(-length, 0):
        at_position = [axes[position] for axes in operands if len(axes) >= -position]
        variable_axes = {axis for axis in at_position if axis is not None}
        if len(variable_axes) > 1:
            raise UnsupportedError(
                f"kernels cannot combine the axes {sorted(variable_axes)} in one operation"
            )
        result.append(variable_axes.pop() if variable_axes else None)
    return tuple(result)


def expanded(axes: Axes, position: int) -> Axes:
    """Returns the axes after `tf.expand_dims`."""
    position %= len(axes) + 1
    return (*axes[:position], None, *axes[position:])


def reduced(axes: Axes, positions: Iterable[int], keeps_dims: bool) -> Axes:
    """Returns the axes after a sum over the axes at `positions`."""
    removed = {position % len(axes) for position in positions}
    kept = [None if i in removed else axis for i, axis in enumerate(axes)]
    return tuple(axis for i, axis in enumerate(kept) if keeps_dims or i not in removed)

"""What an array library must do to run recorded rules."""

from __future__ import annotations

from typing import Any, Sequence, Tuple

from legacy_opt.programs.operations import Operation
from legacy_opt.recorded.arrays.sums import axis_of, ordered_sum

EXACT, FAST = "exact", "fast"
NATIVE, AUTO = "native", "auto"  # "auto" is native where there are kernels, else exact
LEVELS = (EXACT, FAST)
ALL_LEVELS = (AUTO, *LEVELS, NATIVE)


def check_level(level: str, known: Sequence[str] = LEVELS) -> None:
    """Raises a ValueError if a level of exactness is unknown."""
    if level not in known:
        raise ValueError(f"level must be one of {', '.join(known)}, got {level!r}")


class Library:
    """The operations that an array library needs to run recorded rules; targets override them.

    Arrays have Python's operators. A value of the level "element" has the shape of the variable or
    of its touched rows; values of other levels can be broadcast to this shape.

    With "fast" as `level` (of exactness), functions and sums are left to the array library; else,
    results have the bits of native kernels.
    """

    def __init__(self, level: str = EXACT) -> None:
        self._is_exact = level != FAST

    def array(self, x: Any) -> Any:
        """Converts an array of the user to an array for the methods below."""
        return x

    def plain(self, x: Any) -> Any:
        """Converts a result to an array of the user; the inverse of `array`."""
        return x

    def constant(self, value: Any, dtype: str) -> Any:
        """Returns a scalar."""
        raise NotImplementedError

    def zeros_like(self, x: Any) -> Any:
        """Returns an array of zeros with the shape and dtype of x."""
        raise NotImplementedError

    def cast(self, x: Any, dtype: str) -> Any:
        """Casts an array. NaN, and floats outside the range of an integer, become the lowest."""
        raise NotImplementedError

    def where(self, condition: Any, x: Any, y: Any) -> Any:
        """Returns x where the condition is true, else y; both may be Python floats."""
        raise NotImplementedError

    def sqrt(self, x: Any) -> Any:
        """Returns the correctly rounded square root."""
        raise NotImplementedError

    def copied(self, x: Any) -> Any:
        """Returns a copy of an array, or the array itself if arrays are immutable."""
        raise NotImplementedError

    def expanded(self, x: Any, shape: Tuple[int, ...]) -> Any:
        """Broadcasts an array to a shape."""
        raise NotImplementedError

    # What elementary functions need.

    def bits(self, x: Any) -> Any:
        """Returns the bits of float64 numbers as int64."""
        raise NotImplementedError

    def of_bits(self, bits: Any) -> Any:
        """Returns the float64 numbers with these bits."""
        raise NotImplementedError

    def function(self, operation: Operation, operands: Sequence[Any], dtype: str) -> Any:
        """Computes an elementary function; at the level "exact" in float64, then rounded once."""
        if not self._is_exact:
            return self.fast(operation.fast)(*operands)
        wide = [self.cast(each, "float64") for each in operands]
        return self.cast(operation.function(self, *wide), dtype)

    def fast(self, name: str) -> Any:
        """Returns the array library's own function of this name."""
        raise NotImplementedError

    # Sums.

    def in_order(self, x: Any, axis: int) -> Any:
        """Adds numbers along an axis one after another."""
        raise NotImplementedError

    def padded(self, x: Any, multiple: int) -> Any:
        """Appends zeros to the last axis, so that its size becomes a multiple of a number."""
        raise NotImplementedError

    def sum(self, x: Any, level: str, of_rows: bool) -> Any:
        """Adds float64 numbers; at the level "exact" in the order of native kernels.

        `level` is the level of the result. `of_rows` says whether the program has matrices: then,
        each row is a partial sum of the sum of all elements.
        """
        if self._is_exact:
            return ordered_sum(self, x, level, of_rows)
        axis = axis_of(level)
        return x.sum() if axis is None else x.sum(axis, keepdims=True)

    def count(self, x: Any, level: str) -> int:
        """Returns how many numbers `sum` adds."""
        axis = axis_of(level)
        sizes = x.shape if axis is None else x.shape[axis:][:1]
        count = 1
        for size in sizes:
            count *= size
        return count

    def rounded(self, x: Any, dtype: str) -> Any:
        """Returns a rounded result; targets may replace denormal numbers by zero here."""
        return x

    def summed_in_place(self, rows: Any) -> Any:
        """Returns a sparse gradient: the first row of an id has the sum, its other rows zeros."""
        return rows.summed_in_place()

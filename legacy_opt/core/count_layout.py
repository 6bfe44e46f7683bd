"""Where AdagradDecay stores its counts of decays; `optimizers.flat_elements` updates them.

A count is the number of decays of one row of the accumulator. With dense gradients, count 0 is the
number of decays of the whole variable. A slot V1 has the variable's shape: the first elements of
the flattened slot are the counts, one for each row, and the others are unused. A slot V2 has only
the counts: its shape is [rows], or [] for a scalar variable. Each part of a partitioned variable
has a slot with counts of its rows; dense gradients count in the first part.
"""

from __future__ import annotations

from typing import Any, Dict, NamedTuple, Tuple

import numpy as np

Shape = Tuple[int, ...]
Part = Tuple[Shape, Shape]  # the shape, and the offset in the whole


class CountLayout(NamedTuple):
    """The layout of an array that contains the counts of a variable.

    Attributes:
      shape: the shape of the array, of either kind.
      parts: the parts with counts of their own, as pairs (shape, offset in the array). () if it is
        unknown whether there are any.
    """

    shape: Shape
    parts: Tuple[Part, ...] = ()

    SLOT = "accumulator_decay_power"
    V1, V2 = KINDS = ("flat", "flat_row")  # as records name them
    NAMES = {"V1": V1, "V2": V2}  # as users name them

    @classmethod
    def whole(cls, shape: Shape) -> CountLayout:
        """Returns the layout of an array that is known to have no parts."""
        return cls(shape, ((shape, (0,) * len(shape)),))

    @classmethod
    def of(cls, kind: str, shape: Shape, parts: Tuple[Part, ...]) -> CountLayout:
        """Returns the layout of the counts of a variable with these parts."""
        parts = tuple(tuple(cls.shapes(each)[kind] for each in part) for part in parts)
        is_distinct = len(set(parts)) == len(parts)  # parts with the same rows have the same counts
        return cls(cls.shapes(shape)[kind], parts if is_distinct else ())

    @staticmethod
    def shapes(shape: Any) -> Dict[str, Any]:
        """Returns the shapes of slots of a variable, by kind; also of None, and of an offset."""
        return {CountLayout.V1: shape, CountLayout.V2: shape and shape[:1]}

    @staticmethod
    def place(slot: Any, rows: Any) -> Tuple[Any, Any]:
        """Returns a view of a slot, an array of any library, and what an update uses there.

        The update is of rows (an array of their numbers), or of the whole variable (None).
        """
        return slot.reshape(-1), slice(0, 1) if rows is None else rows

    def converted(self, counts: np.ndarray, to: CountLayout) -> np.ndarray:
        """Converts counts to another layout. Elements that are no counts become 0.

        Raises:
          ValueError: the parts are unknown, and the array may contain counts of several parts; or
            two parts that contain the same rows have different counts.
        """
        rows = self._by_rows(counts)
        result = np.zeros(to.shape, counts.dtype)
        for shape, offset in to.parts or self.whole(to.shape).parts:
            its_rows = rows[offset[0] : offset[0] + shape[0]] if offset else rows
            result[_slices(shape, offset)] = _reshaped(its_rows, shape)
        return result

    def _by_rows(self, counts: np.ndarray) -> np.ndarray:
        rows = np.zeros(self.shape[:1], counts.dtype)
        has_count, beyond = np.zeros(rows.shape, bool), counts.reshape(-1)[rows.size :]
        # Equal numbers are no counts of rows: old versions set a part's elements to one number.
        if not self.parts and np.any(beyond != beyond[-1:]):
            raise ValueError(
                f"there are counts beyond the first {rows.size} elements. Only a partitioned "
                "variable has such counts, and the checkpoint does not contain its partitions"
            )
        # Later parts do not replace the count of row 0: dense gradients count in the first part.
        for shape, offset in sorted(self.parts or self.whole(self.shape).parts, key=lambda p: p[1]):
            place = _slices(shape[:1], offset[:1])
            its_rows = _reshaped(counts[_slices(shape, offset)], shape[:1])
            if any(offset) and offset[0] == 0:
                its_rows[0] = rows[0]
            if np.any(has_count[place] & (rows[place] != its_rows)):
                raise ValueError("two parts with the same rows have different counts")
            rows[place], has_count[place] = its_rows, True
        return rows


def _slices(shape: Shape, offset: Shape) -> Tuple[slice, ...]:
    return tuple(slice(start, start + size) for size, start in zip(shape, offset))


def _reshaped(counts: np.ndarray, shape: Shape) -> np.ndarray:
    """Returns the counts of an array without parts in an array of this shape, of either kind."""
    rows = shape[0] if shape else 1
    result = np.zeros(shape, counts.dtype)
    result.reshape(-1)[:rows] = counts.reshape(-1)[:rows]
    return result

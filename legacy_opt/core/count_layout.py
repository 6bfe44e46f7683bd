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

from legacy_opt.core.array_parts import Part, Shape, slices, whole


class CountLayout(NamedTuple):
    """The layout of an array that contains the counts of a variable, in layout V1 or V2.

    `parts` are the parts with separate counts; a whole array is one part; () if unknown.
    """

    shape: Shape
    parts: Tuple[Part, ...] = ()

    SLOT = "accumulator_decay_power"
    V1, V2 = "flat", "flat_row"  # as records name them
    KINDS = (V1, V2)
    NAMES = {"V1": V1, "V2": V2}  # as users name them

    @classmethod
    def whole(cls, shape: Shape) -> CountLayout:
        """Returns the layout of an array that is known to have no parts."""
        return cls(shape, (whole(shape),))

    @classmethod
    def of(cls, kind: str, shape: Shape, parts: Tuple[Part, ...]) -> CountLayout:
        parts = tuple((cls.shapes(s)[kind], cls.shapes(offset)[kind]) for s, offset in parts)
        # V2 has only axis 0. There, parts along other axes coincide, because they share the counts.
        is_distinct = len(set(parts)) == len(parts)
        return cls(cls.shapes(shape)[kind], parts if is_distinct else ())

    @staticmethod
    def shapes(shape: Any) -> Dict[str, Any]:
        """Returns the shapes (or offsets) of slots of a variable, by kind. None stays None."""
        return {CountLayout.V1: shape, CountLayout.V2: shape and shape[:1]}

    @staticmethod
    def place(slot: Any, rows: Any) -> Tuple[Any, Any]:
        """Returns the flattened slot (of any library), and the index of the counts to change.

        `rows` are the numbers of the updated rows; None means an update of the whole variable.
        """
        index = slice(0, 1) if rows is None else rows
        return slot.reshape(-1), index

    def converted(self, counts: np.ndarray, to: CountLayout) -> np.ndarray:
        """Converts counts to another layout. Elements that are no counts become 0."""
        rows = self._by_rows(counts)
        result = np.zeros(to.shape, counts.dtype)
        for shape, offset in to.parts or (whole(to.shape),):
            part_rows = rows[offset[0] : offset[0] + shape[0]] if offset else rows
            result[slices(shape, offset)] = _reshaped(part_rows, shape)
        return result

    def _by_rows(self, counts: np.ndarray) -> np.ndarray:
        """Returns an array with one count per row of the variable."""
        rows = np.zeros(self.shape[:1], counts.dtype)
        has_count = np.zeros(rows.shape, bool)
        beyond = counts.reshape(-1)[rows.size :]  # the numbers after one count per row
        # Old versions filled a part with its one count: equal numbers are no counts of other parts.
        if not self.parts and np.any(beyond != beyond[-1:]):
            raise ValueError(
                f"there are counts beyond the first {rows.size} elements. Only a partitioned "
                "variable has such counts, and the checkpoint does not contain its partitions"
            )
        parts = self.parts or (whole(self.shape),)
        for shape, offset in sorted(parts, key=lambda part: part[1]):  # by offset
            place = slices(shape[:1], offset[:1])
            part_rows = _reshaped(counts[slices(shape, offset)], shape[:1])
            is_later_with_row_0 = any(offset) and offset[0] == 0
            if is_later_with_row_0:
                part_rows[0] = rows[0]  # dense gradients count in the first part
            if np.any(has_count[place] & (rows[place] != part_rows)):
                raise ValueError("two parts with the same rows have different counts")
            rows[place] = part_rows
            has_count[place] = True
        return rows


def _reshaped(counts: np.ndarray, shape: Shape) -> np.ndarray:
    """Copies the counts into an array of this shape (V1 or V2); other elements are 0."""
    rows = shape[0] if shape else 1
    result = np.zeros(shape, counts.dtype)
    result.reshape(-1)[:rows] = counts.reshape(-1)[:rows]
    return result

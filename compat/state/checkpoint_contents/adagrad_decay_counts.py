"""Converts AdagradDecay's decay counts between their two layouts.

A decay count is the number of decays of one row of the accumulator. With dense gradients, the first
count is the number of decays of the whole variable. `AdagradDecayOptimizer` (V1) stores the counts
in an array of the variable's shape, but reads only the first elements of the flattened array, one
for each row. In a partitioned variable, these are the first elements of each part.
`AdagradDecayOptimizerV2` (V2) stores only these elements, in an array of shape [rows].
"""

import numpy as np

from ...arrays import slices, whole

SLOT = "accumulator_decay_power"


def by_rows(counts, parts=()):
    """Converts counts in the V1 or V2 layout to one count per row, the V2 layout.

    If the parts of the variable are known, as pairs (shape of the part, offset of the part in the
    variable), the counts of each part are converted separately, and elements that are no counts
    are ignored. The result has the shape [rows], or [] for a scalar variable.

    Raises:
      ValueError: the parts are unknown, and the array may contain counts of several parts; or two
        parts that contain the same rows have different counts.
    """
    if not parts:
        rows = counts.shape[0] if counts.shape else 1
        beyond = counts.reshape(-1)[rows:]
        # Equal numbers are no counts of rows: old versions set a part's elements to one number.
        if np.any(beyond != beyond[-1:]):
            raise ValueError(
                f"there are counts beyond the first {rows} elements. Only a partitioned variable "
                "has such counts, and the checkpoint does not contain its partitions"
            )
        return rows_of(counts)
    rows = np.zeros(counts.shape[:1], counts.dtype)
    has_count = np.zeros(rows.shape, bool)
    # Later parts do not replace the count of row 0: dense gradients count in the first part.
    for shape, offset in sorted(parts, key=lambda part: tuple(part[1])):
        part_rows = slice(offset[0], offset[0] + shape[0]) if offset else ()
        part_counts = rows_of(counts[slices(shape, offset)])
        if offset and offset[0] == 0 and any(offset):
            part_counts[0] = rows[0]
        if np.any(has_count[part_rows] & (rows[part_rows] != part_counts)):
            raise ValueError("two parts with the same rows have different counts")
        rows[part_rows] = part_counts
        has_count[part_rows] = True
    return rows


def from_rows(counts, shape, parts=()):
    """Converts counts in the V2 layout, one per row, to an array of the given shape.

    `by_rows`, with the same `parts`, converts this array back to `counts`.
    """
    result = np.zeros(shape, counts.dtype)
    for part_shape, offset in parts or [whole(shape)]:
        rows = counts[offset[0] : offset[0] + part_shape[0]] if offset else counts
        result[slices(part_shape, offset)] = change_layout(rows, part_shape)
    return result


def converted(counts, parts, shape, new_parts=()):
    """Converts counts of a variable with these parts (see `by_rows`) to another shape and parts."""
    return from_rows(by_rows(counts, parts), shape, new_parts)


def rows_of(counts):
    """Converts the counts of an unpartitioned variable, or of one part, to one count per row."""
    return change_layout(counts, counts.shape[:1])


def change_layout(counts, shape):
    """Converts the counts of an unpartitioned variable, or of one part, to its shape or [rows]."""
    rows = shape[0] if shape else 1
    flat = counts.reshape(-1)
    result = np.zeros(shape, counts.dtype)
    result.reshape(-1)[:rows] = flat[:rows]
    return result

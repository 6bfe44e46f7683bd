"""Converts AdagradDecay's decay counts between their two layouts.

A decay count is the number of decays of one row of the accumulator. With dense gradients, the first
count is the number of decays of the whole variable. `AdagradDecayOptimizer` (V1) stores the counts
in an array of the variable's shape, but reads only the first elements of the flattened array, one
for each row.
`AdagradDecayOptimizerV2` (V2) stores only these elements, in an array of shape [rows].
"""

import numpy as np

SLOT = "accumulator_decay_power"


def by_rows(counts, parts=()):
    """Converts counts in the V1 or V2 layout to one count per row, the V2 layout.

    Args:
      counts: an integer array.
      parts: for a partitioned variable, a pair (shape of the part, offset of the part in the
        variable) for each part. The counts of each part are converted separately.

    Returns:
      An array of shape [rows], or of shape [] for a scalar variable.

    Raises:
      ValueError: `change_layout` raised it, or two parts that contain the same rows have different
        counts.
    """
    rows = np.zeros(counts.shape[:1], counts.dtype)
    if not parts:
        return change_layout(counts, rows.shape)
    seen = np.zeros(rows.shape, bool)
    for shape, offset in parts:
        here = slice(offset[0], offset[0] + shape[0])
        found = change_layout(counts[slices(shape, offset)], shape[:1])
        if np.any(seen[here] & (rows[here] != found)):
            raise ValueError("two parts with the same rows have different counts")
        rows[here], seen[here] = found, True
    return rows


def from_rows(counts, shape, parts=()):
    """Converts counts in the V2 layout, one per row, to an array of the given shape.

    `by_rows`, with the same `parts`, converts this array back to `counts`.
    """
    if not parts:
        return change_layout(counts, shape)
    result = np.zeros(shape, counts.dtype)
    for part_shape, offset in parts:
        rows, here = counts[offset[0] : offset[0] + part_shape[0]], slices(part_shape, offset)
        # Dense gradients increment all elements of a part, so if all counts are equal, their value
        # is written to all elements. Different counts come from sparse gradients, which increment
        # only the first elements.
        same = rows.size and np.all(rows == rows[0])
        result[here] = rows[0] if same else change_layout(rows, part_shape)
    return result


def slices(shape, offset):
    """Returns the slices that select a part of an array."""
    return tuple(slice(start, start + size) for size, start in zip(shape, offset))


def change_layout(counts, shape):
    """Converts the counts of an unpartitioned variable, or of one part, to the given shape.

    Args:
      counts: an integer array in the V1 or V2 layout.
      shape: the new shape: [rows], or the shape of the variable.

    Returns:
      An array of that shape.

    Raises:
      ValueError: the counts differ, and an element after the first shape[0] elements is not 0. Only
        a partitioned variable has such counts.
    """
    rows = shape[0] if shape else 1
    flat = counts.reshape(-1)
    # Equal counts are no error, because dense gradients increment all elements of a part.
    if np.any(flat != flat[:1]) and np.any(flat[rows:]):
        raise ValueError(
            f"there are counts beyond the first {rows} elements. Only a partitioned variable has "
            "such counts, and the checkpoint does not contain its partitions"
        )
    result = np.zeros(shape, counts.dtype)
    result.reshape(-1)[:rows] = flat[:rows]
    return result

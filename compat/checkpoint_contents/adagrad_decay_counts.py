"""The two layouts of AdagradDecay's counts of decays, and how one becomes the other.

`AdagradDecayOptimizer` (V1) keeps them in the variable's shape and uses the first [rows] numbers of
the flat array; `AdagradDecayOptimizerV2` (V2) keeps just those.
"""

import numpy as np

SLOT = "accumulator_decay_power"


def by_rows(counts, parts=()):
    """Brings counts of either layout to one a row, as V2 has them.

    Args:
      counts: an integer array.
      parts: pairs (shape, offset), where the variable was partitioned: each part counts for itself.

    Returns:
      An array of the shape [rows], or [] of a scalar.

    Raises:
      ValueError: there are counts where there can be none, or the parts' counts differ.
    """
    rows = np.zeros(counts.shape[:1], counts.dtype)
    if not parts:
        return relay(counts, rows.shape)
    seen = np.zeros(rows.shape, bool)
    for shape, offset in parts:
        here = slice(offset[0], offset[0] + shape[0])
        found = relay(counts[slices(shape, offset)], shape[:1])
        if np.any(seen[here] & (rows[here] != found)):
            raise ValueError("the counts of its parts differ, though they are of the same rows")
        rows[here], seen[here] = found, True
    return rows


def from_rows(counts, shape, parts=()):
    """Brings counts of the shape [rows] to any layout; the reverse of `by_rows`."""
    if not parts:
        return relay(counts, shape)
    result = np.zeros(shape, counts.dtype)
    for part_shape, offset in parts:
        rows, here = counts[offset[0] : offset[0] + part_shape[0]], slices(part_shape, offset)
        # Dense gradients count in all elements of a part; if others did, these are not read.
        same = rows.size and np.all(rows == rows[0])
        result[here] = rows[0] if same else relay(rows, part_shape)
    return result


def slices(shape, offset):
    """Returns what takes a part out of an array."""
    return tuple(slice(start, start + size) for size, start in zip(shape, offset))


def relay(counts, shape):
    """Brings counts to a shape: [rows], or that of the variable.

    Args:
      counts: an integer array of either layout.
      shape: the shape of the other one, or the same.

    Returns:
      An array of that shape.

    Raises:
      ValueError: there are counts where an unpartitioned variable has none.
    """
    rows = shape[0] if shape else 1
    flat = counts.reshape(-1)
    if np.any(flat != flat[:1]) and np.any(flat[rows:]):  # dense gradients count in all of a part
        raise ValueError(
            f"there are counts beyond the first {rows} numbers, as in a partitioned variable "
            "that was saved whole, where they cannot be told apart"
        )
    result = np.zeros(shape, counts.dtype)
    result.reshape(-1)[:rows] = flat[:rows]
    return result

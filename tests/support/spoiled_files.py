"""Numbers that are not finite, in files."""

import numpy as np

ODD = (np.nan, np.inf, -np.inf)


def spoiled(value):
    """Returns an array with NaN and infinities in it, if they can be there."""
    value = np.array(value)
    if value.dtype.kind == "f":
        value.reshape(-1)[: len(ODD)] = ODD[: value.size]
    return value

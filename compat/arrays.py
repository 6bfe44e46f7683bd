"""Comparisons of arrays in which NaN equals NaN."""

import numpy as np


def same(one, other):
    """Whether two arrays hold the same numbers in the same shape."""
    one, other = np.asarray(one), np.asarray(other)
    return one.shape == other.shape and bool(np.all(_equal(one, other)))


def largest_difference(one, other):
    """Returns the largest difference of two arrays of numbers of one shape, a float.

    It is infinite where one number is NaN or infinite and the other is not the same.
    """
    one, other = np.float64(one), np.float64(other)
    with np.errstate(invalid="ignore"):  # infinity minus infinity
        gaps = np.where(_equal(one, other), 0.0, np.abs(one - other))
    largest = float(np.max(gaps, initial=0.0))
    return largest if np.isfinite(largest) else np.inf


def _equal(one, other):
    return (one == other) | ((one != one) & (other != other))

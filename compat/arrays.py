"""Compares arrays, where NaN is treated as equal to NaN, and counts their elements."""

from __future__ import annotations

import functools
import operator
from typing import Any, Sequence

import numpy as np


def same(one: Any, other: Any) -> bool:
    """Returns whether two arrays have the same shape and the same elements."""
    one, other = np.asarray(one), np.asarray(other)
    return one.shape == other.shape and bool(np.all(_equal(one, other)))


def differences(one: Any, other: Any) -> np.ndarray:
    """Returns the absolute differences between the elements of two arrays of the same shape.

    They are infinite where two elements differ and at least one is NaN or infinite.
    """
    one, other = np.float64(one), np.float64(other)
    with np.errstate(invalid="ignore"):  # NumPy warns of infinity minus infinity
        gaps = np.where(_equal(one, other), 0.0, np.abs(one - other))
    return np.where(np.isnan(gaps), np.inf, gaps)


def _equal(one: Any, other: Any) -> Any:
    return (one == other) | ((one != one) & (other != other))  # only NaN differs from itself


def count(shape: Sequence[Any]) -> int:
    """Returns the number of elements of an array, in Python's integers, which do not overflow."""
    return functools.reduce(operator.mul, shape, 1)

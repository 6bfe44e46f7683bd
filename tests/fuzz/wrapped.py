"""Wrappers of optimizers, and NumPy functions that change gradients as the wrappers do."""

from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

import legacy_opt
from tests.support.oracles import sum_duplicates
from tests.support.problems import Rows


def summed(change):
    """Returns a function that sums rows with the same id, and then applies `change`."""

    def changed(gradient):
        if isinstance(gradient, Rows):
            values, ids = sum_duplicates(*gradient)
            return Rows(change(values), ids)
        return change(gradient)

    return changed


def clipped_to(limit):
    """Returns a function that scales an array to a norm of at most `limit`."""

    def shortened(values):
        norm = np.sqrt(np.sum(np.square(values.astype(np.float64))))
        return values * values.dtype.type(min(1.0, limit / norm) if norm else 1.0)

    return shortened


def mean_of(gradients):
    """Returns the mean of gradients. The mean of sparse gradients contains all their rows."""
    first = gradients[0].values if isinstance(gradients[0], Rows) else gradients[0]
    wide = np.promote_types(first.dtype, np.float32).type
    count = wide(len(gradients))
    if isinstance(gradients[0], Rows):
        values, ids = (np.concatenate(parts) for parts in zip(*gradients))
        return Rows((values.astype(wide) / count).astype(first.dtype), ids)
    total = sum(gradient.astype(wide) for gradient in gradients)
    return np.asarray(total / count).astype(first.dtype)


class Wrapper(NamedTuple):
    """A wrapper and its oracle.

    Attributes:
      make: a function of an optimizer and the variable's name; returns the wrapped optimizer.
      change: a function of a gradient; returns the gradient that the inner optimizer receives.
      every: the number of gradients whose mean the wrapper applies.
      dtypes: the dtypes in which `change` computes norms precisely enough.
    """

    make: Any = lambda optimizer, variable: optimizer
    change: Any = lambda gradient: gradient
    every: int = 1
    dtypes: tuple = ("float16", "float32", "float64")


def _multi(optimizer, variable):
    other = tf.compat.v1.train.GradientDescentOptimizer(0.1)
    return legacy_opt.MultiOptimizer([(optimizer, variable)], default=other)


EXACT_NORMS = ("float32", "float64")
WRAPPERS = {
    "": Wrapper(),
    "multi": Wrapper(_multi),
    "by value": Wrapper(
        lambda optimizer, _: legacy_opt.ClipByValueOptimizer(optimizer, -0.5, 0.75),
        summed(lambda values: np.clip(values, values.dtype.type(-0.5), values.dtype.type(0.75))),
    ),
    "by norm": Wrapper(
        lambda optimizer, _: legacy_opt.ClipByNormOptimizer(optimizer, 0.7),
        summed(clipped_to(0.7)),
        dtypes=EXACT_NORMS,
    ),
    "by global norm": Wrapper(
        lambda optimizer, _: legacy_opt.ClipByGlobalNormOptimizer(optimizer, 0.9),
        summed(clipped_to(0.9)),
        dtypes=EXACT_NORMS,
    ),
    "accumulation": Wrapper(
        lambda optimizer, _: legacy_opt.GradientAccumulationOptimizer(optimizer, 2), every=2
    ),
}

"""The base class of NumPy references (oracles); an oracle computes the formula of an optimizer."""

import numpy as np


def sum_duplicates(values, ids):
    """Sums the rows that have equal ids, in the given order; returns (sums, distinct ids)."""
    distinct = np.unique(ids)
    summed = np.zeros((len(distinct),) + values.shape[1:], values.dtype)
    for value, row in zip(values, ids):
        summed[np.searchsorted(distinct, row)] += value
    return summed, distinct


class Oracle:
    """A variable and its slots, trained by one optimizer's formula.

    Attributes:
      value: the variable.
      name: the variable's name.
      slots: the variable's slots by name.
    """

    def __init__(self, value, name=""):
        self.name = name
        self.value = np.array(value)
        self.cast = self.value.dtype.type
        self.slots = {}

    def hyper(self, number):
        """Rounds a hyperparameter to float32 and then to the variable's dtype."""
        return self.cast(np.float32(number))

    def everywhere(self, g, at):
        """Returns the gradient of the whole variable: `g` in the rows `at`, zero in other rows."""
        whole = np.zeros_like(self.value)
        whole[at] = g
        return whole

    def apply(self, gradient, step):
        """Applies one gradient, an array or `Rows`; `step` is the global step."""
        if hasattr(gradient, "ids"):
            values, rows = sum_duplicates(*gradient)
            self.update(values, rows, step)
        else:
            self.update(gradient, Ellipsis, step)

    def update(self, g, at, step):
        """Updates `value[at]`; `at` is Ellipsis (the whole variable) or distinct row numbers."""
        raise NotImplementedError(type(self).__name__)

"""NumPy oracles: what each optimizer means, written from its formula, in the dtype's arithmetic."""

import numpy as np


def sum_duplicates(values, ids):
    """Sums the rows of equal ids, in order; returns (summed, distinct ids)."""
    distinct = np.unique(ids)
    summed = np.zeros((len(distinct),) + values.shape[1:], values.dtype)
    for value, row in zip(values, ids):
        summed[np.searchsorted(distinct, row)] += value
    return summed, distinct


class Oracle:
    """One variable under one optimizer.

    Attributes:
      value: the variable.
      slots: its slots by name.
    """

    def __init__(self, value):
        self.value = np.array(value)
        self.cast = self.value.dtype.type
        self.slots = {}

    def hyper(self, number):
        """A Python float as the optimizer sees it: through float32, in the variable's dtype."""
        return self.cast(np.float32(number))

    def apply(self, gradient, step):
        """Applies one gradient (an array, or `Rows`) at global step `step`."""
        if hasattr(gradient, "ids"):
            values, rows = sum_duplicates(*gradient)
            self.update(values, rows, step)
        else:
            self.update(gradient, Ellipsis, step)

    def update(self, g, at, step):
        """Updates `value[at]`: `at` is Ellipsis for all, or distinct row numbers."""
        raise NotImplementedError(type(self).__name__)


class AdagradDecay(Oracle):
    """DeepRec's AdagradDecay; `layout` is 1 (count per element) or 2 (count per row)."""

    def __init__(
        self,
        value,
        learning_rate,
        initial_accumulator_value=0.1,
        accumulator_decay_step=100000,
        accumulator_decay_rate=0.9,
        layout=1,
        global_step_dtype=np.int64,
    ):
        super().__init__(value)
        self.lr, self.rate = self.hyper(learning_rate), self.hyper(accumulator_decay_rate)
        self.floor, self.period = self.hyper(initial_accumulator_value), accumulator_decay_step
        shape = self.value.shape
        self.slots = {
            "accumulator": np.full(shape, self.cast(initial_accumulator_value)),
            "accumulator_decay_power": np.zeros(
                shape if layout == 1 else shape[:1], global_step_dtype
            ),
        }

    def update(self, g, at, step):
        accumulator, power = self.slots["accumulator"], self.slots["accumulator_decay_power"]
        if self.value.size == 0:
            return
        periods = (step + 1) // self.period
        flat = power.reshape(-1)  # a view
        for row in [0] if at is Ellipsis else at:
            if periods > flat[row]:
                here = Ellipsis if at is Ellipsis else row
                accumulator[here] = np.maximum(accumulator[here] * self.rate, self.floor)
                flat[row] += 1
        accumulator[at] += g * g
        self.value[at] -= self.lr * g / np.sqrt(accumulator[at])

"""The NumPy reference (oracle) and the test cases of AdagradDecay."""

import functools

import numpy as np

import legacy_opt
from tests.support import oracles
from tests.support.optimizer_cases.case import Case


class AdagradDecay(oracles.Oracle):
    """DeepRec's AdagradDecay.

    The slot `accumulator_decay_power` counts how often each row of the accumulator has decayed. The
    slot has the variable's shape (`layout` 1) or the shape [rows] (`layout` 2). With sparse
    gradients, element i of the flattened slot is the count of row i. With dense gradients, element
    0 is the common count of all rows.
    """

    def __init__(
        self,
        value,
        name,
        learning_rate,
        initial_accumulator_value=0.1,
        accumulator_decay_step=100000,
        accumulator_decay_rate=0.9,
        layout=1,
        global_step_dtype=np.int64,
    ):
        super().__init__(value, name)
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


def _adagrad_decay(optimizer, layout, **arguments):
    oracle = functools.partial(AdagradDecay, layout=layout, **arguments)
    # 4 ulps (units in the last place), because some kernels approximate 1/sqrt with one Newton
    # iteration, or fuse a multiplication and an addition.
    return Case(optimizer, arguments, oracle, ulps=4)


_DECAYING = {
    "learning_rate": 0.3,
    "initial_accumulator_value": 0.2,
    "accumulator_decay_step": 4,
    "accumulator_decay_rate": 0.5,
}

CASES = {
    "AdagradDecay": _adagrad_decay(legacy_opt.AdagradDecayOptimizer, 1, **_DECAYING),
    "AdagradDecay-never": _adagrad_decay(legacy_opt.AdagradDecayOptimizer, 1, learning_rate=0.3),
    "AdagradDecayV2": _adagrad_decay(legacy_opt.AdagradDecayOptimizerV2, 2, **_DECAYING),
}

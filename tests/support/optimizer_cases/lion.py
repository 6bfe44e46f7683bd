"""The NumPy reference (oracle) and the test cases of Lion."""

import functools

import numpy as np

import legacy_opt
from tests.support import oracles
from tests.support.optimizer_cases.case import Case


class Lion(oracles.Oracle):
    def __init__(self, value, name, learning_rate, beta_1=0.9, beta_2=0.99, weight_decay=0.0):
        super().__init__(value, name)
        numbers = learning_rate, beta_1, beta_2, weight_decay
        self.lr, self.beta_1, self.beta_2, self.weight_decay = map(self.hyper, numbers)
        self.slots = {"momentum": np.zeros_like(self.value)}

    def update(self, g, at, step):
        momentum, one = self.slots["momentum"], self.cast(1)
        direction = np.sign(self.beta_1 * momentum[at] + (one - self.beta_1) * g)
        self.value[at] -= self.lr * (direction + self.weight_decay * self.value[at])
        momentum[at] = self.beta_2 * momentum[at] + (one - self.beta_2) * g


def _case(**arguments):
    # 1 ulp (unit in the last place), because a kernel may fuse a multiplication and an addition.
    oracle = functools.partial(Lion, **arguments)
    return Case(legacy_opt.LionOptimizer, arguments, oracle, ulps=1)


CASES = {
    "Lion": _case(learning_rate=0.05),
    "Lion weight_decay": _case(learning_rate=0.1, beta_1=0.8, beta_2=0.7, weight_decay=0.2),
}

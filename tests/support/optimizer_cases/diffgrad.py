"""The NumPy reference (oracle) and the test case of DiffGrad."""

import functools

import numpy as np

import legacy_opt
from tests.support.optimizer_cases.adam import ARGUMENTS, LazyAdam
from tests.support.optimizer_cases.case import Case


class DiffGrad(LazyAdam):
    """LazyAdam with friction: smaller updates where the gradient changes little."""

    def __init__(self, value, name, **arguments):
        super().__init__(value, name, **arguments)
        self.slots["prev_grad"] = np.zeros_like(self.value)

    def update(self, g, at, step):
        m, v, one = self.slots["m"], self.slots["v"], self.cast(1)
        m[at] = self.beta1 * m[at] + (one - self.beta1) * g
        v[at] = self.beta2 * v[at] + (one - self.beta2) * (g * g)
        friction = one / (one + np.exp(-np.abs(self.slots["prev_grad"][at] - g)))
        self.value[at] -= self.rate() * (friction * m[at] / (np.sqrt(v[at]) + self.epsilon))
        self.slots["prev_grad"][at] = g


CASES = {
    # 4 ulps (units in the last place), because TensorFlow's Adam kernel computes the first moment
    # by m + (g - m) * (1 - beta1), and because vectorized exp is approximate.
    "DiffGrad": Case(
        legacy_opt.DiffGradOptimizer, ARGUMENTS, functools.partial(DiffGrad, **ARGUMENTS), ulps=4
    ),
}

"""The NumPy reference (oracle) and the test cases of ConditionalGradient."""

import functools

import numpy as np

import legacy_opt
from tests.support import oracles
from tests.support.optimizer_cases.case import Case


class ConditionalGradient(oracles.Oracle):
    def __init__(self, value, name, learning_rate, lambda_=0.01, epsilon=1e-7):
        super().__init__(value, name)
        self.lr, self.lambda_ = self.hyper(learning_rate), self.hyper(lambda_)
        self.epsilon = self.cast(epsilon)

    def update(self, g, at, step):
        norm = np.sqrt(np.sum(g * g)).astype(g.dtype)
        length = (self.cast(1) - self.lr) * self.lambda_
        self.value[at] = self.value[at] * self.lr - length * (g / (norm + self.epsilon))


_ARGUMENTS = {"learning_rate": 0.9, "lambda_": 3.0, "epsilon": 0.01}

CASES = {
    # 4 ulps (units in the last place), because TensorFlow and NumPy sum the squares of a norm in
    # different orders.
    "ConditionalGradient": Case(
        legacy_opt.ConditionalGradientOptimizer,
        _ARGUMENTS,
        functools.partial(ConditionalGradient, **_ARGUMENTS),
        ulps=4,
    ),
}

"""NumPy references (oracles) and test cases of LARS and RegAdagrad."""

import functools

import numpy as np

import legacy_opt
from tests.support import oracles
from tests.support.optimizer_cases.case import Case, Original


class LARS(oracles.Oracle):
    def __init__(
        self,
        value,
        name,
        learning_rate,
        momentum=0.9,
        weight_decay=0.0001,
        eeta=0.001,
        epsilon=0.0,
        skip_list=(),
        use_nesterov=False,
    ):
        super().__init__(value, name)
        self.rounded = self.hyper(learning_rate), self.hyper(momentum)
        numbers = learning_rate, momentum, weight_decay, eeta, epsilon
        # These numbers are cast directly to the variable's dtype, not through float32.
        self.numbers = [self.cast(number) for number in numbers]
        self.skipped = any(text in name + ":0" for text in skip_list)
        self.nesterov = use_nesterov
        self.slots = {"momentum": np.zeros_like(self.value)}

    def update(self, g, at, step):
        one = self.cast(1)
        if at is not Ellipsis:  # sparse gradients are applied by plain Momentum
            self.momentum(g, at, *self.rounded)
            return
        lr, mu, weight_decay, eeta, epsilon = self.numbers
        if not self.skipped:
            w_norm, g_norm = (np.sqrt(np.sum(x * x)).astype(x.dtype) for x in (self.value, g))
            trust = one
            if w_norm > 0 and g_norm > 0:
                trust = eeta * w_norm / (g_norm + weight_decay * w_norm + epsilon)
            lr, g = lr * trust, g + weight_decay * self.value
        self.momentum(g * lr, at, one, mu)

    def momentum(self, g, at, lr, mu):
        accumulator = self.slots["momentum"]
        accumulator[at] = accumulator[at] * mu + g
        step = g + mu * accumulator[at] if self.nesterov else accumulator[at]
        self.value[at] -= lr * step


class RegAdagrad(oracles.Oracle):
    def __init__(self, value, name, learning_rate, initial_accumulator_value=0.1):
        super().__init__(value, name)
        self.lr = self.hyper(learning_rate)
        initial = self.cast(initial_accumulator_value)
        self.slots = {"accumulator": np.full(self.value.shape, initial)}

    def update(self, g, at, step):
        accumulator = self.slots["accumulator"]
        accumulator[at] += g * g
        self.value[at] -= self.lr * g / np.sqrt(accumulator[at])


def _lars(**arguments):
    # 4 ulps (units in the last place), because updates are multiplied by a ratio of norms, and
    # TensorFlow and NumPy sum the squares of a norm in different orders.
    return Case(
        legacy_opt.LARSOptimizer,
        arguments,
        functools.partial(LARS, **arguments),
        ulps=4,
        original=Original("LARSOptimizer"),
    )


_REG_ADAGRAD = {"learning_rate": 0.3, "initial_accumulator_value": 0.2}

CASES = {
    "LARS": _lars(learning_rate=0.5, weight_decay=0.03, eeta=0.4),
    "LARS nesterov, skip_list": _lars(
        learning_rate=0.3,
        momentum=0.7,
        weight_decay=0.1,
        eeta=0.5,
        epsilon=0.3,
        skip_list=["vec", "nothing"],
        use_nesterov=True,
    ),
    # 4 ulps, because some kernels approximate 1/sqrt with one Newton iteration.
    "RegAdagrad": Case(
        legacy_opt.RegAdagradOptimizer,
        _REG_ADAGRAD,
        functools.partial(RegAdagrad, **_REG_ADAGRAD),
        ulps=4,
        original=Original("RegAdagradOptimizer"),
    ),
}

"""NumPy references (oracles) and test cases of AddSign and PowerSign."""

import functools
import math

import numpy as np

import legacy_opt
from tests.support import oracles
from tests.support.optimizer_cases.case import Case, Original


class Sign(oracles.Oracle):
    """The base class of AddSign and PowerSign; updates depend on the signs of `g` and slot `m`."""

    def __init__(self, value, name, learning_rate=0.1, beta=0.9, decay=lambda step: 1.0):
        super().__init__(value, name)
        self.lr, self.beta, self.decay = self.hyper(learning_rate), self.hyper(beta), decay
        self.slots = {"m": np.zeros_like(self.value)}

    def update(self, g, at, step):
        m = self.slots["m"]
        moved = m[at] * self.beta + g * (self.cast(1) - self.beta)
        m *= self.beta  # also in rows without a gradient
        m[at] = moved
        sign = self.hyper(self.decay(step)) * np.sign(g) * np.sign(moved)
        self.value[at] -= self.lr * self.multiplier(sign, at is not Ellipsis) * g

    def multiplier(self, sign, sparse):
        raise NotImplementedError


class AddSign(Sign):
    def __init__(self, *args, alpha=1.0, **kwargs):
        super().__init__(*args, **kwargs)
        self.alpha = self.hyper(alpha)

    def multiplier(self, sign, sparse):
        return self.alpha + sign


class PowerSign(Sign):
    def __init__(self, *args, base=math.e, **kwargs):
        super().__init__(*args, **kwargs)
        self.logbase = self.hyper(math.log(base))

    def multiplier(self, sign, sparse):
        exponent = self.logbase * sign
        return np.power(self.hyper(math.e), exponent) if sparse else np.exp(exponent)


def _falling(steps):
    """Returns `get_linear_decay_fn(steps)` in plain Python; exact if `steps` is a power of two."""
    return lambda step: max(0, steps - step) / steps


def _case(name, oracle, decay=None, **arguments):
    optimizer = getattr(legacy_opt, name)
    oracle = functools.partial(oracle, **arguments, **({"decay": decay[1]} if decay else {}))
    if decay:
        arguments["sign_decay_fn"] = decay[0]
    # 4 ulps (units in the last place), because exp and pow have errors of one or two ulps, and a
    # kernel may fuse a multiplication and an addition.
    return Case(optimizer, arguments, oracle, 4, Original(name, ref_only=True))


CASES = {
    "AddSign": _case("AddSignOptimizer", AddSign, learning_rate=0.05),
    "AddSign alpha, beta, decay": _case(
        "AddSignOptimizer",
        AddSign,
        (legacy_opt.get_linear_decay_fn(8), _falling(8)),
        learning_rate=0.05,
        alpha=0.7,
        beta=0.8,
    ),
    "PowerSign base, beta, decay": _case(
        "PowerSignOptimizer",
        PowerSign,
        (legacy_opt.get_linear_decay_fn(16), _falling(16)),
        learning_rate=0.05,
        base=2.5,
        beta=0.8,
    ),
}

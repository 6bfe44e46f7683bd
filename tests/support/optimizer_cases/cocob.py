"""The NumPy reference (oracle) and the test cases of COCOB."""

import functools

import numpy as np

import legacy_opt
from tests.support import oracles
from tests.support.optimizer_cases.case import Case


class COCOB(oracles.Oracle):
    def __init__(self, value, name, alpha=100.0):
        super().__init__(value, name)
        self.alpha = self.cast(alpha)
        names = "lr", "grad_norm_sum", "gradients_sum", "tilde_w", "reward"
        self.slots = {each: np.zeros_like(self.value) for each in names}
        self.slots["lr"] = np.full_like(self.value, self.cast(1e-8))

    def update(self, g, at, step):
        slots = self.slots
        slots["lr"][at] = np.maximum(slots["lr"][at], np.abs(g))
        slots["grad_norm_sum"][at] += np.abs(g)
        slots["gradients_sum"][at] += g
        won = slots["reward"][at] - g * slots["tilde_w"][at]
        slots["reward"][at] = np.maximum(won, self.cast(0))
        lr = slots["lr"][at]
        divisor = lr * np.maximum(slots["grad_norm_sum"][at] + lr, self.alpha * lr)
        bet = -slots["gradients_sum"][at] / divisor * (slots["reward"][at] + lr)
        self.value[at] = self.value[at] - slots["tilde_w"][at] + bet
        slots["tilde_w"][at] = bet


def _case(**arguments):
    # 4 ulps (units in the last place), because a division of tensors may be approximate.
    oracle = functools.partial(COCOB, **arguments)
    dtypes = "float32", "float64"  # the slot `lr` starts at 1e-8, which is 0 in float16
    return Case(legacy_opt.COCOBOptimizer, arguments, oracle, ulps=4, dtypes=dtypes)


CASES = {"COCOB": _case(alpha=8.0), "COCOB alpha=100": _case()}

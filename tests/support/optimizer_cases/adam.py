"""NumPy references (oracles) and test cases of variants of Adam, such as LazyAdam and Nadam."""

import functools

import numpy as np

import legacy_opt
from tests.support import oracles
from tests.support.optimizer_cases.case import Case, Original


class LazyAdam(oracles.Oracle):
    """Adam that updates only the rows of the gradient."""

    def __init__(self, value, name, learning_rate, beta1, beta2, epsilon):
        super().__init__(value, name)
        self.lr, self.epsilon = self.hyper(learning_rate), self.hyper(epsilon)
        self.beta1, self.beta2 = self.hyper(beta1), self.hyper(beta2)
        self.betas = np.float32([beta1, beta2])
        self.powers = self.betas.copy()
        self.slots = {"m": np.zeros_like(self.value), "v": np.zeros_like(self.value)}

    def apply(self, gradient, step):
        super().apply(gradient, step)
        self.powers *= self.betas

    def rate(self):
        one, (power1, power2) = self.cast(1), self.powers.astype(self.cast)
        return self.lr * np.sqrt(one - power2) / (one - power1)

    def update(self, g, at, step):
        m, v, one = self.slots["m"], self.slots["v"], self.cast(1)
        m[at] = self.beta1 * m[at] + (one - self.beta1) * g
        v[at] = self.beta2 * v[at] + (one - self.beta2) * (g * g)
        self.value[at] -= self.rate() * m[at] / (np.sqrt(v[at]) + self.epsilon)


class LazyAdamGS(LazyAdam):
    """LazyAdam that computes the beta powers from the global step."""

    def apply(self, gradient, step):
        # Compute the powers in float64 and round them to float32. NumPy's vectorized float32 pow is
        # less exact, and its errors would be visible in float64 variables.
        self.powers = (self.betas.astype(np.float64) ** (step + 1)).astype(np.float32)
        super().apply(gradient, step)


class AdamGS(LazyAdamGS):
    """LazyAdamGS, but rows without a gradient get a zero gradient."""

    def update(self, g, at, step):
        super().update(self.everywhere(g, at), Ellipsis, step)


class Nadam(LazyAdam):
    """Nadam. The moments decay in all rows; the variable changes only in the gradient's rows."""

    def update(self, g, at, step):
        m, v, one = self.slots["m"], self.slots["v"], self.cast(1)
        m *= self.beta1
        v *= self.beta2
        m[at] += (one - self.beta1) * g
        v[at] += (one - self.beta2) * (g * g)
        ahead = (one - self.beta1) * g + self.beta1 * m[at]
        self.value[at] -= self.rate() * ahead / (np.sqrt(v[at]) + self.epsilon)


class AdaMax(LazyAdam):
    """Adam with the infinity norm instead of the second moment."""

    def update(self, g, at, step):
        m, v, one = self.slots["m"], self.slots["v"], self.cast(1)
        m[at] = self.beta1 * m[at] + (one - self.beta1) * g
        v[at] = np.maximum(self.beta2 * v[at], np.abs(g))
        rate = self.lr / (one - self.cast(self.powers[0]))
        self.value[at] -= rate * (m[at] / (v[at] + self.epsilon))


class AdamAsync(LazyAdam):
    """LazyAdam in which each variable has its own beta powers.

    With `apply_sparse_rmsprop`, sparse gradients are applied by RMSProp with momentum, and do not
    change the powers.
    """

    def __init__(self, value, name, apply_sparse_rmsprop=False, **arguments):
        super().__init__(value, name, **arguments)
        self.apply_sparse_rmsprop = apply_sparse_rmsprop
        for i in range(2):
            self.slots[f"beta{i + 1}_power"] = self.powers[i : i + 1].reshape(())  # a view

    def apply(self, gradient, step):
        powers = self.powers.copy()
        super().apply(gradient, step)
        if self.apply_sparse_rmsprop and hasattr(gradient, "ids"):
            self.powers[:] = powers

    def update(self, g, at, step):
        if at is Ellipsis or not self.apply_sparse_rmsprop:
            super().update(g, at, step)
            return
        m, v, one = self.slots["m"], self.slots["v"], self.cast(1)
        v[at] = self.beta2 * v[at] + (one - self.beta2) * (g * g)
        m[at] = self.beta1 * m[at] + self.lr * g / np.sqrt(v[at] + self.epsilon)
        self.value[at] -= m[at]


# The default arguments do not work in 16 bits, because 1e-8 is 0 in float16 and 0.999 is 1 in
# bfloat16.
ARGUMENTS = {"learning_rate": 0.05, "beta1": 0.9, "beta2": 0.98, "epsilon": 1e-3}


def _adam(optimizer, oracle, has_original=True, **options):
    arguments = dict(ARGUMENTS, **options)
    # 4 ulps (units in the last place), because TensorFlow's kernels compute the first moment by
    # m + (g - m) * (1 - beta1), and use another instruction for square roots than NumPy. The bias
    # correction multiplies the errors of the first steps.
    original = Original(optimizer.__name__) if has_original else None
    return Case(optimizer, arguments, functools.partial(oracle, **arguments), 4, original)


CASES = {
    "LazyAdam": _adam(legacy_opt.LazyAdamOptimizer, LazyAdam),
    "AdamGS": _adam(legacy_opt.AdamGSOptimizer, AdamGS),
    "LazyAdamGS": _adam(legacy_opt.LazyAdamGSOptimizer, LazyAdamGS),
    "Nadam": _adam(legacy_opt.NadamOptimizer, Nadam),
    "AdaMax": _adam(legacy_opt.AdaMaxOptimizer, AdaMax),
    "AdamAsync": _adam(legacy_opt.AdamAsyncOptimizer, AdamAsync, has_original=False),
    "AdamAsync apply_sparse_rmsprop": _adam(
        legacy_opt.AdamAsyncOptimizer, AdamAsync, has_original=False, apply_sparse_rmsprop=True
    ),
}

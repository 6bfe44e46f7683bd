"""NumPy references (oracles) and test cases of optimizers with decoupled weight decay."""

import functools

import numpy as np
import tensorflow as tf

import legacy_opt
from tests.support import oracles
from tests.support.optimizer_cases import adagrad_decay, adam
from tests.support.optimizer_cases.case import Case, Original

v1 = tf.compat.v1.train


class Adam(adam.LazyAdam):
    """TensorFlow's Adam; rows without a gradient get a zero gradient."""

    def update(self, g, at, step):
        super().update(self.everywhere(g, at), Ellipsis, step)


class Momentum(oracles.Oracle):
    """TensorFlow's Momentum with use_nesterov=True."""

    def __init__(self, value, name, learning_rate, momentum, use_nesterov):
        super().__init__(value, name)
        assert use_nesterov
        self.lr, self.mu = self.hyper(learning_rate), self.hyper(momentum)
        self.slots = {"momentum": np.zeros_like(self.value)}

    def update(self, g, at, step):
        momentum = self.slots["momentum"]
        momentum[at] = momentum[at] * self.mu + g
        self.value[at] -= g * self.lr + momentum[at] * self.mu * self.lr


class Adagrad(oracles.Oracle):
    """TensorFlow's Adagrad."""

    def __init__(self, value, name, learning_rate):
        super().__init__(value, name)
        self.lr = self.hyper(learning_rate)
        self.slots = {"accumulator": np.full_like(self.value, 0.1)}

    def update(self, g, at, step):
        accumulator = self.slots["accumulator"]
        accumulator[at] += g * g
        self.value[at] -= self.lr * g / np.sqrt(accumulator[at])


class Decaying:
    """Decays the weights in the gradient's rows before the update; a mixin for oracles."""

    def __init__(self, value, name, weight_decay, **arguments):
        super().__init__(value, name, **arguments)
        # The decay is cast directly to the variable's dtype, not through float32.
        self.weight_decay = self.cast(weight_decay)

    def update(self, g, at, step):
        self.value[at] -= self.weight_decay * self.value[at]
        super().update(g, at, step)


def _case(
    optimizer, oracle, ulps, original=None, oracle_arguments=None, regrouped=False, **arguments
):
    decaying = type("Decaying" + oracle.__name__, (Decaying, oracle), {})
    arguments["weight_decay"] = 0.03
    made = functools.partial(decaying, **dict(arguments, **oracle_arguments or {}))
    return Case(optimizer, dict(arguments), made, ulps, original, regrouped)


def _extended(base, oracle, ulps, original=None, **arguments):
    optimizer = legacy_opt.extend_with_decoupled_weight_decay(base)
    return _case(optimizer, oracle, ulps, original, **arguments)


# The default epsilon does not work in 16 bits, because 1e-8 is 0 in float16.
_ADAM = {"learning_rate": 0.05, "beta1": 0.9, "beta2": 0.98, "epsilon": 1e-3}

CASES = {
    # 4 ulps (units in the last place), because TensorFlow's kernels compute the first moment by
    # m + (g - m) * (1 - beta1), and may fuse a multiplication and an addition.
    "AdamW": _case(
        legacy_opt.AdamWOptimizer, Adam, 4, Original("AdamWOptimizer"), regrouped=True, **_ADAM
    ),
    # 4 ulps, because a kernel may fuse a multiplication and an addition.
    "MomentumW use_nesterov": _case(
        legacy_opt.MomentumWOptimizer,
        Momentum,
        4,
        Original("MomentumWOptimizer"),
        learning_rate=0.1,
        momentum=0.9,
        use_nesterov=True,
    ),
    # 4 ulps in the following two cases, because some kernels approximate 1/sqrt with one Newton
    # iteration.
    "Adagrad with weight decay": _extended(
        v1.AdagradOptimizer,
        Adagrad,
        4,
        Original("extend_with_decoupled_weight_decay", base=v1.AdagradOptimizer),
        learning_rate=0.3,
    ),
    "AdagradDecayV2 with weight decay": _extended(
        legacy_opt.AdagradDecayOptimizerV2,
        adagrad_decay.AdagradDecay,
        4,
        learning_rate=0.3,
        accumulator_decay_step=4,
        accumulator_decay_rate=0.5,
        oracle_arguments={"layout": 2},
    ),
}

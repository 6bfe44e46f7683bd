"""NumPy references (oracles) and test cases of BERT's AdamWeightDecay and of LAMB."""

import functools

import numpy as np

import legacy_opt
from tests.support import oracles
from tests.support.optimizer_cases.case import Case


class AdamWeightDecay(oracles.Oracle):
    """BERT's Adam; rows without a gradient get a zero gradient."""

    def __init__(
        self,
        value,
        name,
        learning_rate,
        weight_decay_rate,
        beta_1,
        beta_2,
        epsilon,
        exclude_from_weight_decay=(),
    ):
        super().__init__(value, name)
        # Python floats are cast directly to the variable's dtype, not through float32.
        self.lr, self.epsilon = self.cast(learning_rate), self.cast(epsilon)
        self.decay = self.cast(weight_decay_rate)
        self.betas = beta_1, beta_2
        self.excluded = any(part in name for part in exclude_from_weight_decay)
        self.slots = {"m": np.zeros_like(self.value), "v": np.zeros_like(self.value)}

    def update(self, g, at, step):
        everywhere = self.everywhere(g, at)
        for slot, beta, new in zip("mv", self.betas, (everywhere, everywhere * everywhere)):
            kept = self.cast(beta) * self.slots[slot]
            self.slots[slot] = np.asarray(kept + self.cast(1 - beta) * new)
        direction = self.direction(self.slots["m"], self.slots["v"], step)
        if not self.excluded:
            direction = direction + self.decay * self.value
        self.value = np.asarray(self.value - self.rate(direction) * direction)

    def direction(self, m, v, step):
        return m / (np.sqrt(v) + self.epsilon)

    def rate(self, direction):
        return self.lr


class LAMB(AdamWeightDecay):
    """LAMB; variables excluded from weight decay are also excluded from the trust ratio."""

    def __init__(self, *arguments, bias_correction=True, **named):
        super().__init__(*arguments, **named)
        self.bias_correction = bias_correction

    def direction(self, m, v, step):
        if self.bias_correction:
            m, v = (
                slot / self.cast(1 - beta ** (step + 1)) for slot, beta in zip((m, v), self.betas)
            )
        return super().direction(m, v, step)

    def rate(self, direction):
        wide = np.promote_types(self.value.dtype, np.float32)
        norms = [np.sqrt(np.sum(x.astype(wide) ** 2)) for x in (self.value, direction)]
        if self.excluded or 0 in norms:
            return self.lr
        return self.lr * self.cast(norms[0] / norms[1])


def _case(optimizer, oracle, **arguments):
    # 6 ulps (units in the last place), because an update has about ten operations. In LAMB, the
    # whole update is also multiplied by a ratio of norms, and TensorFlow and NumPy sum the squares
    # of a norm in different orders.
    return Case(optimizer, arguments, functools.partial(oracle, **arguments), ulps=6)


_ADAM = {"learning_rate": 0.05, "beta_1": 0.9, "beta_2": 0.98, "epsilon": 1e-3}

CASES = {
    "AdamWeightDecay": _case(
        legacy_opt.AdamWeightDecayOptimizer,
        AdamWeightDecay,
        weight_decay_rate=0.01,
        exclude_from_weight_decay=["bias", "vector"],
        **_ADAM,
    ),
    "LAMB": _case(
        legacy_opt.LAMBOptimizer,
        LAMB,
        weight_decay_rate=0.01,
        exclude_from_weight_decay=["bias", "vector"],
        **_ADAM,
    ),
    "LAMB bias_correction=False": _case(
        legacy_opt.LAMBOptimizer, LAMB, weight_decay_rate=0.01, bias_correction=False, **_ADAM
    ),
}

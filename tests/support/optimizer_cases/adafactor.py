"""The NumPy reference (oracle) and the test cases of Adafactor."""

import functools

import numpy as np

import legacy_opt
from tests.support import oracles
from tests.support.optimizer_cases.case import Case


class Adafactor(oracles.Oracle):
    """tensor2tensor's Adafactor; rows without a gradient get a zero gradient."""

    def __init__(
        self,
        value,
        name,
        multiply_by_parameter_scale=True,
        learning_rate=None,
        decay_rate=None,
        beta1=0.0,
        clipping_threshold=1.0,
        factored=True,
    ):
        super().__init__(value, name)
        self.wide = np.promote_types(self.value.dtype, np.float32).type
        self.scaled, self.lr, self.decay_rate = (
            multiply_by_parameter_scale,
            learning_rate,
            decay_rate,
        )
        self.beta, self.threshold = self.wide(beta1), clipping_threshold
        shape = self.value.shape
        if factored and len(shape) > 1:
            slots = {"vr": shape[:-1], "vc": shape[:-2] + shape[-1:]}
        else:
            slots = {"v": shape}
        self.slots = {slot: np.zeros(shape, np.float32) for slot, shape in slots.items()}
        if beta1:
            self.slots["m"] = np.zeros_like(self.value)

    def update(self, g, at, step):
        everywhere = self.everywhere(g, at).astype(self.wide)
        moment = self.second_moment(everywhere**2 + self.wide(1e-30), self.decay(step))
        unit = everywhere / np.sqrt(moment)
        if self.threshold is not None:
            unit = unit / max(self.wide(1), rms(unit) / self.wide(self.threshold))
        change = self.rate(step) * unit
        if "m" in self.slots:
            change = self.beta * self.slots["m"].astype(self.wide) + (1 - self.beta) * change
            self.slots["m"] = np.asarray(change).astype(self.cast)
        self.value = np.asarray(self.value - np.asarray(change).astype(self.cast))

    def decay(self, step):
        if callable(self.decay_rate):
            beta2 = 0.95  # the argument of adafactor_decay_rate_adam in `CASES`
            number = beta2 * (1 - beta2**step) / (1 - beta2 ** (step + 1))
        elif self.decay_rate is None:
            number = 1 - float(step + 1) ** -0.8
        else:
            number = self.decay_rate
        return self.wide(number)

    def rate(self, step):
        number = self.lr
        if number is None:
            number = min((step + 1) ** -0.5, 0.01) * (1 if self.scaled else 0.05)
        scale = max(rms(self.value.astype(self.wide)), self.wide(1e-3)) if self.scaled else 1
        return self.wide(number) * self.wide(scale)

    def second_moment(self, square, decay):
        means = {"v": square}
        if square.ndim > 1:
            means.update(vr=square.mean(-1), vc=square.mean(-2))
        new = {
            slot: decay * self.slots[slot].astype(self.wide) + (1 - decay) * means[slot]
            for slot in ("vr", "vc", "v")
            if slot in self.slots
        }
        self.slots.update((slot, np.asarray(value, np.float32)) for slot, value in new.items())
        if "v" in new:
            return new["v"]
        rows, columns = new["vr"], new["vc"]
        return (rows / rows.mean(-1, keepdims=True))[..., None] * columns[..., None, :]


def rms(x):
    return np.sqrt(np.mean(np.square(x)))


def _case(**arguments):
    # 8 ulps (units in the last place), because an update takes several square roots, and because
    # NumPy and TensorFlow add the elements of a mean in different orders.
    oracle = functools.partial(Adafactor, **arguments)
    return Case(legacy_opt.AdafactorOptimizer, arguments, oracle, ulps=8)


CASES = {
    "Adafactor": _case(),
    "Adafactor learning_rate, beta1": _case(
        learning_rate=0.05, decay_rate=0.8, beta1=0.9, clipping_threshold=None
    ),
    "Adafactor factored=False": _case(
        multiply_by_parameter_scale=False,
        decay_rate=legacy_opt.adafactor_decay_rate_adam(0.95),
        factored=False,
    ),
}

"""NumPy references and test cases of RectifiedAdam, AdaBelief, NovoGrad and Yogi."""

import functools

import numpy as np

import legacy_opt
from tests.support import oracles
from tests.support.optimizer_cases.case import Case


class Counted(oracles.Oracle):
    """An optimizer that counts its steps, and computes 16-bit variables in float32."""

    exact = ("epsilon",)  # the arguments that float64 variables get unrounded

    def __init__(self, value, name, learning_rate, epsilon, weight_decay=0.0, **fixed):
        # Random tests change the arguments that are named here. With other betas, n of the
        # rectification may nearly cancel, and the sign of Yogi may change by a rounding error.
        super().__init__(value, name)
        arguments = dict(
            fixed, learning_rate=learning_rate, epsilon=epsilon, weight_decay=weight_decay
        )
        self.wide = np.float64 if self.value.dtype == np.float64 else np.float32
        self.t = 0
        self.given = dict(arguments)
        for key, number in arguments.items():
            if isinstance(number, float):
                is_exact = key in self.exact
                self.given[key] = self.wide(number if is_exact else np.float32(number))
        self.slots = {key: np.zeros_like(self.value) for key in self.names()}

    def names(self):
        return ("m", "v", "vhat") if self.given.get("amsgrad") else ("m", "v")

    def power(self, beta):
        return self.wide(np.float64(self.given[beta]) ** self.t)

    def apply(self, gradient, step):
        self.t += 1
        super().apply(gradient, step)

    def update(self, g, at, step):
        wide = {key: each[at].astype(self.wide) for key, each in self.slots.items() if each.ndim}
        wide.update((key, self.wide(each)) for key, each in self.slots.items() if not each.ndim)
        change, new = self.step(g.astype(self.wide), self.value[at].astype(self.wide), wide, at)
        self.value[at] -= change.astype(self.cast)
        for key, each in new.items():
            slot = self.slots[key]
            if key in self.fading() and at is not Ellipsis:
                slot *= self.cast(self.fading()[key])
            slot[at if slot.ndim else ()] = each.astype(self.cast)

    def fading(self):
        """Returns the factors of the slots that decay in all rows."""
        return {"m": self.given["beta_1"], "v": self.given["beta_2"]}

    def step(self, g, value, slots, at):
        """Returns the change and the new slots, in float32 or float64."""
        raise NotImplementedError(type(self).__name__)


class Rectified(Counted):
    """What RectifiedAdam and AdaBelief have in common."""

    def rate(self):
        rate, total = self.given["learning_rate"], self.given.get("total_steps", 0)
        if not total:
            return rate
        one, t = self.wide(1), self.wide(self.t)
        warmup = self.wide(total) * self.given["warmup_proportion"]
        if t <= warmup:
            return rate * (t / warmup)
        decay = max(self.wide(total) - warmup, one)
        return rate + (self.given["min_lr"] - rate) / decay * min(t - warmup, decay)

    def finish(self, mean, v, slots, value):
        """Returns the change of the variable and the new `v` and `vhat`."""
        one, power = self.wide(1), self.power("beta_2")
        new = {"v": v}
        if "vhat" in slots:
            new["vhat"] = v = np.maximum(slots["vhat"], v)
        root = np.sqrt(v / (one - power)) + self.given["epsilon"]
        n_max = self.wide(2) / (one - self.given["beta_2"]) - one
        n = n_max - self.wide(2 * self.t) * power / (one - power)
        update = mean
        if not self.given.get("rectify", True):
            update = mean / root
        elif n >= self.given.get("sma_threshold", self.wide(5)):
            a, b, c, d = (self.wide(each) for each in (n - 4, n - 2, n_max - 4, n_max - 2))
            update = np.sqrt(a / c * b / d * n_max / n) * mean / root
        decay = self.given.get("weight_decay", self.wide(0)) * value
        return self.rate() * (update + decay), new


class RectifiedAdam(Rectified):
    def step(self, g, value, slots, at):
        one, beta_1, beta_2 = self.wide(1), self.given["beta_1"], self.given["beta_2"]
        m = beta_1 * slots["m"] + (one - beta_1) * g
        v = beta_2 * slots["v"] + (one - beta_2) * (g * g)
        change, new = self.finish(m / (one - self.power("beta_1")), v, slots, value)
        return change, dict(new, m=m)


class AdaBelief(Rectified):
    def step(self, g, value, slots, at):
        one, beta_1, beta_2 = self.wide(1), self.given["beta_1"], self.given["beta_2"]
        m = beta_1 * slots["m"] + (one - beta_1) * g
        v = beta_2 * slots["v"] + (one - beta_2) * (g - m) ** 2 + self.given["epsilon"]
        change, new = self.finish(m / (one - self.power("beta_1")), v, slots, value)
        return change, dict(new, m=m)


class NovoGrad(Counted):
    def __init__(self, value, name, **arguments):
        super().__init__(value, name, **arguments)
        for key in self.names()[1:]:
            self.slots[key] = np.zeros([], self.value.dtype)

    def fading(self):
        return {}

    def step(self, g, value, slots, at):
        one, beta_1, beta_2 = self.wide(1), self.given["beta_1"], self.given["beta_2"]
        square = self.wide(np.sum(g.astype(np.float64) ** 2))
        v = square if self.t == 1 else slots["v"] * beta_2 + square * (one - beta_2)
        new = {"v": v}
        if "vhat" in slots:
            new["vhat"] = v = np.maximum(slots["vhat"], v)
        update = g / (np.sqrt(v) + self.given["epsilon"])
        update = update + self.given.get("weight_decay", self.wide(0)) * value
        if self.given.get("grad_averaging") and self.t > 1:
            update = update * (one - beta_1)
        m = slots["m"] * beta_1 - self.given["learning_rate"] * update
        return -m, dict(new, m=m)


class Yogi(Counted):
    exact = ()

    def __init__(self, value, name, **arguments):
        super().__init__(value, name, **arguments)
        self.slots["v"] += self.cast(self.given["initial_accumulator_value"])

    def names(self):
        return ("v", "m") if self.given["beta1"] else ("v",)

    def fading(self):
        return {"m": self.given["beta1"]}

    def step(self, g, value, slots, at):
        one, beta1, beta2 = self.wide(1), self.given["beta1"], self.given["beta2"]
        m = beta1 * slots["m"] + (one - beta1) * g if beta1 else g
        difference = g * g - slots["v"]
        is_smooth = self.given.get("activation") == "tanh"
        sign = np.tanh(10 * difference) if is_smooth else np.sign(difference)
        v = slots["v"] + (one - beta2) * sign * (g * g)
        rate = self.given["learning_rate"] * np.sqrt(one - self.power("beta2"))
        rate = rate / (one - self.power("beta1")) / (np.sqrt(v) + self.given["epsilon"])
        x = value - rate * m
        l1 = self.given.get("l1_regularization_strength", self.wide(0)) * rate
        l2 = self.given.get("l2_regularization_strength", self.wide(0)) * rate
        shrunk = np.sign(x) * np.maximum(np.abs(x) - l1, 0) / (one + l2)
        return value - shrunk, {"v": v, "m": m} if beta1 else {"v": v}


_BETAS = {"learning_rate": 0.05, "beta_1": 0.9, "beta_2": 0.98, "epsilon": 1e-3}
_WARMUP = {"total_steps": 20, "warmup_proportion": 0.25, "min_lr": 0.01}
_YOGI = {
    "learning_rate": 0.05,
    "beta1": 0.9,
    "beta2": 0.98,
    "epsilon": 1e-3,
    "initial_accumulator_value": 0.125,
}
_PROXIMAL = {"l1_regularization_strength": 0.01, "l2_regularization_strength": 0.02}


def _case(optimizer, oracle, ulps, arguments, **options):
    arguments = dict(arguments, **options)
    return Case(optimizer, arguments, functools.partial(oracle, **arguments), ulps)


CASES = {
    # 8 ulps (units in the last place): the corrections of the bias of the first steps multiply the
    # errors of the powers, and r is computed in another order.
    "RectifiedAdam": _case(legacy_opt.RectifiedAdamOptimizer, RectifiedAdam, 8, _BETAS),
    "RectifiedAdam options": _case(
        *(legacy_opt.RectifiedAdamOptimizer, RectifiedAdam, 8, _BETAS),
        **dict(_WARMUP, weight_decay=0.01, amsgrad=True, sma_threshold=4.5),
    ),
    "AdaBelief": _case(legacy_opt.AdaBeliefOptimizer, AdaBelief, 8, _BETAS, rectify=False),
    "AdaBelief options": _case(
        *(legacy_opt.AdaBeliefOptimizer, AdaBelief, 8, _BETAS),
        **dict(_WARMUP, weight_decay=0.01, amsgrad=True, sma_threshold=4.5),
    ),
    # 4 ulps: the sum of squares, in another order.
    "NovoGrad": _case(legacy_opt.NovoGradOptimizer, NovoGrad, 4, _BETAS),
    "NovoGrad options": _case(
        *(legacy_opt.NovoGradOptimizer, NovoGrad, 4, _BETAS),
        **dict(weight_decay=0.01, grad_averaging=True, amsgrad=True),
    ),
    # 4 ulps, as LazyAdam.
    "Yogi": _case(legacy_opt.YogiOptimizer, Yogi, 4, _YOGI),
    "Yogi proximal": _case(legacy_opt.YogiOptimizer, Yogi, 4, _YOGI, **_PROXIMAL),
    "Yogi tanh": _case(legacy_opt.YogiOptimizer, Yogi, 4, _YOGI, activation="tanh", beta1=0.0),
}

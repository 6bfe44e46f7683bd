"""Optimizers of other libraries as small functions of NumPy: with a reported difference, and sound.

Each follows the formula in the report; none is the library's code. `numpy:` targets train them.
"""

import numpy as np


def stepping(update, *names):
    """Returns the function of a `numpy:` target; `names` are slots that start at 0."""

    def make(variables, hyper):
        slots = {n: {name: np.zeros_like(x) for name in names} for n, x in variables.items()}
        steps = 0

        def step(gradients, hyper):
            nonlocal steps
            steps += 1
            for name, value in variables.items():
                value[...] = update(gradients[name], value, slots[name], hyper, steps)

        return step

    return make


def ftrl(times):
    """FTRL whose l2 counts `times` times: 2 in TensorFlow, 1 in the paper (torchrec #4710)."""

    def update(grad, value, slots, hyper, steps):
        rate, before = hyper["learning_rate"], slots["n"]
        after = before + grad**2
        slots["z"] += grad - (np.sqrt(after) - np.sqrt(before)) / rate * value
        slots["n"] = after
        z, l1 = slots["z"], hyper["l1"]
        pulled = (np.sign(z) * l1 - z) / (np.sqrt(after) / rate + times * hyper["l2"])
        return np.where(np.abs(z) > l1, pulled, 0)

    return stepping(update, "n", "z")


def lamb(corrects, largest=np.inf):
    """LAMB; torch-optimizer's has no bias correction (#226), and clamps the weight norm (#443)."""

    def update(grad, value, slots, hyper, steps):
        for slot, beta, new in (("m", hyper["beta1"], grad), ("v", hyper["beta2"], grad**2)):
            slots[slot] = beta * slots[slot] + (1 - beta) * new
        m, v = slots["m"], slots["v"]
        if corrects:
            m, v = m / (1 - hyper["beta1"] ** steps), v / (1 - hyper["beta2"] ** steps)
        direction = m / (np.sqrt(v) + hyper["epsilon"]) + hyper["weight_decay"] * value
        size, length = min(np.sqrt(np.sum(value**2)), largest), np.sqrt(np.sum(direction**2))
        ratio = size / length if size > 0 and length > 0 else 1.0
        return value - hyper["learning_rate"] * ratio * direction

    return stepping(update, "m", "v")


def clipped_lamb(variables, hyper):
    """timm's LAMB by default: gradients are divided by their global norm if this is above 1."""
    step = lamb(corrects=True)(variables, hyper)

    def clipped(gradients, hyper):
        norm = np.sqrt(sum(np.sum(np.square(each)) for each in gradients.values()))
        step({name: each / max(norm, 1.0) for name, each in gradients.items()}, hyper)

    return clipped


def sgdw(multiplies):
    """SGDW; torch-optimizer's decay does not multiply the weights (#454)."""

    def update(grad, value, slots, hyper, steps):
        slots["mean"] = hyper["momentum"] * slots["mean"] + grad
        decay = hyper["weight_decay"] * (value if multiplies else 1.0)
        return value - hyper["learning_rate"] * (slots["mean"] + decay)

    return stepping(update, "mean")


ftrl_once, ftrl_twice = ftrl(1), ftrl(2)
lamb_sound, lamb_uncorrected, lamb_clamped = lamb(True), lamb(False), lamb(True, 10.0)
sgdw_sound, sgdw_constant = sgdw(True), sgdw(False)

"""Rules that the catalogue lacks: formulas of papers, and formulas that other libraries compute.

Each is a function for `recorded.rule`. Where a paper leaves a choice, the name says which it is.

python -m benchmarks.conformance.rules NAME > rule.json     for `legacy-opt prove draw rule.json`
"""

import sys

from legacy_opt import recorded
from legacy_opt.recorded.formulas import cast, maximum, norm, sign, sqrt, square, where

RATE = {"learning_rate": 0.01}
MOMENTUM = {**RATE, "momentum": 0.9}
EPSILON = {"epsilon": 1e-8}
ADAM = {**RATE, "beta1": 0.9, "beta2": 0.999, **EPSILON}
DECAY = {"weight_decay": 0.01}
MOMENTS = {"m": 0.0, "v": 0.0}
RULES = {}


def written(name, slots, hyperparameters):
    """Decorates a function: adds its rule to `RULES`."""

    def decorate(function):
        RULES[name] = recorded.rule(function, slots, hyperparameters, name=name)
        return function

    return decorate


def moments(grad, slots, hyper):
    """Returns Adam's moments, and both without their bias."""
    step = cast(hyper.global_step + 1)
    m = hyper.beta1 * slots.m + (1 - hyper.beta1) * grad
    v = hyper.beta2 * slots.v + (1 - hyper.beta2) * square(grad)
    return m, v, m / (1 - hyper.beta1**step), v / (1 - hyper.beta2**step)


def epsilon_hat(m, v, hyper):
    """Returns Adam's update as TensorFlow computes it: epsilon is added to the root of `v`."""
    step = cast(hyper.global_step + 1)
    return m * sqrt(1 - hyper.beta2**step) / (1 - hyper.beta1**step) / (sqrt(v) + hyper.epsilon)


# SGD


@written("momentum, rate inside", {"mean": 0.0}, MOMENTUM)
def momentum_inside(grad, value, slots, hyper):
    mean = hyper.momentum * slots.mean - hyper.learning_rate * grad
    return value + mean, {"mean": mean}


@written("momentum, dampened", {"mean": 0.0}, {**MOMENTUM, "dampening": 0.5})
def momentum_dampened(grad, value, slots, hyper):
    """The first gradient is not dampened, as in PyTorch."""
    is_first = cast(hyper.global_step) < 0.5
    share = where(is_first, 1.0, 1 - hyper.dampening)
    mean = hyper.momentum * slots.mean + share * grad
    return value - hyper.learning_rate * mean, {"mean": mean}


@written("Nesterov, rate outside", {"mean": 0.0}, MOMENTUM)
def nesterov(grad, value, slots, hyper):
    mean = hyper.momentum * slots.mean + grad
    return value - hyper.learning_rate * (grad + hyper.momentum * mean), {"mean": mean}


@written("Nesterov, rate inside", {"mean": 0.0}, MOMENTUM)
def nesterov_inside(grad, value, slots, hyper):
    step = hyper.learning_rate * grad
    mean = hyper.momentum * slots.mean - step
    return value + hyper.momentum * mean - step, {"mean": mean}


@written("SGDW", {"mean": 0.0}, {**MOMENTUM, **DECAY})
def sgdw(grad, value, slots, hyper):
    mean = hyper.momentum * slots.mean + grad
    return value - hyper.learning_rate * (mean + hyper.weight_decay * value), {"mean": mean}


@written("SGDW, a constant decay", {"mean": 0.0}, {**MOMENTUM, **DECAY})
def sgdw_constant(grad, value, slots, hyper):
    mean = hyper.momentum * slots.mean + grad
    return value - hyper.learning_rate * (mean + hyper.weight_decay), {"mean": mean}


# Adagrad, RMSProp, FTRL


START = {"initial_accumulator_value": 0.1}
SUM = {"sum": "initial_accumulator_value"}


@written("Adagrad, no epsilon", SUM, {**RATE, **START})
def adagrad_tensorflow(grad, value, slots, hyper):
    total = slots.sum + square(grad)
    return value - hyper.learning_rate * grad / sqrt(total), {"sum": total}


@written("Adagrad, epsilon outside", SUM, {**RATE, **START, "epsilon": 1e-10})
@written("Adagrad, from 0", {"sum": 0.0}, {**RATE, "epsilon": 1e-10})
def adagrad(grad, value, slots, hyper):
    total = slots.sum + square(grad)
    return value - hyper.learning_rate * grad / (sqrt(total) + hyper.epsilon), {"sum": total}


@written("Adagrad, epsilon inside", SUM, {**RATE, **START, "epsilon": 1e-7})
def adagrad_inside(grad, value, slots, hyper):
    total = slots.sum + square(grad)
    return value - hyper.learning_rate * grad / sqrt(total + hyper.epsilon), {"sum": total}


@written("RMSProp, epsilon outside", {"mean": 0.0}, {**RATE, "decay": 0.99, **EPSILON})
def rmsprop(grad, value, slots, hyper):
    mean = hyper.decay * slots.mean + (1 - hyper.decay) * square(grad)
    return value - hyper.learning_rate * grad / (sqrt(mean) + hyper.epsilon), {"mean": mean}


@written("RMSProp, epsilon inside", {"mean": 0.0}, {**RATE, "decay": 0.9, **EPSILON})
def rmsprop_inside(grad, value, slots, hyper):
    mean = hyper.decay * slots.mean + (1 - hyper.decay) * square(grad)
    return value - hyper.learning_rate * grad / sqrt(mean + hyper.epsilon), {"mean": mean}


def ftrl_step(grad, value, slots, hyper, l2):
    total = slots.n + square(grad)
    sigma = (sqrt(total) - sqrt(slots.n)) / hyper.learning_rate
    z = slots.z + grad - sigma * value
    new = (sign(z) * hyper.l1 - z) / (sqrt(total) / hyper.learning_rate + l2)
    return where(abs(z) > hyper.l1, new, 0.0), {"n": total, "z": z}


FTRL = {**RATE, "l1": 0.001, "l2": 0.01}


@written("FTRL, l2 once", {"n": 0.0, "z": 0.0}, FTRL)
def ftrl(grad, value, slots, hyper):
    return ftrl_step(grad, value, slots, hyper, hyper.l2)


@written("FTRL, l2 twice", {"n": 0.0, "z": 0.0}, FTRL)
def ftrl_twice(grad, value, slots, hyper):
    return ftrl_step(grad, value, slots, hyper, 2 * hyper.l2)


# Adam and its relatives


@written("Adam, Algorithm 1", MOMENTS, ADAM)
def adam(grad, value, slots, hyper):
    m, v, mean, square_mean = moments(grad, slots, hyper)
    update = mean / (sqrt(square_mean) + hyper.epsilon)
    return value - hyper.learning_rate * update, {"m": m, "v": v}


@written("AdamW, Algorithm 1", MOMENTS, {**ADAM, **DECAY})
def adamw(grad, value, slots, hyper):
    m, v, mean, square_mean = moments(grad, slots, hyper)
    update = mean / (sqrt(square_mean) + hyper.epsilon) + hyper.weight_decay * value
    return value - hyper.learning_rate * update, {"m": m, "v": v}


@written("AdamW, epsilon hat", MOMENTS, {**ADAM, **DECAY})
def adamw_epsilon_hat(grad, value, slots, hyper):
    m, v, _, _ = moments(grad, slots, hyper)
    update = epsilon_hat(m, v, hyper) + hyper.weight_decay * value
    return value - hyper.learning_rate * update, {"m": m, "v": v}


@written("AMSGrad", {**MOMENTS, "top": 0.0}, ADAM)
def amsgrad(grad, value, slots, hyper):
    m, v, mean, _ = moments(grad, slots, hyper)
    top = maximum(slots.top, v)
    root = sqrt(top / (1 - hyper.beta2 ** cast(hyper.global_step + 1)))
    value = value - hyper.learning_rate * mean / (root + hyper.epsilon)
    return value, {"m": m, "v": v, "top": top}


@written("AMSGrad, epsilon hat", {**MOMENTS, "top": 0.0}, ADAM)
def amsgrad_epsilon_hat(grad, value, slots, hyper):
    m, v, _, _ = moments(grad, slots, hyper)
    top = maximum(slots.top, v)
    value = value - hyper.learning_rate * epsilon_hat(m, top, hyper)
    return value, {"m": m, "v": v, "top": top}


@written("AMSGrad, corrected first", {**MOMENTS, "top": 0.0}, ADAM)
def amsgrad_corrected(grad, value, slots, hyper):
    m, v, mean, square_mean = moments(grad, slots, hyper)
    top = maximum(slots.top, square_mean)
    value = value - hyper.learning_rate * mean / (sqrt(top) + hyper.epsilon)
    return value, {"m": m, "v": v, "top": top}


def adamax_slots(grad, slots, hyper, added):
    m = hyper.beta1 * slots.m + (1 - hyper.beta1) * grad
    rate = hyper.learning_rate / (1 - hyper.beta1 ** cast(hyper.global_step + 1))
    return m, maximum(hyper.beta2 * slots.v, abs(grad) + added), rate


@written("AdaMax, epsilon inside", MOMENTS, ADAM)
def adamax_inside(grad, value, slots, hyper):
    m, v, rate = adamax_slots(grad, slots, hyper, hyper.epsilon)
    return value - rate * m / v, {"m": m, "v": v}


@written("Yogi, Algorithm 1's epsilon", {"m": 1e-6, "v": 1e-6}, ADAM)
def yogi(grad, value, slots, hyper):
    step = cast(hyper.global_step + 1)
    m = hyper.beta1 * slots.m + (1 - hyper.beta1) * grad
    v = slots.v + (1 - hyper.beta2) * sign(square(grad) - slots.v) * square(grad)
    root = sqrt(v / (1 - hyper.beta2**step)) + hyper.epsilon
    return value - hyper.learning_rate * (m / (1 - hyper.beta1**step)) / root, {"m": m, "v": v}


@written("RAdam, epsilon hat", MOMENTS, ADAM)
def radam(grad, value, slots, hyper):
    step = cast(hyper.global_step + 1)
    m, v, mean, _ = moments(grad, slots, hyper)
    power = hyper.beta2**step
    longest = 2 / (1 - hyper.beta2) - 1
    length = longest - 2 * step * power / (1 - power)
    is_long = length > 5.0
    known = where(is_long, length, 6.0)
    factor = (known - 4) * (known - 2) * longest / ((longest - 4) * (longest - 2) * known)
    rectified = sqrt(factor) * epsilon_hat(m, v, hyper)
    return value - hyper.learning_rate * where(is_long, rectified, mean), {"m": m, "v": v}


@written("AdaBelief", MOMENTS, ADAM)
def adabelief(grad, value, slots, hyper):
    step = cast(hyper.global_step + 1)
    m = hyper.beta1 * slots.m + (1 - hyper.beta1) * grad
    v = hyper.beta2 * slots.v + (1 - hyper.beta2) * square(grad - m) + hyper.epsilon
    root = sqrt(v / (1 - hyper.beta2**step)) + hyper.epsilon
    return value - hyper.learning_rate * (m / (1 - hyper.beta1**step)) / root, {"m": m, "v": v}


# LAMB


def lamb_value(value, update, hyper, largest=None):
    weights, updates = norm(value), norm(update)
    if largest is not None:
        weights = where(weights < largest, weights, largest)
    is_zero = (weights <= 0.0) | (updates <= 0.0)
    ratio = where(is_zero, 1.0, weights / where(is_zero, 1.0, updates))
    return value - hyper.learning_rate * ratio * update


@written("LAMB", MOMENTS, {**ADAM, **DECAY})
def lamb(grad, value, slots, hyper):
    m, v, mean, square_mean = moments(grad, slots, hyper)
    update = mean / (sqrt(square_mean) + hyper.epsilon) + hyper.weight_decay * value
    return lamb_value(value, update, hyper), {"m": m, "v": v}


@written("LAMB, decay outside", MOMENTS, {**ADAM, **DECAY})
def lamb_outside(grad, value, slots, hyper):
    m, v, mean, square_mean = moments(grad, slots, hyper)
    value = value - hyper.learning_rate * hyper.weight_decay * value
    update = mean / (sqrt(square_mean) + hyper.epsilon)
    return lamb_value(value, update, hyper), {"m": m, "v": v}


@written("LAMB, uncorrected", MOMENTS, {**ADAM, **DECAY})
def lamb_uncorrected(grad, value, slots, hyper):
    m, v, _, _ = moments(grad, slots, hyper)
    update = m / (sqrt(v) + hyper.epsilon) + hyper.weight_decay * value
    return lamb_value(value, update, hyper, 10.0), {"m": m, "v": v}


if __name__ == "__main__":
    print(recorded.dumps(RULES[sys.argv[1]]))

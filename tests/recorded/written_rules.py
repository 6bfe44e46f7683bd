"""Rules of other libraries that the catalogue does not have, written as functions."""

from legacy_opt import recorded
from legacy_opt.recorded.formulas import cast, maximum, sqrt, square


def rmsprop(grad, value, slots, hyper):
    mean = hyper.decay * slots.mean + (1 - hyper.decay) * square(grad)
    return value - hyper.learning_rate * grad / (sqrt(mean) + hyper.epsilon), {"mean": mean}


def nesterov(grad, value, slots, hyper):
    mean = hyper.momentum * slots.mean + grad
    return value - hyper.learning_rate * (grad + hyper.momentum * mean), {"mean": mean}


def amsgrad(grad, value, slots, hyper):
    """Takes the running maximum before the correction of the bias."""
    step = cast(hyper.global_step + 1)
    m = hyper.beta1 * slots.m + (1 - hyper.beta1) * grad
    v = hyper.beta2 * slots.v + (1 - hyper.beta2) * square(grad)
    top = maximum(slots.top, v)
    root = sqrt(top / (1 - hyper.beta2**step)) + hyper.epsilon
    rate = hyper.learning_rate / (1 - hyper.beta1**step)
    return value - rate * m / root, {"m": m, "v": v, "top": top}


RMSPROP = recorded.rule(
    rmsprop, {"mean": 0.0}, {"learning_rate": 0.01, "decay": 0.99, "epsilon": 1e-8}
)
NESTEROV = recorded.rule(nesterov, {"mean": 0.0}, {"learning_rate": 0.01, "momentum": 0.9})
AMSGRAD = recorded.rule(
    amsgrad,
    {"m": 0.0, "v": 0.0, "top": 0.0},
    {"learning_rate": 0.01, "beta1": 0.9, "beta2": 0.999, "epsilon": 1e-8},
)

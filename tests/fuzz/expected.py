"""Runs the oracle of a training, and computes how far an optimizer may differ from the oracle.

The allowed difference has two parts. First, each update may add a rounding error. The case gives
the size of this error in units in the last place (`ulps`) of the largest number in the variable or
slot. Second, later steps may amplify rounding errors. If a difference exceeds the first part, the
amplification is measured: the oracle runs again with `nudged` gradients and state.
"""

import numpy as np

import legacy_opt
from tests.fuzz.wrapped import WRAPPERS, mean_of
from tests.support.cases import CASES
from tests.support.problems import Rows

SEEDS = (1, 2, 3)  # for the oracle's nudged runs
ENLARGED = 16  # `bound` adds this multiple of the nudged runs' differences
# These optimizers compute the updates of float16 variables in float32.
WIDE_INSIDE = (legacy_opt.ShampooOptimizer, legacy_opt.AdafactorOptimizer)


class Expected:
    """The states of one training.

    Attributes:
      case: the `Fuzzed`.
      first: the initial state.
      states: the states after each step.
      updates: the number of updates up to each step.
    """

    def __init__(self, case, gradients):
        self.case = case
        self.gradients = gradients
        self.updates = [(number + 1) // case.every for number in range(len(gradients))]
        self.first, *self.states = run_oracle(case, gradients, None)
        self.nudged = None

    def narrow_bound(self, number, key):
        """Returns the allowed difference of each element, without amplification of errors."""
        state = np.abs(self.states[number][key].astype(np.float64))
        return self.rounding(number, state.max(initial=0))

    def rounding(self, number, largest):
        """Returns the rounding error of an array whose largest number is `largest`."""
        share = units(self.case) * self.updates[number]
        return share * max(largest, least(self.case.dtype))

    def bound(self, number, key):
        """Returns the allowed difference of each element.

        If an element is NaN or infinity in some run of the oracle, its allowed difference is
        infinity.
        """
        if self.nudged is None:
            self.nudged = [run_oracle(self.case, self.gradients, seed)[1:] for seed in SEEDS]
        runs = [self.states] + self.nudged
        stack = np.stack([np.asarray(run[number][key], np.float64) for run in runs])
        finite = np.isfinite(stack).all(0)
        stack = np.where(finite, stack, 0)
        spread = np.abs(stack - stack[0]).max(0, initial=0)
        wide = self.rounding(number, np.abs(stack).max(initial=0)) + ENLARGED * spread
        return np.where(finite, wide, np.inf)

    def never_finite(self, number, key):
        """Returns a mask of the elements that are finite in no run of the oracle."""
        runs = [self.states] + self.nudged
        return ~np.stack([np.isfinite(run[number][key]) for run in runs]).any(0)


def least(dtype):
    """Returns the smallest number for which a relative error of eps may be assumed.

    Kernels flush numbers below `tiny`, the smallest normal number, to zero. A flushed term changes
    a sum by less than tiny. If the sum is at least tiny / eps, its relative error is at most eps.
    float16 kernels do not flush, because they compute in float32.
    """
    info = np.finfo(dtype)
    return float(info.tiny) / (1 if dtype == "float16" else float(info.eps))


def units(case):
    """Returns the relative rounding error of each update."""
    ulps, optimizer = CASES[case.name].ulps, CASES[case.name].optimizer
    eps = float(np.finfo(case.dtype).eps)
    if not issubclass(optimizer, WIDE_INSIDE):
        return ulps * eps
    # These optimizers compute in float32 or float64, and round the result to the variable's dtype.
    wide = float(np.finfo(np.promote_types(case.dtype, np.float32)).eps)
    if issubclass(optimizer, legacy_opt.AdafactorOptimizer):
        # AdafactorOptimizer computes m = update + beta1 * (m - update). If the old m is 0, the new
        # m is (1 - beta1) * update, but it has the rounding error of the whole update.
        beta1 = case.arguments.get("beta1", 0)
        return (ulps * wide + 2 * eps) / (1 - float(np.float32(beta1)))
    return ulps * wide + 2 * eps


def run_oracle(case, gradients, seed):
    """Returns the initial state and the state after each step.

    Gradients and states are `nudged` with the seed, unless the seed is None.
    """

    def moved(array, size=0.0):
        return array if seed is None else nudged(array, size, random)

    random = np.random.RandomState(seed or 0)
    arguments = with_other_betas(case, seed)
    # NumPy has no integers beyond 64 bits.
    arguments = {k: v if abs(v) < 2**63 else float(v) for k, v in arguments.items()}
    made = CASES[case.name].oracle(moved(case.start()), case.variable, **arguments)
    states = [copy_of(made)]
    for number, gradient in enumerate(updates(case, gradients)):
        if gradient is not None and made.value.size:
            before = {key: np.abs(array) for key, array in states[-1].items()}
            if isinstance(gradient, Rows):
                gradient = Rows(moved(gradient.values), gradient.ids)
            else:
                gradient = moved(gradient)
            try:
                made.apply(WRAPPERS[case.wrapper].change(gradient), number // case.every)
            except np.linalg.LinAlgError:  # NumPy computes no roots of matrices that are not finite
                nan = {key: np.full_like(array, np.nan) for key, array in arrays_of(made).items()}
                return states + [nan] * (len(gradients) - number)
            for key, array in arrays_of(made).items():
                array[...] = moved(array, before[key])
        states.append(copy_of(made))
    return states


def updates(case, gradients):
    """Returns a list with the gradient of each step's update, and None for steps without update."""
    if case.every == 1:
        return [case.array(gradient) for gradient in gradients]
    accumulated, result = [], []
    for gradient in gradients:
        accumulated.append(case.array(gradient))
        result.append(mean_of(accumulated) if len(accumulated) == case.every else None)
        accumulated = accumulated[: 0 if result[-1] is not None else None]
    return result


def with_other_betas(case, seed):
    """Returns the case's arguments. If `seed` is not None, small betas are changed by 2 * eps.

    TensorFlow's kernels compute v + (g * g - v) * (1 - beta2). If beta2 is 0, the new v should be
    g * g, but it has the rounding error of the old v, which may be large. In the oracle, a beta2 of
    eps causes an error of the same size. The change is 2 * eps, because `nudged` may change the new
    v by eps times the old v in the opposite direction. With even seeds, the change is negative. The
    new v of an element is then negative if g * g is smaller than the rounding error of the old v.
    The square root of a negative v is NaN, and the element is not compared.
    """
    if seed is None:
        return case.arguments
    off = (2 if seed % 2 else -2) * float(np.finfo(case.dtype).eps)
    small = {k: v for k, v in case.arguments.items() if k.startswith("beta") and 0 <= v < 0.1}
    return dict(case.arguments, **{key: value + off for key, value in small.items()})


def arrays_of(oracle):
    return dict(oracle.slots, value=oracle.value)


def copy_of(oracle):
    return {key: np.array(array) for key, array in arrays_of(oracle).items()}


def nudged(array, size, random):
    """Returns an array with each number changed by one unit in the last place, of random sign.

    The unit is the number's unit, or the unit of `size` if `size` is larger. For the variable and
    its slots, `size` is the old absolute value, because m + (g - m) * (1 - beta) has a rounding
    error of one unit of the old m, even if the new m is small. No number changes its sign, because
    the oracles take roots of some numbers.
    """
    if not np.issubdtype(array.dtype, np.floating):
        return array
    largest = np.maximum(np.maximum(np.abs(array), size), np.finfo(array.dtype).tiny)
    unit = np.finfo(array.dtype).eps * largest
    signs = np.asarray(random.choice([-1.0, 1.0], size=array.shape))
    return np.copysign(np.abs(array + unit * signs), array).astype(array.dtype)

"""What the oracle expects of a training, and how far off an implementation may be.

How far off has two parts. An implementation that rounds otherwise than the oracle is off by the
case's `ulps` of the largest number in the variable or slot, each step. And what it is off by is
carried on, perhaps much enlarged: by as much as the oracle itself moves, which is run again with
`nudged` gradients and state where the first part is not enough.
"""

import numpy as np

import legacy_opt
from tests.fuzz.wrapped import WRAPPERS, mean_of
from tests.support.cases import CASES
from tests.support.problems import Rows

SEEDS = (1, 2, 3)  # of the oracle's other runs
ENLARGED = 16  # how far off it may be, in what these runs differ by
WIDE_INSIDE = (legacy_opt.ShampooOptimizer, legacy_opt.AdafactorOptimizer)


class Expected:
    """The states of one training.

    Attributes:
      case: the `Fuzzed`.
      first: the state that it begins with.
      states: the states after each step.
      updates: how many updates there have been by then, for each step.
    """

    def __init__(self, case, gradients):
        self.case = case
        self.gradients = gradients
        self.updates = [(number + 1) // case.every for number in range(len(gradients))]
        self.first, *self.states = run_oracle(case, gradients, None)
        self.nudged = None

    def narrow_bound(self, number, key):
        """Returns how far off each element may be if errors are not carried on."""
        state = np.abs(self.states[number][key].astype(np.float64))
        return self.rounding(number, state.max(initial=0))

    def rounding(self, number, largest):
        """Returns what is off by rounding, in an array with this largest number."""
        share = units(self.case) * self.updates[number]
        return share * max(largest, least(self.case.dtype))

    def bound(self, number, key):
        """Returns how far off each element may be, infinite where the oracle cannot tell."""
        if self.nudged is None:
            self.nudged = [run_oracle(self.case, self.gradients, seed)[1:] for seed in SEEDS]
        runs = [self.states] + self.nudged
        stack = np.stack([np.asarray(run[number][key], np.float64) for run in runs])
        known = np.isfinite(stack).all(0)
        stack = np.where(known, stack, 0)
        spread = np.abs(stack - stack[0]).max(0, initial=0)
        wide = self.rounding(number, np.abs(stack).max(initial=0)) + ENLARGED * spread
        return np.where(known, wide, np.inf)

    def never_finite(self, number, key):
        """Returns which elements are finite in no run of the oracle."""
        runs = [self.states] + self.nudged
        return ~np.stack([np.isfinite(run[number][key]) for run in runs]).any(0)


def least(dtype):
    """Returns the number below which numbers are no longer as exact as others."""
    info = np.finfo(dtype)
    # Kernels take smaller ones for zero, but not in float16, which they compute in float32.
    return float(info.tiny) / (1 if dtype == "float16" else float(info.eps))


def units(case):
    """Returns by what share each update may be off."""
    ulps, optimizer = CASES[case.name].ulps, CASES[case.name].optimizer
    eps = float(np.finfo(case.dtype).eps)
    if not issubclass(optimizer, WIDE_INSIDE):
        return ulps * eps
    # They compute in float32 at least, and round what they write.
    wide = float(np.finfo(np.promote_types(case.dtype, np.float32)).eps)
    if issubclass(optimizer, legacy_opt.AdafactorOptimizer):
        # step + beta1 * (m - step): where m is 0 what is left has the error of the whole step.
        beta1 = case.arguments.get("beta1", 0)
        return (ulps * wide + 2 * eps) / (1 - float(np.float32(beta1)))
    return ulps * wide + 2 * eps


def run_oracle(case, gradients, seed):
    """Returns the states from the first on; nudged with the signs of a seed."""

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
            except np.linalg.LinAlgError:  # of a matrix that is not finite NumPy takes no roots
                return states + [nowhere_finite(made)] * (len(gradients) - number)
            for key, array in arrays_of(made).items():
                array[...] = moved(array, before[key])
        states.append(copy_of(made))
    return states


def updates(case, gradients):
    """Returns for each step what the update in it goes by, None if there is none."""
    if case.every == 1:
        return [case.array(gradient) for gradient in gradients]
    kept, result = [], []
    for gradient in gradients:
        kept.append(case.array(gradient))
        result.append(mean_of(kept) if len(kept) == case.every else None)
        kept = kept[: 0 if result[-1] is not None else None]
    return result


def with_other_betas(case, seed):
    """Returns the arguments; if there is a seed, with small betas off by two units of 1.

    TensorFlow's kernels compute v + (g * g - v) * (1 - beta2): if beta2 is 0, and the old v large,
    what is to be g * g has the error of the old v, as if beta2 were a unit. Two, because a nudge
    may take one back; and less than nothing with some seeds, so that there is no root, and nothing
    to compare with, where all that is left of g * g may be its error.
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


def nowhere_finite(oracle):
    return {key: np.full_like(array, np.nan) for key, array in arrays_of(oracle).items()}


def nudged(array, size, random):
    """Returns an array off by a unit in the last place of its numbers, or of `size` if larger.

    The latter is for state: whoever computes m + (g - m) * (1 - beta) is off by a unit of the old
    m, however small the new one is. No number changes its sign, since roots are taken of some.
    """
    if not np.issubdtype(array.dtype, np.floating):
        return array
    largest = np.maximum(np.maximum(np.abs(array), size), np.finfo(array.dtype).tiny)
    unit = np.finfo(array.dtype).eps * largest
    signs = np.asarray(random.choice([-1.0, 1.0], size=array.shape))
    return np.copysign(np.abs(array + unit * signs), array).astype(array.dtype)

"""What has to hold of a case: it is refused by name, fails cleanly, or follows the oracle."""

import warnings

import numpy as np
import tensorflow as tf

import legacy_opt
from tests import running
from tests.cases import CASES
from tests.problems import Rows

SEEDS = (1, 2, 3)  # of the oracle's other runs
ENLARGED = 8  # how far off it may be, in what these runs differ by


class Finding(AssertionError):
    """What must not be."""


def check(case):
    """Runs a case; returns "refused", "failed cleanly" or "compared".

    Raises:
      Finding: something silently wrong, or an error that does not tell what is wrong.
    """
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        if refused(case):
            return "refused"
        try:
            return run(case, case.problem())
        except ValueError as error:
            if len(case.shape) > 7 and "has more than 7 axes" in str(error):
                return "refused"
            raise
        except tf.errors.InvalidArgumentError as error:
            # Said by the kernel of stock Adagrad, which is inside.
            if 0 in case.shape and "Inner dimension should be greater than zero" in str(error):
                return "refused"
            raise


def run(case, problem):
    if case.bad_ids:
        return fails_cleanly(case, problem)
    follows(case, problem, running.WAYS[case.way](problem, case.make))
    return "compared"


def refused(case):
    """Whether the constructor refuses the hyperparameters, by name."""
    try:
        with tf.Graph().as_default():
            case.make(None)
    except (TypeError, ValueError) as error:
        if case.kind == "usual":
            raise Finding("refused usual hyperparameters: %s" % error) from error
        (key,) = case.arguments
        if key not in str(error):
            raise Finding("the error does not name %s: %s" % (key, error)) from error
        return True
    if case.kind == "wrong":
        raise Finding("the constructor took %r" % case.arguments)
    return False


def fails_cleanly(case, problem):
    """Ids that do not exist raise an error, and the step that has them changes nothing."""
    bad = [number for number, gradient in enumerate(case.gradients) if case.is_bad(gradient)]
    before = problem._replace(gradients=problem.gradients[: bad[0]])
    # The state is looked at where there is no graph to go with the error.
    variable, step = tf.Variable(problem.values["w"]), tf.Variable(0, dtype=tf.int64)
    optimizer = case.make(step)
    for gradients in problem.gradients[: bad[0] + 1]:
        values, ids = gradients["w"]
        slices = tf.IndexedSlices(tf.constant(values), tf.constant(ids), case.shape)
        try:
            optimizer.apply_gradients([(slices, variable)], global_step=step)
        except tf.errors.InvalidArgumentError:
            break
    else:
        if not variable.numpy().size:
            return "compared"  # there is nothing to be updated
        raise Finding("ids %s of %d rows were taken" % (list(ids), case.shape[0]))
    if int(step.numpy()) != before.steps:
        raise Finding("step %d raised, not step %d" % (int(step.numpy()), before.steps))
    if not in_place(optimizer):
        trace = running.eager(before, case.make)
        values = [problem.values] + trace.steps
        np.testing.assert_array_equal(variable.numpy(), values[-1]["w"], "changed by a failed step")
        for key, slot in running.slots_of(optimizer, {"w": variable}).items():
            if before.steps:
                np.testing.assert_array_equal(slot.numpy(), trace.slots[key], str(key))
    return "failed cleanly"


def in_place(optimizer):
    """Whether TensorFlow's sparse kernel finds a wrong id where it gets to it, as Momentum's."""
    return isinstance(optimizer, legacy_opt.LARSOptimizer)


def follows(case, problem, trace):
    """Compares every step and slot with the oracle.

    How far a result may be off has two parts. An implementation that rounds otherwise than the
    oracle is off by the case's `ulps` of the largest number in the variable or slot, each step. And
    what it is off by is carried on, perhaps much enlarged: by as much as the oracle itself moves,
    which is run again with `nudged` gradients and state. Where that has no finite number nothing is
    compared.
    """
    runs = [run_oracle(case, problem, seed) for seed in (None,) + SEEDS]
    slots, eps = runs[0][1], float(np.finfo(case.dtype).eps)
    if set(trace.slots) != {("w", key) for key in slots}:
        raise Finding("slots %s, expected %s" % (sorted(trace.slots), sorted(slots)))
    pairs = [
        ("step %d" % number, step["w"], [run[0][number] for run in runs])
        for number, step in enumerate(trace.steps)
    ]
    pairs += [(key, trace.slots["w", key], [run[1][key] for run in runs]) for key in slots]
    for what, actual, wanted in pairs:
        if actual.dtype != wanted[0].dtype or actual.shape != wanted[0].shape:
            raise Finding("%s is %s%s" % (what, actual.dtype, actual.shape))
        stack = np.stack([np.asarray(each, np.float64) for each in wanted])
        known = np.isfinite(stack).all(0)
        stack = np.where(known, stack, 0)
        bound = units(case) * eps * problem.steps * np.abs(stack).max(initial=0)
        bound = bound + ENLARGED * np.abs(stack - stack[0]).max(0, initial=0)
        gap = np.where(known, np.abs(actual.astype(np.float64) - stack[0]), 0)
        if not (gap <= bound).all():
            worst = np.unravel_index(np.argmax(np.where(gap <= bound, -1, gap)), gap.shape)
            raise Finding(
                "%s: %r where the oracle has %r, more than %.2g off"
                % (what, actual[worst], wanted[0][worst], bound[worst])
            )


def units(case):
    """Returns by how many units in the last place each step may be off."""
    beta1 = case.arguments.get("beta1", 0)
    if issubclass(CASES[case.name].optimizer, legacy_opt.AdafactorOptimizer):
        # step + beta1 * (m - step): where m is 0 what is left has the error of the whole step.
        return CASES[case.name].ulps / (1 - float(np.float32(beta1)))
    return CASES[case.name].ulps


def run_oracle(case, problem, seed):
    """Returns the values after each step, and the slots; nudged with the signs of a seed."""

    def moved(array, size=0.0):
        return array if seed is None else nudged(array, size, random)

    random, values = np.random.RandomState(seed or 0), []
    arguments = dict(case.arguments) if seed is None else without_cancelling(case)
    made = CASES[case.name].oracle(moved(problem.values["w"]), "w", **arguments)
    for number, gradients in enumerate(problem.gradients):
        gradient = gradients["w"]
        before = {key: np.abs(array) for key, array in state_of(made)}
        if made.value.size and isinstance(gradient, Rows):
            made.apply(Rows(moved(gradient.values), gradient.ids), number)
        elif made.value.size:
            made.apply(moved(gradient), number)
        for key, array in state_of(made):
            array[...] = moved(array, before[key])
        values.append(made.value.copy())
    return values, made.slots


def without_cancelling(case):
    """Returns the arguments, with a unit of 1 added to a small beta.

    TensorFlow's kernels compute v + (g * g - v) * (1 - beta2): if beta2 is 0, and the old v large,
    what is to be g * g has the error of the old v, as if beta2 were a unit.
    """
    unit = float(np.finfo(case.dtype).eps)
    small = {k: v for k, v in case.arguments.items() if k.startswith("beta") and 0 <= v < 0.1}
    return dict(case.arguments, **{key: value + unit for key, value in small.items()})


def state_of(oracle):
    return list(oracle.slots.items()) + [("", oracle.value)]


def nudged(array, size, random):
    """Returns an array off by a unit in the last place of its numbers, or of `size` if larger.

    The latter is for state: whoever computes m + (g - m) * (1 - beta) is off by a unit of the old
    m, however small the new one is. No number changes its sign, since roots are taken of some.
    """
    if not np.issubdtype(array.dtype, np.floating):
        return array
    unit = np.finfo(array.dtype).eps * np.maximum(np.abs(array), size)
    signs = np.asarray(random.choice([-1.0, 1.0], size=array.shape))
    return np.copysign(np.abs(array + unit * signs), array).astype(array.dtype)

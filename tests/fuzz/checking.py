"""Checks that a case raises a clear error, fails without side effects, or follows the oracle."""

import collections
import warnings

import numpy as np
import tensorflow as tf

import legacy_opt
from tests.fuzz.expected import Expected
from tests.fuzz.training import WAYS
from tests.support.cases import CASES

# Optimizers that update variables by a kernel or a method of a TensorFlow optimizer.
TENSORFLOWS = (
    legacy_opt.LARSOptimizer,
    legacy_opt.AdamWOptimizer,
    legacy_opt.MomentumWOptimizer,
)
# Each element of the variable has a bound: the largest allowed difference from the oracle. A
# comparison is sharp if the median of the bounds is at most SHARP times the largest change of an
# element since the start. A sharp comparison would detect a wrong formula.
SHARP = 0.01


class Finding(AssertionError):
    """A wrong result, or an unclear error."""


def check(case):
    """Runs all trainings of a case (a `Fuzzed`).

    Returns:
      A Counter of the trainings' outcomes: "compared"; "compared loosely" if a comparison is not
      sharp (see `SHARP`); or "failed cleanly". If the constructor raises an error, or the optimizer
      does not support the variable, the Counter has only one outcome, "refused".

    Raises:
      Finding: a result is wrong, or an error does not name its cause.
    """
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        if refused(case):
            return collections.Counter(["refused"])
        try:
            return collections.Counter(run(case))
        except (ValueError, tf.errors.InvalidArgumentError) as error:
            if refuses_the_variable(case, error):
                return collections.Counter(["refused"])
            raise


def refused(case):
    """Whether the constructor raises an error. The error must name the argument."""
    try:
        with tf.Graph().as_default():
            case.make(None)
    except (TypeError, ValueError) as error:
        if case.kind == "usual":
            raise Finding(f"the constructor refused usual hyperparameters: {error}") from error
        (key,) = case.arguments
        if key not in str(error):
            raise Finding(f"the error does not name {key}: {error}") from error
        return True
    if case.kind == "wrong":
        raise Finding(f"the constructor accepted {case.arguments!r}")
    return False


def refuses_the_variable(case, error):
    """Whether the error is one of the known errors about the variable or the gradient."""
    return (
        (len(case.shape) > 7 and "has more than 7 axes" in str(error))
        or (case.sparse and "needs mat_gbar_decay=1.0" in str(error))
        # TensorFlow's Adagrad kernel raises this error.
        or (0 in case.shape and "Inner dimension should be greater than zero" in str(error))
    )


def run(case):
    """Runs each training of a case from the initial value; returns the outcomes."""
    made = WAYS[case.way](case)
    try:
        return [train(case, made, gradients) for gradients in case.trainings]
    finally:
        made.close()


def train(case, made, gradients):
    bad = case.first_bad(gradients)
    good = gradients[:bad]
    expected = Expected(case, good)
    made.begin()
    states = [made.train(case.array(gradient)) for gradient in good]
    sharp = [compare(expected, number, state) for number, state in enumerate(states)]
    if bad is None:
        return "compared" if all(sharp) else "compared loosely"
    try:
        made.train(case.array(gradients[bad]))
    except tf.errors.InvalidArgumentError:
        if not in_place(case):
            unchanged(made.look(), states[-1] if states else expected.first)
        return "failed cleanly"
    if 0 in case.shape:
        return "compared"  # the variable is empty, so nothing is updated
    raise Finding(f"ids {gradients[bad].ids} of {case.shape[0]} rows were accepted")


def in_place(case):
    """Whether the case uses the update of a TensorFlow optimizer.

    If an id is out of range, such an update fails after partial changes. Momentum's kernel checks
    an id only when it reaches the id's row. AdamOptimizer scales the whole slot m before it checks
    ids.
    """
    return issubclass(CASES[case.name].optimizer, TENSORFLOWS)


def unchanged(state, before):
    """Checks that a failed step has changed nothing."""
    before = dict(before, global_step=before.get("global_step", 0))
    for key, array in state.items():
        wanted = before.get(key, array)
        if not ((array == wanted) | ((array != array) & (wanted != wanted))).all():  # or both NaN
            raise Finding(f"a failed step changed {key} from {wanted!r} to {array!r}")


def compare(expected, number, state):
    """Compares a state with the oracle's state.

    Returns:
      Whether the comparison is sharp (see `SHARP`).
    """
    case, updates = expected.case, expected.updates[number]
    # The oracle lacks the slots of GradientAccumulationOptimizer, whose names begin with gradient_.
    slots = {key for key in state if not key.startswith("gradient_")}
    wanted = set(expected.first) | {"global_step"}
    if not updates and case.way == "eager":  # the first update creates the slots
        wanted = {"value", "global_step"}
    if slots != wanted:
        raise Finding(f"slots {sorted(slots)}, expected {sorted(wanted)}")
    if state["global_step"] != updates or state["global_step"].dtype != case.step_dtype:
        raise Finding(f"the global step is {state['global_step']!r}, not {updates}")
    bounds = {
        key: compare_array(expected, number, key, state[key])
        for key in slots - {"global_step"}
        if not is_never_written(case, key)
    }
    change = np.abs(expected.states[number]["value"] - expected.first["value"])
    return not change.any() or bool(np.median(bounds["value"]) <= SHARP * change.max())


def is_never_written(case, key):
    """Whether the optimizer may leave a slot unwritten: Shampoo's Gbar if mat_gbar_decay is 0."""
    return case.arguments.get("mat_gbar_decay") == 0 and key.startswith("Gbar_")


def compare_array(expected, number, key, actual):
    """Compares the variable or a slot with the oracle; returns the bound of the difference."""
    wanted, bound = expected.states[number][key], expected.narrow_bound(number, key)
    if actual.shape != wanted.shape or actual.dtype != dtype_of(wanted, expected.case):
        raise Finding(
            f"{key} has the dtype {actual.dtype} and the shape {actual.shape}, expected "
            f"{dtype_of(wanted, expected.case)} and {wanted.shape}"
        )
    gap = np.abs(actual.astype(np.float64) - wanted)
    if (gap <= bound).all() and np.isfinite(wanted).all():
        return bound
    bound = expected.bound(number, key)
    wrong = ~((gap <= bound) | np.isinf(bound))  # a gap that is NaN is wrong
    # With extreme hyperparameters, the order of multiplications decides which results overflow.
    if expected.case.kind == "usual":
        wrong |= np.isfinite(actual) & expected.never_finite(number, key)
    if wrong.any():
        worst = tuple(np.argwhere(wrong)[0])
        raise Finding(
            f"{key} after step {number}: {actual[worst]!r}, but the oracle has "
            f"{wanted[worst]!r} (allowed difference {bound[worst]:.2g})"
        )
    return bound


def dtype_of(wanted, case):
    """Returns the dtype that a slot must have. Counts of decays have the global step's dtype."""
    return case.step_dtype if np.issubdtype(wanted.dtype, np.integer) else wanted.dtype

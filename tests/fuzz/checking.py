"""What has to hold of a case: it is refused by name, fails cleanly, or follows the oracle."""

import warnings

import numpy as np
import tensorflow as tf

from tests import running
from tests.cases import CASES
from tests.problems import Problem, Rows

v1 = tf.compat.v1


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
        problem = case.problem()
        if case.bad_ids:
            return fails_cleanly(case, problem)
        try:
            trace = running.WAYS[case.way](problem, case.make)
        except ValueError as error:
            if len(case.shape) > 7 and "has more than 7 axes" in str(error):
                return "refused"
            raise
        follows(case, problem, trace)
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
    rows = case.shape[0]
    good = 0
    for gradient in case.gradients:
        if not all(0 <= row < rows for row in gradient.ids):
            break
        good += 1
    before = problem._replace(gradients=problem.gradients[:good])
    # The state is looked at where there is no graph to go with the error.
    variable, step = tf.Variable(problem.values["w"]), tf.Variable(0, dtype=tf.int64)
    optimizer = case.make(step)
    for number, gradients in enumerate(problem.gradients[: good + 1]):
        values, ids = gradients["w"]
        slices = tf.IndexedSlices(tf.constant(values), tf.constant(ids), case.shape)
        pairs = [(slices, variable)]
        if number < good:
            optimizer.apply_gradients(pairs, global_step=step)
            continue
        try:
            optimizer.apply_gradients(pairs, global_step=step)
        except tf.errors.InvalidArgumentError:
            break
        if not variable.numpy().size:
            return "compared"  # there is nothing to be updated
        raise Finding("ids %s of %d rows were taken" % (list(ids), rows))
    if good and not in_place(optimizer):
        expected = running.eager(before, case.make).steps[-1]["w"]
        if not np.array_equal(variable.numpy(), expected, equal_nan=True):
            raise Finding("a step that failed has changed the variable")
    elif not in_place(optimizer) and not np.array_equal(variable.numpy(), problem.values["w"]):
        raise Finding("a first step that failed has changed the variable")
    if int(step.numpy()) != good:
        raise Finding("a step that failed has advanced the global step")
    return "failed cleanly"


def in_place(optimizer):
    """Whether TensorFlow's sparse kernel finds a wrong id where it gets to it, as Momentum's."""
    return "LARS" in type(optimizer).__name__ or "Momentum" in type(optimizer).__name__


def follows(case, problem, trace):
    """Compares every step and slot with the oracle.

    How far a result may be off is told by the oracle itself: by how far it moves if the gradients
    do by a unit in the last place. Where it has no finite number nothing is compared.
    """
    oracle = CASES[case.name].oracle
    ulps, eps = CASES[case.name].ulps, float(np.finfo(case.dtype).eps)
    ulps *= 1000 if case.kind == "extreme" else 1  # differences of what is nearly equal
    runs = [run_oracle(oracle, case.arguments, each) for each in [problem] + moved(problem, eps)]
    pairs = [(trace.steps[n]["w"], [run[0][n] for run in runs]) for n in range(problem.steps)]
    pairs += [(trace.slots["w", key], [run[1][key] for run in runs]) for key in runs[0][1]]
    if set(trace.slots) != {("w", key) for key in runs[0][1]}:
        raise Finding("slots %s, expected %s" % (sorted(trace.slots), sorted(runs[0][1])))
    for number, (actual, wanted) in enumerate(pairs):
        what = "step %d" % number if number < problem.steps else "a slot"
        wanted = [np.asarray(each) for each in wanted]
        if actual.dtype != wanted[0].dtype or actual.shape != wanted[0].shape:
            raise Finding("%s is %s%s" % (what, actual.dtype, actual.shape))
        stack = np.stack([each.astype(np.float64) for each in wanted])
        known = np.isfinite(stack).all(0)
        stack = np.where(known, stack, 0)
        scale = np.maximum(1.0, np.abs(stack).max(initial=0))
        bound = ulps * eps * problem.steps * scale
        bound = bound + 8 * np.abs(stack - stack[0]).max(0, initial=0)
        gap = np.where(known, np.abs(actual.astype(np.float64) - stack[0]), 0)
        if not (gap <= bound).all():
            worst = np.unravel_index(np.argmax(np.where(gap <= bound, -1, gap)), gap.shape)
            raise Finding(
                "%s: %r where the oracle has %r" % (what, actual[worst], wanted[0][worst])
            )


def run_oracle(oracle, arguments, problem):
    """Returns the values after each step, and the slots."""
    made = oracle(problem.values["w"], "w", **arguments)
    values = []
    for number, gradients in enumerate(problem.gradients):
        if made.value.size:
            made.apply(gradients["w"], number)
        values.append(made.value.copy())
    return values, made.slots


def moved(problem, eps):
    """Returns problems whose gradients and start differ by units in the last place."""
    problems = []
    for seed in range(2):
        random = np.random.RandomState(seed)

        def nudged(array, random=random):
            signs = np.asarray(random.choice([-1.0, 1.0], size=array.shape))
            return (array * (1 + eps * signs)).astype(array.dtype)

        gradients = [
            {"w": Rows(nudged(g.values), g.ids) if isinstance(g, Rows) else nudged(g)}
            for g in (step["w"] for step in problem.gradients)
        ]
        start = {"w": nudged(problem.values["w"])}
        problems.append(Problem(start, gradients, problem.sparse, problem.dtype))
    return problems
